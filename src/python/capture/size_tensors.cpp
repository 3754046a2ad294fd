// Tensors that torch makes of numbers (torch.tensor([h, w]), torch.div(n, 2,
// rounding_mode="trunc")): the graph fills them with the symbols of sizes. Where code asks one
// without dimensions for its number it gets the symbol, or the constant, back.
#include "python/capture/capture.h"
#include "python/capture/plan_rebuild.h"
#include "python/capture/size_float.h"

namespace oxy::python {
namespace {

bool is_whole(py::handle o) { return is_symbolic_int(o) || PyLong_CheckExact(o.ptr()); }
bool is_real(py::handle o) { return is_symbolic_float(o) || PyFloat_CheckExact(o.ptr()); }

// torch.tensor's, that torch.full has as well.
bool takes_options(const Keywords& kwargs) {
  return std::ranges::all_of(kwargs, [](const auto& item) {
    return is_text(item.first.ptr(), "dtype") || is_text(item.first.ptr(), "device");
  });
}

bool has_option(const Keywords& kwargs, const char* name) {
  return std::ranges::any_of(kwargs,
                             [=](const auto& item) { return is_text(item.first.ptr(), name); });
}

const py::object& int64() { return member_of<"torch", "int64">(); }

// A tensor without dimensions whose number torch takes without a warning.
bool is_number_in_tensor(Capture& c, const py::object& o) {
  if (!c.heap.is_tensor(o) || c.wrappers.has_function(o)) return false;
  const at::Tensor& t = THPVariable_Unpack(o.ptr());
  return t.dim() == 0 && !is_wrapped(t) && !t.requires_grad();
}

// Of numbers, of tensors of one with a dtype in the options, and of lists of such; null for all
// else. `floats`: there are floats among them.
py::object filled(Capture& c, const py::object& value, const Keywords& options, bool floats) {
  if (is_number_in_tensor(c, value))
    return c.calls.call_method(c.calls.call_method(value, "detach", {}, {}), "to", {}, options);
  if (is_whole(value) || is_real(value)) {
    Keywords named = options;
    py::object dtype;
    for (const auto& [key, given] : options)
      if (is_text(key.ptr(), "dtype") && !given.is_none()) dtype = given;
    std::erase_if(named, [](const auto& item) { return is_text(item.first.ptr(), "dtype"); });
    // Of integers torch raises where the number does not fit.
    if (dtype && THPDtype_Check(dtype.ptr()) && is_symbolic_float(value) &&
        !at::isFloatingType(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type))
      return {};
    if (dtype)
      named.emplace_back(py::str("dtype"), dtype);
    else if (!floats)
      named.emplace_back(py::str("dtype"), int64());
    else if (is_whole(value))
      named.emplace_back(py::str("dtype"),
                         c.calls.call(member_of<"torch", "get_default_dtype">(), {}));
    const py::object& full = member_of<"torch", "full">();
    if (is_symbolic_float(value))
      return c.calls.filled_with_float("torch.full", full, {py::tuple(), value}, named);
    const py::object made = c.graphs.record(ir::NodeKind::CallFunction, "torch.full", full,
                                            {py::tuple(), value}, named);
    if (is_whole(value) && !floats && (!dtype || dtype.is(int64())))
      c.numbers.set_constant_number(made, {value, py::list()});
    return made;
  }
  if (!PyList_CheckExact(value.ptr()) && !PyTuple_CheckExact(value.ptr())) return {};
  py::list parts;
  for (py::handle item : c.heap.contents(value)) {
    const py::object part = filled(c, borrow(item), options, floats);
    if (!part) return {};
    parts.append(part);
  }
  if (parts.empty()) return {};
  return c.graphs.record(ir::NodeKind::CallFunction, "torch.stack", member_of<"torch", "stack">(),
                         {parts}, {});
}

size_t numbers_in(py::handle value) {
  if (!PyList_CheckExact(value.ptr()) && !PyTuple_CheckExact(value.ptr())) return 1;
  size_t count = 0;
  for (py::handle item : value) count += numbers_in(item);
  return count;
}

// The dtype that torch gives a tensor of these numbers. `any_tensor` becomes true where one of them
// is in a tensor.
at::ScalarType dtype_of(Capture& c, const py::object& value, bool& any_tensor) {
  if (is_number_in_tensor(c, value)) {
    any_tensor = true;
    return THPVariable_Unpack(value.ptr()).scalar_type();
  }
  if (is_real(value)) return at::get_default_dtype_as_scalartype();
  std::optional<at::ScalarType> all;
  if (PyList_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr()))
    for (py::handle item : c.heap.contents(value)) {
      const at::ScalarType one = dtype_of(c, borrow(item), any_tensor);
      all = all ? at::promote_types(*all, one) : one;
    }
  return all.value_or(at::kLong);
}

// Whether torch makes a tensor of it, and `filled` can: lists that are alike. `floats` becomes
// true where there are floats among the numbers.
bool is_regular(Capture& c, const py::object& value, bool& floats) {
  floats = floats || is_real(value);
  const auto is_leaf = [&](const py::object& o) {
    return is_whole(o) || is_real(o) || is_number_in_tensor(c, o);
  };
  if (is_leaf(value)) return true;
  if (!PyList_CheckExact(value.ptr()) && !PyTuple_CheckExact(value.ptr())) return false;
  std::optional<size_t> length;
  for (py::handle item : c.heap.contents(value)) {
    const py::object one = borrow(item);
    if (!is_regular(c, one, floats)) return false;
    const size_t has = is_leaf(one) ? 0 : py::len(c.heap.contents(one));
    if (has != length.value_or(has)) return false;
    length = has;
  }
  return length.has_value();
}

}  // namespace

