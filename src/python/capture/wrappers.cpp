// Calls on tensors that wrap others, followed down to the ops on what they wrap.
#include "python/capture/wrappers.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/inner_frames.h"
#include "python/sized_calls.h"
#include "python/torch_ir.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {
namespace {

// `torch.Tensor.shape.__get__`
bool is_getter(py::handle callable) {
  return is_method_wrapper(callable.ptr()) && text(callable.attr("__name__")) == "__get__" &&
         Py_TYPE(py::object(callable.attr("__self__")).ptr()) == &PyGetSetDescr_Type;
}

// What torch tells a class that an operator's method calls: `__add__` is `add`.
std::string_view told_as(std::string_view method) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"__add__", "add"},        {"__radd__", "add"},
      {"__iadd__", "add_"},      {"__sub__", "sub"},
      {"__isub__", "sub_"},      {"__mul__", "mul"},
      {"__rmul__", "mul"},       {"__imul__", "mul_"},
      {"__truediv__", "div"},    {"__itruediv__", "div_"},
      {"__mod__", "remainder"},  {"__imod__", "remainder_"},
      {"__matmul__", "matmul"},  {"__lt__", "lt"},
      {"__le__", "le"},          {"__gt__", "gt"},
      {"__ge__", "ge"},          {"__ne__", "ne"},
      {"__neg__", "neg"},        {"__pos__", "positive"},
      {"__abs__", "abs"},        {"__rand__", "bitwise_and"},
      {"__ror__", "bitwise_or"}, {"__rxor__", "bitwise_xor"}};
  const auto* found =
      std::ranges::find(kNames, method, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kNames) ? method : found->second;
}

bool needs_gradient(py::handle o) {
  return mentions(
      o,
      [](py::handle t) {
        return is_tensor_object(t.ptr()) && THPVariable_Unpack(t.ptr()).requires_grad();
      },
      false);
}

}  // namespace

bool mentions_wrapper(py::handle o) {
  return mentions(o, [](py::handle p) { return Wrappers::wraps(p.ptr()); }, false);
}

bool Wrappers::wraps(PyObject* o) {
  if (!is_tensor_object(o) || THPVariable_CheckExact(o)) return false;
  const at::Tensor& t = THPVariable_Unpack(o);
  static const py::str &flatten = *new py::str("__tensor_flatten__"),
                       &unflatten = *new py::str("__tensor_unflatten__");
  // DTensors go by rules of sharding, which a capture would follow for long.
  return t.key_set().has(c10::DispatchKey::Python) && t.layout() == at::kStrided &&
         !module_of(type_object(Py_TYPE(o))).starts_with("torch.distributed.") &&
         _PyType_Lookup(Py_TYPE(o), flatten.ptr()) != nullptr &&
         _PyType_Lookup(Py_TYPE(o), unflatten.ptr()) != nullptr;
}

bool Wrappers::is_derived(py::handle type) {
  static const py::str& dispatch = *new py::str("__torch_dispatch__");
  if (!PyType_Check(type.ptr()) ||
      !PyType_IsSubtype(as_type(type), as_type(member_of<"torch", "Tensor">())))
    return false;
  const std::string module = module_of(type);
  return module != "torch" && !module.starts_with("torch.") &&
         _PyType_Lookup(as_type(type), dispatch.ptr()) ==
             member_of<"torch._C", "_disabled_torch_dispatch_impl">().ptr();
}

bool Wrappers::is_followed(py::handle o) {
  return followed_ && heap().is_tensor(o) && is_derived(objects().type_of(o));
}

PyObject* Wrappers::method(py::handle tensor, py::handle name) {
  return objects().type_member(as_type(objects().type_of(tensor)), name);
}

bool Wrappers::has_function(py::handle tensor) {
  static const py::str& name = *new py::str("__torch_function__");
  return without_functions_ == 0 && (wraps(tensor.ptr()) || is_followed(tensor)) &&
         method(tensor, name) != member_of<"torch._C", "_disabled_torch_function_impl">().ptr();
}

bool Wrappers::any(const Arguments& args, const Keywords& kwargs) {
  if (any_argument(args, kwargs, mentions_wrapper)) return true;
  if (!followed_ || without_functions_ > 0) return false;
  const auto asks = [this](const py::object& o) {
    if (!PyList_CheckExact(o.ptr()) && !PyTuple_CheckExact(o.ptr())) return has_function(o);
    const py::list items = plain_list(heap().contents(o));
    return std::any_of(items.begin(), items.end(),
                       [this](py::handle i) { return has_function(i); });
  };
  return std::ranges::any_of(args, asks) ||
         std::ranges::any_of(kwargs, asks, &Keywords::value_type::second);
}

