// Tensors of one element whose number is a constant of the capture: those that torch made of
// numbers alone (torch.div(7, 2, rounding_mode="trunc")), those that the buffers of a module hold
// (the stride of a convolution), and what is computed from such. Where Python asks for the number
// of a buffer a guard says which it is, and every call looks at it again; as long as nobody asks,
// there is none. What a constant tensor holds stands in the __dict__ of its fake until something is
// called that might write to it.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/capture/capture.h"
#include "python/capture/natives.h"
#include "python/guards/evaluate.h"

namespace oxy::python {
namespace {

PyObject* number_key() {
  static PyObject* const key = PyUnicode_InternFromString("_oxyfuel_number");
  return key;
}

py::object kept_number(py::handle tensor) {
  PyObject** dict = _PyObject_GetDictPtr(tensor.ptr());
  if (dict == nullptr || *dict == nullptr) return {};
  return borrow(PyDict_GetItemWithError(*dict, number_key()));
}

bool is_plain_argument(py::handle o) {
  return PyLong_Check(o.ptr()) || PyFloat_CheckExact(o.ptr()) || THPDtype_Check(o.ptr()) ||
         PyUnicode_Check(o.ptr());
}

}  // namespace

// Of something that may be written to.
void Numbers::forget_numbers(py::handle o) {
  if (is_tensor_object(o.ptr()) && kept_number(o)) PyObject_DelAttr(o.ptr(), number_key());
  if (!PyTuple_Check(o.ptr()) && !PyList_Check(o.ptr())) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o.ptr()); i++)
    forget_numbers(PySequence_Fast_GET_ITEM(o.ptr(), i));
}

// A buffer of a module that was there before, to which captured code has not written: in no tensor
// of its memory.
bool Numbers::is_unwritten_state(py::handle tensor) {
  Tracked* k = heap().tracked(tensor);
  return reads_numbers && k != nullptr && k->source.valid() && heap().is_module_state(k->source) &&
         is_unwritten(tensor);
}

// The same of any tensor without dimensions that was there before.
bool Numbers::is_unwritten(py::handle tensor) {
  Tracked* k = heap().tracked(tensor);
  if (k == nullptr || !k->original || !k->source.valid()) return false;
  const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
  if (real.dim() != 0 || real.requires_grad() || real.is_inference() || !real.has_storage())
    return false;
  for (const auto& [other, fake] : heap().fakes()) {
    const at::Tensor& t = THPVariable_Unpack(other);
    if (t.has_storage() && t.storage().is_alias_of(real.storage()) &&
        THPVariable_Unpack(fake.ptr())._version() != 0)
      return false;
  }
  return true;
}

ConstantNumber Numbers::constant_number(py::handle tensor) {
  if (const py::object kept = kept_number(tensor)) {
    const py::tuple both(kept);
    return {both[0], both[1]};
  }
  if (!is_unwritten_state(tensor)) return {};
  ConstantNumber out{number_in(heap().tracked(tensor)->original.ptr())};
  out.of.append(tensor);
  return out;
}

// The number in `tensor`, which the code looks at; null where it is no constant.
py::object Numbers::use_number(py::handle tensor) {
  const ConstantNumber number = constant_number(tensor);
  if (!number.value) return {};
  for (py::handle input : number.of) {
    const Tracked& k = *heap().tracked(input);
    heap().guard(GuardKind::Number, k.source, number_in(k.original.ptr()));
  }
  if (!is_symbolic_float(number.value)) return number.value;
  const py::object dtype = py::reinterpret_borrow<py::object>(tensor).attr("dtype");
  return number_in(
      member_of<"torch", "tensor">()(read(number.value), py::arg("dtype") = dtype).ptr());
}

void Numbers::set_constant_number(py::handle tensor, const ConstantNumber& number) {
  py::setattr(tensor, number_key(), py::make_tuple(number.value, number.of));
}