std::optional<py::object> Sizes::computed(std::string_view function, const Arguments& numbers,
                                          const Keywords& kwargs) {
  const std::string_view word = function.substr(function.rfind('.') + 1);
  if (!std::ranges::all_of(numbers, is_whole)) return std::nullopt;
  if (word == "long" && numbers.size() == 1 && kwargs.empty()) return numbers[0];
  if (numbers.size() != 2) return std::nullopt;
  auto quotient = [&](Rounding how) -> std::optional<py::object> {
    const auto a = integer_expr(numbers[0]), b = integer_expr(numbers[1]);
    if (!a || !b) return std::nullopt;
    const auto facts = graphs().recorder().facts();
    const auto made = SizeFloat::quotient(*a, *b, facts);
    return made ? std::optional(symbolic_int(*made->rounded(how), facts)) : std::nullopt;
  };
  if (word == "div" && kwargs.size() == 1 && is_text(kwargs[0].first.ptr(), "rounding_mode")) {
    for (const auto& [mode, how] :
         {std::pair("trunc", Rounding::ToZero), {"floor", Rounding::Down}})
      if (is_text(kwargs[0].second.ptr(), mode)) return quotient(how);
  }
  if (!kwargs.empty()) return std::nullopt;
  if (word == "floor_divide" || word == "floordiv") return quotient(Rounding::Down);
  if (word == "add") return objects().compute(member_of<"operator", "add">(), numbers);
  if (word == "sub") return objects().compute(member_of<"operator", "sub">(), numbers);
  if (word == "mul") return objects().compute(member_of<"operator", "mul">(), numbers);
  return std::nullopt;
}

py::object Calls::number_of_size(const py::object& number, const std::string& method) {
  if (method == "__bool__") return py::bool_(objects().truth(number));
  if (method == "__float__") return call(type_object(&PyFloat_Type), {number});
  return number;
}

py::object Calls::filled_with_float(const std::string& name, py::handle callable, Arguments args,
                                    const Keywords& kwargs) {
  const py::object value = std::exchange(args.back(), py::float_(0.0));
  const auto kind = callable ? ir::NodeKind::CallFunction : ir::NodeKind::CallMethod;
  py::object made = graphs().record(kind, name, callable, args, kwargs);
  const at::Tensor& t = THPVariable_Unpack(made.ptr());
  if (!at::isFloatingType(t.scalar_type())) {  // which raises where the number does not fit
    args.back() = numbers().read(value);
    return graphs().record(kind, name, callable, args, kwargs);
  }
  const bool is_number = t.dim() == 0;
  made = call_method(made, "fill_", {value}, {});
  if (is_number && !numbers().is_of_data(value))
    numbers().set_constant_number(made, {value, py::list()});
  return made;
}