py::object Wrappers::of_class(py::object made, py::handle type) {
  py::setattr(made, "__class__", type);
  follow();
  return made;
}

Done Wrappers::call_of_context(py::handle self, std::string_view method) {
  if (!py::type::of(self).is(member_of<"torch._C", "DisableTorchFunctionSubclass">()))
    return std::nullopt;
  if (method == "__enter__") return ++without_functions_, borrow(self);
  if (method == "__exit__") return --without_functions_, py::none();
  return std::nullopt;
}

Done Wrappers::call(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (PyFunction_Check(p)) return std::nullopt;
  py::object self;
  if (PyCFunction_Check(p)) self = borrow(PyCFunction_GET_SELF(p));
  if (is_method_wrapper(p)) self = callable.attr("__self__");
  const bool bound = self && is_tensor_object(self.ptr());
  if (followed_ && is_getter(callable) && args.size() == 1 && is_followed(args[0]) &&
      !has_function(args[0]))
    return calls().tensor_attr(args[0], callable.attr("__self__").attr("__name__"));
  if (!any(args, kwargs) && !(bound && (wraps(self.ptr()) || has_function(self))))
    return std::nullopt;
  if (is_getter(callable)) return asked(callable, args, kwargs);
  const bool of_tensor =
      bound ||
      (is_unbound_native(p) && PyDescr_TYPE(p) == as_type(member_of<"torch._C", "TensorBase">()));
  if (!of_tensor) {
    if (torch_name(callable).empty()) return std::nullopt;
    return asked(callable, args, kwargs);
  }
  Arguments all = args;
  if (bound) all.insert(all.begin(), self);
  const std::string name = text(callable.attr("__name__"));
  if (name == "as_subclass") return std::nullopt;  // asks nobody
  return asked(member_of<"torch", "Tensor">().attr(std::string(told_as(name)).c_str()), all,
               kwargs);
}

Done Wrappers::asked(py::handle function, const Arguments& args, const Keywords& kwargs) {
  if (auto done = calls().ask_objects(function, args, kwargs)) return *done;
  const auto asks = [this](const py::object& o) { return has_function(o); };
  if (std::ranges::any_of(args, asks))
    throw Break(BreakId::torch_call, "no class takes ", text(function.attr("__name__")));
  if (!any_argument(args, kwargs, mentions_wrapper)) return std::nullopt;
  return dispatch(function, args, kwargs);
}

Done Wrappers::attribute(py::handle tensor, py::handle name) {
  const std::string word = text(name);
  const uint32_t traits = tensor_traits(word);
  if (wraps(tensor.ptr()) && (traits & (native::FixedAttribute | native::ViewAttribute)) == 0)
    throw Break(BreakId::tensor_attribute, Py_TYPE(tensor.ptr())->tp_name, ".", word);
  const py::object getter = member_of<"torch", "Tensor">().attr(name).attr("__get__");
  return asked(getter, {borrow(tensor)}, {});
}

// The call itself, without what it may ask classes for; each op that torch dispatches below it is
// followed (`answer`). Autograd would see the call and not what the class makes of it.
py::object Wrappers::dispatch(py::handle function, const Arguments& args, const Keywords& kwargs) {
  const std::string name = text(function.attr("__name__"));
  if (tensor_traits(name) & (native::NotInGraph | native::ReadsValue))
    throw Break(BreakId::torch_call, name, " of a tensor that wraps others");
  if (at::GradMode::is_enabled() && any_argument(args, kwargs, needs_gradient))
    throw Break(BreakId::torch_call, name, " of a tensor that wraps others, with gradients");
  const auto outside = c10::impl::tls_local_dispatch_key_set();
  auto answers =
      py::cpp_function([&](py::object op, py::tuple types, py::tuple given, py::dict named) {
        const c10::impl::ForceDispatchKeyGuard keys(outside);
        const AskedFunctions asked(true);
        const RefusedFrames refused(frames().rules());
        try {
          return answer(op, types, given, named);
        } catch (const py::error_already_set&) {
          throw;
        } catch (...) {
          failed_ = std::current_exception();
          raise(PyExc_RuntimeError, "a capture ends here");
        }
      });
  Arguments given;
  for (const py::object& a : args) given.push_back(heap().deep_contents(a));
  py::dict named;
  for (const auto& [key, a] : kwargs) named[key] = heap().deep_contents(a);
  const RefusedFrames allowed(nullptr);
  const py::object heard = own_function("oxyfuel.wrappers", "Heard")(answers);
  heard.attr("__enter__")();
  const auto leave = c10::make_scope_exit([&] {
    const py::error_scope raised;
    boundary([&] { heard.attr("__exit__")(py::none(), py::none(), py::none()); });
  });
  const AskedFunctions none(false);
  const c10::impl::ExcludeDispatchKeyGuard below(
      c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::ADInplaceOrView}));
  py::object out = owned(call_with_sizes(torch_name(function), function, tuple_of(given), named));
  if (failed_) {
    PyErr_Clear();
    std::rethrow_exception(std::exchange(failed_, nullptr));
  }
  if (!out) throw py::error_already_set();
  return taken(out);
}