// What the call gives where a tensor without dimensions holds a size, and all else is such a tensor
// or an int; none where no expression says it.
ConstantNumber Numbers::computed_size(const std::string& target, const Arguments& args,
                                      const Keywords& kwargs) {
  ConstantNumber out;
  Arguments numbers;
  bool symbolic = false;
  for (const py::object& a : args) {
    const bool is_tensor = heap().is_tensor(a);
    if (is_tensor && THPVariable_Unpack(a.ptr()).scalar_type() != at::kLong) return {};
    const ConstantNumber kept = is_tensor ? constant_number(a) : ConstantNumber{a};
    if (!kept.value) return {};
    symbolic |= is_tensor && is_symbolic_int(kept.value);
    for (py::handle input : kept.of) out.of.append(input);
    numbers.push_back(kept.value);
  }
  if (symbolic) out.value = sizes().computed(target, numbers, kwargs).value_or(py::object());
  return out;
}

// What the call gives on tensors and numbers that are all constant: computed for real.
ConstantNumber Numbers::computed_number(const std::string& target, py::handle function,
                                        const Arguments& args, const Keywords& kwargs) {
  if (!(target_traits(target) & (native::Computes | native::Converts))) return {};
  if (ConstantNumber size = computed_size(target, args, kwargs); size.value) return size;
  ConstantNumber out;
  bool all_constant = true;
  auto real = [&](const py::object& a) -> py::object {
    if (!heap().is_tensor(a)) return all_constant &= is_plain_argument(a), a;
    if (THPVariable_Unpack(a.ptr()).dim() != 0) return all_constant = false, a;
    const ConstantNumber number = constant_number(a);
    if (!number.value || is_symbolic(number.value)) return all_constant = false, a;
    for (py::handle input : number.of) out.of.append(input);
    return member_of<"torch", "tensor">()(number.value, py::arg("dtype") = a.attr("dtype"));
  };
  py::list given;
  for (const py::object& a : args) given.append(real(a));
  py::dict named;
  for (const auto& [key, a] : kwargs) named[key] = real(a);
  if (!all_constant || given.empty()) return {};
  const py::object called = function ? borrow(function) : given.attr("pop")(0).attr(target.c_str());
  const py::object result = called(*given, **named);
  if (is_tensor_object(result.ptr())) out.value = number_in(result.ptr());
  return out;
}

// `o`, with the integers that constant tensors hold in their place: where torch takes sizes and
// bounds.
py::object Numbers::with_constant_sizes(const py::object& o) {
  PyObject* p = o.ptr();
  if (is_tensor_object(p)) {
    if (THPVariable_Unpack(p).dim() != 0) return o;
    const ConstantNumber number = constant_number(o);
    const bool whole =
        number.value && (PyLong_CheckExact(number.value.ptr()) || is_symbolic_int(number.value));
    return whole ? use_number(o) : o;
  }
  if (PyDict_Check(p) || heap().exists(o) || (PyTuple_Check(p) && !PyTuple_CheckExact(p))) return o;
  return with_items(o, [this](const py::object& item) { return with_constant_sizes(item); });
}

// `record`, with the constants among its arguments and its result.
py::object Numbers::record_with_numbers(ir::NodeKind kind, const std::string& target,
                                        py::handle callable, const Arguments& args,
                                        const Keywords& kwargs) {
  if (auto done = record_graph_numbers(kind, target, callable, args, kwargs)) return *done;
  Arguments given = args;
  Keywords named = kwargs;
  const bool sizes = (target_traits(target) & native::TakesSizes) != 0;
  for (size_t i = 0; i < given.size(); i++)
    if (sizes && (i > 0 || !heap().is_tensor(given[i]))) given[i] = with_constant_sizes(given[i]);
  for (auto& [key, a] : named)
    if (sizes) a = with_constant_sizes(a);
  const ConstantNumber number = computed_number(target, callable, args, kwargs);
  py::object out = graphs().record(kind, target, callable, given, named);
  // What was called may have written to its arguments, or be a view of one.
  if (!(target_traits(target) & (native::Computes | native::Converts)))
    for (const py::object& a : args)
      if (!sizes || a.is(args.front())) forget_numbers(a);
  for (const auto& [key, a] : kwargs) forget_numbers(a);
  if (number.value && !heap().tracked(out)->source.valid()) set_constant_number(out, number);
  return out;
}

}  // namespace oxy::python