Done Calls::tensor_of_numbers(const std::string& name, py::handle callable, const Arguments& args,
                              const Keywords& kwargs) {
  constexpr std::string_view kTorch = "torch.";
  const bool makes = name == "torch.tensor" || name == "torch.as_tensor";
  if (name == "torch.asarray" && has_option(kwargs, "requires_grad"))  // of the tensor it is given
    throw Break(BreakId::torch_call, "torch.asarray with requires_grad");
  if (makes && args.size() == 1 && takes_options(kwargs) && is_number(args[0].ptr())) {
    const py::object number = callable(*tuple_of(args), **dict_of(kwargs)).attr("item")();
    const py::object made =
        graphs().record(ir::NodeKind::CallFunction, name, callable, args, kwargs);
    numbers().set_constant_number(made, {number, py::list()});
    return made;
  }
  if (makes && args.size() == 1 && PyList_CheckExact(args[0].ptr()) && heap().exists(args[0])) {
    constexpr size_t kMost = 256;  // each is a step of the graph
    const py::object inside = heap().deep_contents(args[0]);
    return mentions(inside, is_symbolic, false) && numbers_in(inside) <= kMost
               ? tensor_of_numbers(name, callable, {inside}, kwargs)
               : Done();
  }
  if (makes && args.size() == 1 && takes_options(kwargs) && !heap().is_tensor(args[0])) {
    bool any_tensor = false, floats = false;
    const at::ScalarType dtype = dtype_of(capture_, args[0], any_tensor);
    if (any_tensor) {
      if (!is_regular(capture_, args[0], floats)) return std::nullopt;
      Keywords options = kwargs;
      for (const auto& [key, given] : kwargs)  // floats are no integers to torch
        if (is_text(key.ptr(), "dtype") &&
            (!THPDtype_Check(given.ptr()) ||
             !at::canCast(dtype, reinterpret_cast<THPDtype*>(given.ptr())->scalar_type)))
          return std::nullopt;
      if (!has_option(kwargs, "dtype"))
        options.emplace_back(py::str("dtype"),
                             borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype))));
      const py::object made = filled(capture_, args[0], options, floats);
      return made ? Done(made) : std::nullopt;
    }
  }
  if ((!sizes().symbolic() && !numbers().any_deferred()) || name.rfind('.') + 1 != kTorch.size() ||
      !any_argument(args, {}, mentions_symbolic_int))
    return std::nullopt;
  if (name == "torch.asarray" && args.size() == 1 && takes_options(kwargs))
    return call(member_of<"torch", "tensor">(), args, kwargs);
  if (makes) {
    bool floats = false;
    if (args.size() != 1 || !takes_options(kwargs) || !is_regular(capture_, args[0], floats))
      return std::nullopt;
    const py::object made = filled(capture_, args[0], kwargs, floats);
    return made ? Done(made) : std::nullopt;
  }
  if ((name == "torch.full" || name == "torch.full_like") && args.size() == 2 &&
      is_symbolic_float(args[1]) && !has_option(kwargs, "requires_grad") &&
      !has_option(kwargs, "out"))
    return filled_with_float(name, callable, args, kwargs);
  if (name == "torch.scalar_tensor" && args.size() == 1 && is_symbolic_float(args[0]) &&
      takes_options(kwargs))
    return filled_with_float("torch.full", member_of<"torch", "full">(), {py::tuple(), args[0]},
                             kwargs);
  if (args.size() != 2) return std::nullopt;
  const auto number = sizes().computed(name, args, kwargs);
  return number ? Done(filled(capture_, *number, {}, false)) : std::nullopt;
}

// Tensor.new_tensor of numbers that vary.
Done Calls::tensor_like(py::handle tensor, const Arguments& args, const Keywords& kwargs) {
  if (args.size() != 1 || !takes_options(kwargs) || !mentions(args[0], is_symbolic, false))
    return std::nullopt;
  Keywords options = kwargs;
  for (const char* option : {"dtype", "device"})
    if (!has_option(kwargs, option))
      options.emplace_back(py::str(option), tensor_attr(tensor, py::str(option)));
  return call(member_of<"torch", "tensor">(), args, options);
}

}  // namespace oxy::python
