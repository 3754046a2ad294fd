// Tensors that wrap others: of a class in Python with `__tensor_flatten__` and
// `__tensor_unflatten__`, which torch calls a traceable wrapper subclass (torchao's quantised
// weights are some). Such a tensor is an object of the capture like others, whose attributes hold
// the fakes: no graph has it. What torch would ask its class (`__torch_function__`,
// `__torch_dispatch__`), the capture follows, down to the ops on what it wraps. So it does for
// tensors of a user's classes that have data of their own, which are the graph's like others.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>

#include <exception>

#include "python/capture/part.h"

namespace oxy::python {

// Whether torch asks classes for their __torch_function__, as long as it lives; as before where it
// does not apply.
class AskedFunctions {
 public:
  explicit AskedFunctions(bool asked, bool applies = true)
      : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    using State = at::impl::TorchFunctionDisabledState;
    if (applies)
      at::impl::PythonTorchFunctionTLS::set_disabled_state(asked ? State::ENABLED
                                                                 : State::SUBCLASSES_DISABLED);
  }
  ~AskedFunctions() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  AskedFunctions(const AskedFunctions&) = delete;

 private:
  const at::impl::TorchFunctionDisabledState before_;
};

class Wrappers : public Part {
 public:
  using Part::Part;

  static bool wraps(PyObject* o);
  // A class of the user's that derives from torch.Tensor and is asked for its __torch_function__
  // alone: its tensors are the graph's, with the class beside them.
  static bool is_derived(py::handle type);
  // From here on there may be tensors of such a class.
  void follow() { followed_ = true; }
  bool follows() const { return followed_; }
  bool is_followed(py::handle o);
  // Whether torch asks the class of the tensor for its __torch_function__.
  bool has_function(py::handle tensor);
  // Whether it wraps others, or its class is asked.
  bool is_asked(py::handle o) { return wraps(o.ptr()) || has_function(o); }
  // Whether there are such among these, or in containers of them.
  bool any(const Arguments& args, const Keywords& kwargs = {});
  // What a call gives, as a tensor of the class: `as_subclass`, `_make_subclass`.
  py::object of_class(py::object made, py::handle type);
  // What a class has for a special method, also in C; borrowed or null.
  PyObject* method(py::handle wrapper, py::handle name);
  // A call of torch's that some of these tensors are given to, or a method of theirs; null for all
  // others. Functions written in Python are to be followed.
  Done call(py::handle callable, const Arguments& args, const Keywords& kwargs);
  // By a descriptor of torch.Tensor's own; null where that is as for any tensor.
  Done attribute(py::handle tensor, py::handle name);
  // torch.Tensor._make_wrapper_subclass
  py::object make(py::handle callable, const Arguments& args, const Keywords& kwargs);
  // torch.utils._python_dispatch.return_and_correct_aliasing, where nobody sees storages: the
  // argument that the op writes to, in the place of what it has given.
  py::object result_of_dispatch(const Arguments& args);
  // Whether what is followed stands in the place of a __torch_dispatch__.
  bool is_answering() const { return answering_ > 0; }
  // In a `with torch._C.DisableTorchFunctionSubclass()`.
  Done call_of_context(py::handle self, std::string_view method);

 private:
  Done asked(py::handle function, const Arguments& args, const Keywords& kwargs);
  py::object dispatch(py::handle function, const Arguments& args, const Keywords& kwargs);
  py::object answer(py::handle op, const py::tuple& types, const py::tuple& args,
                    const py::dict& kwargs);
  py::object taken(const py::object& result);

  int without_functions_ = 0, answering_ = 0;
  bool followed_ = false;
  std::exception_ptr failed_;  // in the place of a __torch_dispatch__
};

// (tensor, class): the tensor, of the class.
PyObject* with_class(PyObject*, PyObject* args);
// (class, sizes, strides, offset, dtype, device): a tensor that is yet to get what it wraps.
PyObject* make_wrapper(PyObject*, PyObject* args);

}  // namespace oxy::python
