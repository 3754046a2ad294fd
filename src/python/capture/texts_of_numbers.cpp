// Texts of sizes and of floats that vary: made in captured code to be thrown away, as a message is
// that nobody reads, or to be carried to where the graph ends, where each call makes its own. They
// are deferred as numbers are (deferred_numbers.cpp): what looks at one reads the numbers in it.
#include "python/capture/capture.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

PyObject* join_parts(PyObject*, PyObject* parts) {
  static PyObject* const nothing = PyUnicode_InternFromString("");
  return PyUnicode_Join(nothing, parts);
}

bool is_format_of_text(py::handle callable) {
  static const py::object& unbound = *new py::object(type_object(&PyUnicode_Type).attr("format"));
  if (callable.is(unbound)) return true;
  if (!PyCFunction_Check(callable.ptr())) return false;
  PyObject* self = PyCFunction_GET_SELF(callable.ptr());
  return self != nullptr && PyUnicode_CheckExact(self) &&
         is_text(py::object(callable.attr("__name__")).ptr(), "format");
}

// Whether a field of a format may read attributes or items, or have fields in its specification.
bool may_read_parts(std::string_view format) {
  for (size_t i = 0; i < format.size(); i++) {
    if (format[i] != '{') continue;
    if (i + 1 < format.size() && format[i + 1] == '{') {
      i++;
      continue;
    }
    const std::string_view field = format.substr(i + 1, format.find('}', i) - i - 1);
    if (field.find_first_of("{.[") < field.find(':') || field.find('{') != field.npos) return true;
  }
  return false;
}

bool is_addition(uint32_t operation) { return operation == 0 || operation == 13; }
bool is_rest(uint32_t operation) { return operation == 6 || operation == 19; }

}  // namespace

bool Numbers::is_deferred_text(const py::object& o) const {
  const Deferred* found = find(o);
  return found && PyUnicode_CheckExact(found->real.ptr());
}

// A number that another call may have another one for, a text of such, or a tuple or list of such
// numbers.
bool Numbers::varies_in_text(const py::object& o) const {
  if (is_symbolic_int(o)) return has_hint(o);
  if (is_symbolic_float(o)) return is_of_data(o) || is_runtime_number(o);
  const bool list = PyList_CheckExact(o.ptr()) && !heap().exists(o);
  if (!PyTuple_Check(o.ptr()) && !list) return is_deferred_text(o);
  const py::tuple items(o);
  auto is_size = [this](py::handle item) {
    return is_symbolic_int(item) && varies_in_text(borrow(item));
  };
  return (list || PyTuple_CheckExact(o.ptr()) ||
          Py_TYPE(o.ptr()) == as_type(member_of<"torch", "Size">())) &&
         std::ranges::any_of(items, is_size) && std::ranges::all_of(items, [&](py::handle item) {
           return is_size(item) || PyLong_CheckExact(item.ptr());
         });
}

// What the function makes of the parts, a text; null where nothing in it varies.
py::object Numbers::deferred_text(const py::object& function, Arguments parts) {
  if (steps_with(parts) > kMostSteps) return {};
  bool varies = false;
  py::tuple real(parts.size());
  for (size_t i = 0; i < parts.size(); i++) {
    const bool part_varies = varies_in_text(parts[i]);
    if (!part_varies && !is_constant(parts[i].ptr())) return {};
    varies |= part_varies;
    const bool list = PyList_CheckExact(parts[i].ptr());
    real[i] = list || PyTuple_Check(parts[i].ptr())
                  ? with_items(parts[i], [this](const py::object& item) { return real_of(item); })
                  : typed(parts[i]);
    if (list)  // as it is now
      parts[i] = defer(real[i], {}, type_object(&PyList_Type), {py::tuple(parts[i])});
  }
  if (!varies) return {};
  const py::object text = owned(PyObject_CallObject(function.ptr(), real.ptr()));
  if (!text) PyErr_Clear();  // raised again where it is no longer put off
  if (!text || !PyUnicode_CheckExact(text.ptr())) return {};
  return defer(text, {}, function, std::move(parts));
}

// A copy of a tensor, of which a text is made behind the graph; null for all else, and where the
// text tells how the tensor came to be. `number`: that of one without dimensions is its number's.
py::object Numbers::text_part(const py::object& o, bool number) {
  if (!sizes().of_data().numbers || graphs().inner() != nullptr || !heap().is_tensor(o) ||
      wrappers().has_function(o) || !objects().type_of(o).is(member_of<"torch", "Tensor">()))
    return {};
  const at::Tensor& t = THPVariable_Unpack(o.ptr());
  if (is_wrapped(t) || bridge::is_symbolic(t) || (t.requires_grad() && !(number && t.dim() == 0)))
    return {};
  numbers_of_data_ = sizes().met_number = true;
  return calls().call_method(calls().call_method(o, "detach", {}, {}), "clone", {}, {});
}

// What the function makes of the parts, where a tensor is among them; else null.
py::object Numbers::text_of_tensors(const py::object& function, Arguments parts, bool numbers) {
  bool any = false;
  for (py::object& part : parts) {
    if (const py::object copy = text_part(part, numbers)) {
      any = true;
      part = copy;
    } else if (!is_constant(part.ptr()) && !is_of_data(part)) {
      return {};
    }
  }
  return any ? defer(py::str("tensor"), {}, function, std::move(parts)) : py::object();
}