// In the place of torch, for an op below a call: the __torch_dispatch__ of what wraps others, or
// the op itself where all tensors are the graph's.
py::object Wrappers::answer(py::handle op, const py::tuple& types, const py::tuple& args,
                            const py::dict& kwargs) {
  Arguments given;
  for (py::handle a : args) given.push_back(from_torch(borrow(a)));
  Keywords named;
  for (auto [key, a] : kwargs) named.emplace_back(borrow(key), from_torch(borrow(a)));
  if (!any_argument(given, named, mentions_wrapper))
    return taken(calls().call(op, std::move(given), std::move(named)));
  static const py::str& name = *new py::str("__torch_dispatch__");
  answering_++;
  const auto leave = c10::make_scope_exit([this] { answering_--; });
  for (py::handle type : types) {
    const py::object follow = objects().load_attr(type, name);
    const py::object out =
        calls().call(follow, {borrow(op), types, tuple_of(given), dict_of(named)});
    if (out.ptr() != Py_NotImplemented) return taken(out);
  }
  throw Break(BreakId::torch_call, py::str(op).cast<std::string>(), ", which no class takes");
}

// What a call gives is the graph's, wraps what is, or is a constant.
py::object Wrappers::taken(const py::object& result) {
  PyObject* p = result.ptr();
  if (is_tensor_object(p)) {
    const bool known = wraps(p) || heap().is_tensor(result);
    if (!known || (at::GradMode::is_enabled() && THPVariable_Unpack(p).requires_grad()))
      throw Break(BreakId::torch_call, "a tensor that wraps others gives what no graph has");
  } else if (PyTuple_Check(p) || PyList_Check(p)) {
    for (py::handle item : result) taken(borrow(item));
  }
  heap().hold(result);
  return from_torch(result);
}

py::object Wrappers::make(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  for (const auto& [key, value] : kwargs)
    if (is_text(key.ptr(), "requires_grad") && objects().truth(value))
      throw Break(BreakId::torch_call, "a tensor that wraps others, with gradients");
  Arguments given;
  for (const py::object& a : args) given.push_back(heap().deep_contents(a));
  const AskedFunctions none(false);
  py::object made = owned(call_with_sizes("", callable, tuple_of(given), dict_of(kwargs)));
  if (!made) throw py::error_already_set();
  if (!wraps(made.ptr()))
    throw Break(BreakId::torch_call, "a tensor of a class without __tensor_flatten__");
  heap().hold(made);
  return made;
}

py::object Wrappers::result_of_dispatch(const Arguments& args) {
  const py::object written = own_function("oxyfuel.wrappers", "written_arguments")(args[0]);
  if (written.is_none()) return args[3];
  const py::tuple given = heap().contents(args[1]);
  const py::dict named = heap().contents(args[2]);
  py::list out;
  for (py::handle one : written) {
    const auto [at, name] = one.cast<std::pair<size_t, std::string>>();
    out.append(at < given.size() ? py::object(given[at]) : py::object(named[name.c_str()]));
  }
  if (out.size() == 1) return out[0];
  return PyTuple_Check(args[3].ptr()) ? py::object(py::tuple(out)) : py::object(out);
}

PyObject* with_class(PyObject*, PyObject* args) {
  PyObject* tensor = PyTuple_GET_ITEM(args, 0);
  if (PyObject_SetAttrString(tensor, "__class__", PyTuple_GET_ITEM(args, 1)) != 0) return nullptr;
  return Py_NewRef(tensor);
}

PyObject* make_wrapper(PyObject*, PyObject* args) {
  auto body = [=] {
    const auto parts = py::reinterpret_borrow<py::tuple>(args);
    py::dict named;
    size_t i = 2;
    for (const char* name : {"strides", "storage_offset", "dtype", "device"})
      named[name] = parts[i++];
    return member_of<"torch", "Tensor">()
        .attr("_make_wrapper_subclass")(parts[0], parts[1], **named)
        .release()
        .ptr();
  };
  return boundary(body, nullptr);
}

}  // namespace oxy::python