// f"{o!r:spec}", of the conversion's letter.
py::object Numbers::formatted(const py::object& o, char conversion, const py::object& spec) {
  if (!PyUnicode_CheckExact(spec.ptr())) return {};
  if (heap().is_tensor(o)) {
    auto builtin = [](const char* name) { return py::module_::import("builtins").attr(name); };
    if (conversion == '\0') return text_of_tensors(builtin("format"), {o, spec}, true);
    const char* name = conversion == 's' ? "str" : conversion == 'r' ? "repr" : "ascii";
    const py::object text = text_of_tensors(builtin(name), {o}, false);
    return text && py::len(spec) != 0 ? formatted(text, '\0', spec) : text;
  }
  if (!varies_in_text(o)) return {};
  py::object value = o;
  if (conversion == 's' && !is_deferred_text(o))
    value = deferred_text(type_object(&PyUnicode_Type), {o});
  else if (conversion == 'r')
    value = deferred_text(member_of<"builtins", "repr">(), {o});
  else if (conversion == 'a')
    value = deferred_text(member_of<"builtins", "ascii">(), {o});
  if (!value) return {};
  if (is_deferred_text(value) && py::len(spec) == 0) return typed(value), value;
  return deferred_text(member_of<"builtins", "format">(), {value, spec});
}

py::object Numbers::joined(const Arguments& parts) {
  return deferred_text(function_object<join_parts>("join"), parts);
}

py::object Numbers::text_of_operator(uint32_t operation, const py::object& a, const py::object& b) {
  if (is_rest(operation) && PyUnicode_CheckExact(a.ptr()) && heap().is_tensor(b))
    return text_of_tensors(member_of<"operator", "mod">(), {a, b}, true);
  if (!is_rest(operation) || !makes_text(operation, a, b)) return {};
  return deferred_text(member_of<"operator", "mod">(), {a, b});
}

// str(n), repr(n), format(n, spec), "{}".format(n).
py::object Numbers::text_of_call(const py::object& callable, const Arguments& args) {
  const bool formats =
      callable.is(member_of<"builtins", "format">()) || is_format_of_text(callable);
  const bool is_str = callable.is(type_object(&PyUnicode_Type));
  const bool writes = (is_str && args.size() == 1) || callable.is(member_of<"builtins", "repr">());
  if ((formats || writes) &&
      std::ranges::any_of(args, [this](const py::object& a) { return heap().is_tensor(a); }))
    return text_of_tensors(callable, args, formats);
  if (args.empty() ||
      std::ranges::none_of(args, [this](const py::object& a) { return varies_in_text(a); }))
    return {};
  if (is_str && args.size() == 1 && is_deferred_text(args[0])) return typed(args[0]), args[0];
  return formats || writes ? deferred_text(callable, args) : py::object();
}

// "{a.b[0]}".format(a=x): attributes and items of the arguments are taken as by the code, in
// oxyfuel.polyfills; null where there are none of these and no keywords.
Done Calls::call_format(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  if (!is_format_of_text(callable)) return {};
  const bool bound = PyCFunction_Check(callable.ptr());
  if (!bound && args.empty()) return {};
  const py::object text = bound ? borrow(PyCFunction_GET_SELF(callable.ptr())) : args[0];
  if (!PyUnicode_CheckExact(text.ptr()) || numbers().is_deferred_text(text)) return {};
  const bool asks = std::ranges::any_of(args, [this](const py::object& a) {
    if (heap().is_tensor(a) || is_array(a)) return false;
    return is_enum_member(a) || objects().special_method(a, py::str("__format__")) != nullptr;
  });
  if (kwargs.empty() && !asks && !may_read_parts(view_of(text.ptr()))) return {};
  py::object fields;
  {
    const RefusedFrames allowed(nullptr);
    try {
      fields = member_of<"oxyfuel.polyfills", "fields_of">()(text);
      if (kwargs.empty() && !asks &&
          !member_of<"oxyfuel.polyfills", "follows_fields">()(fields).cast<bool>())
        return {};
    } catch (const py::error_already_set&) {  // no format: it raises so
      return {};
    }
  }
  py::dict by_name;
  for (const auto& [name, value] : kwargs) by_name[name] = value;
  const Arguments rest(args.begin() + (bound ? 0 : 1), args.end());
  return call_function(member_of<"oxyfuel.polyfills", "format_fields">(),
                       {fields, tuple_of(rest), by_name}, {});
}

// The operands of a BINARY_OP that makes a text.
bool Numbers::makes_text(uint32_t operation, const py::object& a, const py::object& b) const {
  auto is_text = [this](const py::object& o) {
    return is_deferred_text(o) || PyUnicode_CheckExact(o.ptr());
  };
  if (is_rest(operation)) return PyUnicode_CheckExact(a.ptr()) && varies_in_text(b);
  return is_addition(operation) && is_text(a) && is_text(b);
}

}  // namespace oxy::python
