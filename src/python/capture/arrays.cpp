// NumPy arrays are tensors of the graph: captured code sees an oxyfuel.arrays.Array in the place of
// each, and Python functions (oxyfuel.arrays, oxyfuel.array_functions), which are interpreted like
// any other, in the place of NumPy's. What these raise is a break in front of the user's own call,
// which NumPy then does on the real arrays.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/cpython/types.h"
#include "python/guards/evaluate.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

// The class, once the module is there.
PyTypeObject* array_class = nullptr;

struct ArrayCode {
  py::object over_tensor, other_method, numpy_types;
  std::unordered_map<PyObject*, py::object> over_arrays, makers;  // by what they stand for
};

const ArrayCode& array_code() {
  static const auto& code = *[] {
    auto* out = new ArrayCode();
    const RefusedFrames allowed(nullptr);  // the import runs
    const py::module_ arrays = py::module_::import("oxyfuel.arrays");
    const py::module_ functions = py::module_::import("oxyfuel.array_functions");
    auto table = [&](const char* name, auto& to) {
      for (auto [original, function] : py::dict(functions.attr(name)))
        to.emplace(original.inc_ref().ptr(), borrow(function));
    };
    table("OVER_ARRAYS", out->over_arrays);
    table("MAKE_ARRAYS", out->makers);
    out->over_tensor = arrays.attr("over_tensor");
    out->other_method = arrays.attr("other_method");
    out->numpy_types = arrays.attr("NUMPY_OF");
    array_class = as_type(py::object(arrays.attr("Array")).release());
    return out;
  }();
  return code;
}

bool is_real_array(PyObject* p) {
  return std::string_view(Py_TYPE(p)->tp_name) == "numpy.ndarray" &&
         !(Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

// A function of NumPy, as far as can be told without asking it.
bool is_of_numpy(PyObject* p) {
  if (PyFunction_Check(p)) return view_of(as_function(p)->func_module).starts_with("numpy");
  if (PyCFunction_Check(p))
    return view_of(reinterpret_cast<PyCFunctionObject*>(p)->m_module).starts_with("numpy");
  if (is_unbound_native(p)) return std::string_view(PyDescr_TYPE(p)->tp_name).starts_with("numpy.");
  return std::string_view(Py_TYPE(p)->tp_name).starts_with("numpy.");
}

// Whether its code names NumPy's random numbers, and nothing of torch.
bool names_random_numbers(PyFunctionObject* function) {
  bool random = false, numpy = false, of_random = false;
  for (py::handle name : borrow(code_of(function)->co_names)) {
    random |= is_text(name.ptr(), "random");
    PyObject* found = PyDict_GetItemWithError(function->func_globals, name.ptr());
    if (found == nullptr || !PyModule_Check(found)) continue;
    const std::string_view module = PyModule_GetName(found);
    if (module == "torch" || module.starts_with("torch.")) return false;
    numpy |= module == "numpy";
    of_random |= module == "numpy.random";
  }
  return of_random || (random && numpy);
}

// (tensor, whether it is a scalar, the dimensions that run backwards): the array over the tensor's
// memory, or the scalar.
PyObject* make_array(PyObject*, PyObject* args) {
  return boundary(
      [&]() -> PyObject* {
        HANDLE_TH_ERRORS
        const at::Tensor tensor = THPVariable_Unpack(PyTuple_GET_ITEM(args, 0)).detach();
        auto made = owned(torch::utils::tensor_to_numpy(tensor, false));
        py::list key;
        const auto back = py::reinterpret_borrow<py::tuple>(PyTuple_GET_ITEM(args, 2));
        if (!back.empty())
          for (int64_t d = 0; d < tensor.dim(); d++)
            key.append(py::slice(py::none(), py::none(), py::int_(back.contains(d) ? -1 : 1)));
        // Its base is an array, as in code that knows of NumPy alone, no tensor.
        if (PyTuple_GET_ITEM(args, 1) != Py_True && key.empty())
          return made.attr("view")().release().ptr();
        return PyObject_GetItem(made.ptr(), py::tuple(key).ptr());
        END_HANDLE_TH_ERRORS
      },
      nullptr);
}

}  // namespace

bool is_real_scalar(PyObject* p) {
  return (type_traits(Py_TYPE(p)) & native::Scalar) != 0 &&
         !(Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

bool is_numpy_limits(PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return (name == "finfo" || name == "iinfo") &&
         view_of(PyDict_GetItemString(type->tp_dict, "__module__")).starts_with("numpy");
}

bool is_array(py::handle o) { return Py_TYPE(o.ptr()) == array_class; }

py::object type_of_array(py::handle array) {
  const py::object of_tensor = array.attr("memory").attr("dtype");
  const py::object dtype = item_in(array_code().numpy_types, of_tensor);
  if (!dtype) throw Break(BreakId::numpy, "an array of ", text(py::str(of_tensor)));
  if (array.attr("scalar").cast<bool>()) return dtype.attr("type");
  return py::module_::import("numpy").attr("ndarray");
}

void check_array_attr(py::handle array, py::handle name) {
  if (_PyType_Lookup(array_class, name.ptr()) != nullptr) return;
  const py::object type = type_of_array(array);
  const char* of = as_type(type)->tp_name;
  if (PyObject_HasAttr(type.ptr(), name.ptr())) throw Break(BreakId::numpy, of, ".", text(name));
  raise(PyExc_AttributeError, "'", of, "' object has no attribute '", text(name), "'");
}

py::object method_of_array(py::handle array, py::handle name) {
  PyObject* own = _PyType_Lookup(array_class, name.ptr());
  const py::object function =
      own != nullptr && PyFunction_Check(own) ? borrow(own) : array_code().other_method(name);
  return steal(PyMethod_New(function.ptr(), array.ptr()));
}

bool is_array_code(PyFunctionObject* function) {
  return array_class != nullptr && view_of(function->func_module).starts_with("oxyfuel.array");
}

bool Arrays::in_array_code() const {
  return !frames().stack().empty() && is_array_code(as_function(frames().stack().back()->function));
}

// What that code is made of, no user's: nothing to guard.
bool Arrays::is_of_array_code(SourceId source) const {
  const Source& begin = heap().root_of(source);
  if (begin.kind != SourceKind::Pinned) return false;
  PyObject* root = begin.key.ptr();
  if (PyFunction_Check(root)) return is_array_code(as_function(root));
  if (PyType_Check(root)) return as_type(root) == array_class;
  if (PyDict_CheckExact(root))
    return view_of(PyDict_GetItemString(root, "__name__")).starts_with("oxyfuel.array");
  return PyModule_Check(root);
}

bool mentions_array(py::handle o) {
  return array_class != nullptr &&
         mentions(o, [](py::handle p) { return is_array(p) || is_real_array(p.ptr()); }, false);
}

// Null for all else, and for arrays that no tensor can be over.
py::object Arrays::wrap_array(py::handle real, SourceId source) {
  const bool scalar = is_real_scalar(real.ptr());
  if (!scalar && !is_real_array(real.ptr())) return {};
  if (auto it = heap().stand_ins().find(real.ptr()); it != heap().stand_ins().end()) {
    heap().guard_pair(GuardKind::SameAs, source, array_sources_.at(it->second.ptr()));
    return it->second;
  }
  const py::object tensor = tensor_of_array(real.ptr());
  if (!tensor) return {};
  array_code();
  heap().guard(GuardKind::TypeIs, source, py::type::of(real));
  py::object out = steal(PyType_GenericAlloc(array_class, 0));
  const SourceId place = heap().sources.array_tensor(source);
  const py::object inside = heap().wrap_tensor(tensor, place);
  const bool truth = THPVariable_Unpack(tensor.ptr()).scalar_type() == at::kBool;
  const bool is_constant = scalar && (truth || !numbers().is_varying(place));
  if (const py::object number = is_constant ? number_in(tensor.ptr()) : py::object())
    numbers().set_constant_number(inside, {number, py::list(py::make_tuple(inside))});
  out.attr("memory") = inside;
  out.attr("scalar") = scalar;
  out.attr("back") = py::tuple();
  array_sources_.emplace(out.ptr(), source);
  heap().stand_ins().emplace(real.ptr(), out);
  heap().hold(out);
  heap().hold(borrow(real));
  has_array_inputs_ |= !scalar;  // a scalar has memory of its own
  return out;
}

SourceId Arrays::source_of_array(py::handle array) const {
  auto it = array_sources_.find(array.ptr());
  return it == array_sources_.end() ? SourceId() : it->second;
}

// Torch takes NumPy scalars for Python's numbers: those that came with the call, or were computed
// of such, by their value, booleans as floats, also in a list or tuple. What is assigned to an item
// must be an integer or a number of Python's itself, as a float64 is. `varies`: one that came with
// the call may be another number at the next, as Python's may.
Arguments Arrays::with_numbers(std::string_view word, const Arguments& args, bool varies) {
  Arguments out = args;
  const auto number_of = [&](const py::object& a, bool assigned, bool varies) {
    if (!is_array(a) || !a.attr("scalar").cast<bool>()) return a;
    const py::object inside = a.attr("memory");
    Tracked& tensor = *heap().tracked(inside);
    const bool existing = source_of_array(a).valid();
    py::object number = existing ? number_in(tensor.original.ptr()) : numbers().use_number(inside);
    if (!existing && !number) return a;
    const auto dtype = THPVariable_Unpack(inside.ptr()).scalar_type();
    if (!number || (assigned && (dtype == at::kBool || dtype == at::kFloat)))
      throw Break(BreakId::numpy, "a scalar of this type");
    if (existing && is_number(number.ptr()) && varies) return number_of_scalar(inside);
    if (existing) heap().guard(GuardKind::Number, tensor.source, number);
    return dtype == at::kBool ? py::object(py::float_(number)) : number;
  };
  for (py::object& a : out) {
    const bool assigned = (word == "setitem" || word == "__setitem__") && a.is(out.back());
    a = PyTuple_CheckExact(a.ptr()) || PyList_CheckExact(a.ptr())
            ? with_items(a, [&](const py::object& item) { return number_of(item, false, false); })
            : number_of(a, assigned, varies);
  }
  return with_computed_floats(word, out);
}

py::object Arrays::number_of_scalar(py::handle tensor) {
  const auto is_memory = [&](const auto& known) {
    const auto array = py::handle(known.first);
    return py::object(array.attr("memory")).is(tensor) &&
           array.attr("scalar").template cast<bool>();
  };
  if (std::ranges::none_of(array_sources_, is_memory)) return {};
  const Tracked& k = *heap().tracked(tensor);
  const py::object number = number_in(k.original.ptr());
  if (!number) return {};
  if (PyFloat_CheckExact(number.ptr())) numbers().takes = Takes::Varying;
  return heap().wrap(number, heap().sources.number_in(k.source));
}

py::object Arrays::as_python_number(const py::object& o) {
  if (!is_array(o)) return is_number(o.ptr()) ? o : py::object();
  const py::object memory = o.attr("memory");
  const bool wide = THPVariable_Unpack(memory.ptr()).scalar_type() == at::kDouble;
  return wide ? number_of_scalar(memory) : py::object();
}

// With the floats that the graph computes as numbers, where the function takes such.
Arguments Arrays::with_computed_floats(std::string_view word, const Arguments& args) {
  Arguments out = args;
  for (py::object& a : out)
    if (is_array(a) && a.attr("scalar").cast<bool>())
      if (const py::object number = numbers().number_of_graph(a.attr("memory"), false)) a = number;
  return std::ranges::none_of(out, mentions_array) && numbers().takes_runtime_numbers(word, out, {})
             ? out
             : args;
}

py::object Arrays::with_scalars(const py::object& o, bool also_varying) {
  if (!is_array(o) || !source_of_array(o).valid() || !o.attr("scalar").cast<bool>()) return o;
  const Tracked& tensor = *heap().tracked(o.attr("memory"));
  if (!also_varying && numbers().is_varying(tensor.source)) return o;
  const py::object number = number_in(tensor.original.ptr());
  if (!number) return o;
  heap().guard(GuardKind::Number, tensor.source, number);
  py::object out = type_of_array(o)(number);
  heap().hold(out);
  return out;
}

py::object Arrays::as_key(const py::object& o) {
  heap().guard_key(o);
  const py::object out = with_scalars(o);
  if (!is_array(out) || !out.attr("scalar").cast<bool>()) return out;
  const py::object number = numbers().use_number(out.attr("memory"));
  if (!number) return out;
  py::object key = type_of_array(out)(number);
  heap().hold(key);
  return key;
}

namespace {

// Calls `see` with the items of what an iterator written in C goes through, also those that it has
// gone past; it stays where it is. A chain goes through what the items of its own iterator hold.
void each_behind(py::handle iterator, const std::function<void(py::handle)>& see,
                 bool of_chain = false) {
  PyTypeObject* type = Py_TYPE(iterator.ptr());
  const auto refuse = [&] { throw Break(BreakId::builtin_call, "a ", type->tp_name, " of keys"); };
  if (PyGen_Check(iterator.ptr()) || python_method(iterator.ptr(), names().next_) != nullptr)
    refuse();
  const bool chains = iterator.get_type().is(member_of<"itertools", "chain">());
  const auto is_container = [](py::handle o) {
    PyObject* p = o.ptr();
    return PyList_Check(p) || PyTuple_Check(p) || PyAnySet_Check(p) || is_deque(o);
  };
  const auto see_all = [&](py::handle container) {
    for (py::handle item : plain_list(container)) {
      see(item);
      if (PyIter_Check(item.ptr()) != 0)  // in a tuple, as those of a zip
        each_behind(item, see);
      if (!of_chain || is_constant(item.ptr()) || PyIter_Check(item.ptr()) != 0) continue;
      if (is_container(item))
        for (py::handle inside : plain_list(item)) see(inside);
      else
        refuse();
    }
  };
  for (py::handle part : held_by(iterator))
    if (PyIter_Check(part.ptr()) != 0)
      each_behind(part, see, chains);
    else if (is_container(part))
      see_all(part);
    else if (PyDict_Check(part.ptr()))
      for (auto [key, value] : py::reinterpret_borrow<py::dict>(part)) {
        see(key);
        see(value);
      }
}

}  // namespace

void Arrays::guard_keys_in(const py::object& o) {
  const auto guard = [this](py::handle item) {
    heap().guard_key(item);
    const py::object pair = PyList_Check(item.ptr()) ? heap().contents(item) : py::object();
    if (pair && py::len(pair) > 0) heap().guard_key(plain_list(pair)[0]);
  };
  if (PyList_Check(o.ptr()) || PyTuple_Check(o.ptr()))
    for (py::handle item : plain_list(heap().contents(o))) guard(item);
  else if (PyIter_Check(o.ptr()) != 0 && !iterators().lazy(o) && !heap().exists(o) &&
           python_method(o.ptr(), names().next_) == nullptr)
    each_behind(o, guard);
}

// Tensor.numpy
py::object Arrays::array_over(py::handle tensor, const Arguments& args, const Keywords& kwargs) {
  Arguments all{borrow(tensor)};
  all.insert(all.end(), args.begin(), args.end());
  return calls().call_function(array_code().over_tensor, std::move(all), kwargs);
}

Done Arrays::call_numpy(py::handle callable, Arguments& args, Keywords& kwargs) {
  PyObject* p = callable.ptr();
  const bool of_numpy = is_of_numpy(p);
  if (of_numpy) array_code();
  const bool over_arrays = any_argument(args, kwargs, mentions_array);
  if (!of_numpy && !over_arrays) return std::nullopt;
  const ArrayCode& code = array_code();
  if (of_numpy) calls().refuse_objects(args, kwargs, name_of(callable));
  if (auto it = code.makers.find(p); it != code.makers.end())
    return calls().call_function(it->second, std::move(args), std::move(kwargs));
  if (!over_arrays) return std::nullopt;
  if (auto it = code.over_arrays.find(p); it != code.over_arrays.end())
    return calls().call_function(it->second, std::move(args), std::move(kwargs));
  if (of_numpy && is_unbound_native(p) && !args.empty() && is_array(args[0])) {
    const py::object own = objects().load_attr(args[0], PyDescr_NAME(p));
    return calls().call(own, {args.begin() + 1, args.end()}, std::move(kwargs));
  }
  if (of_numpy) throw Break(BreakId::numpy, name_of(callable));
  return std::nullopt;
}

bool Arrays::is_refusal(const py::error_already_set& e) {
  return array_class != nullptr &&
         e.matches(py::module_::import("oxyfuel.arrays").attr("Unsupported"));
}

// What it raises is not what NumPy would say.
py::object Arrays::call_array_code(TracedFrame& frame) {
  try {
    return frames().interpret(frame);
  } catch (const py::error_already_set& e) {
    throw Break(BreakId::numpy, text(e.value()));
  }
}

// A function that draws random numbers of NumPy's for plain values or integers in tensors, and does
// nothing with torch (the mask of an augmentation): one break in front of its call, instead of one
// at each thing that depends on what it has drawn.
void Arrays::refuse_sampler(PyFunctionObject* function, const Arguments& args,
                            const Keywords& kwargs) {
  auto is_plain = [this](const py::object& o) {
    if (heap().is_tensor(o))
      return at::isIntegralType(THPVariable_Unpack(o.ptr()).scalar_type(), true);
    if (is_constant(o.ptr()) || is_symbolic(o) || numbers().is_deferred(o)) return true;
    if (!PyTuple_CheckExact(o.ptr())) return false;
    return std::ranges::all_of(
        py::tuple(o), [](py::handle item) { return is_constant(item.ptr()) || is_symbolic(item); });
  };
  if (!names_random_numbers(function) || !std::ranges::all_of(args, is_plain) ||
      !std::ranges::all_of(kwargs, is_plain, &Keywords::value_type::second))
    return;
  leave_whole(function->func_code);
  throw Break(BreakId::numpy, "random numbers in ", text(function->func_name));
}

// A method of an array, which is Python's here.
std::optional<uint32_t> RebuildPlan::place_array_method(py::handle method) {
  const py::object function = borrow(PyMethod_GET_FUNCTION(method.ptr()));
  if (!PyFunction_Check(function.ptr()) || !is_array_code(as_function(function)))
    return std::nullopt;
  const py::object name = function.attr("__name__");
  kept_.push_back(name);
  return place_call(method, member_of<"builtins", "getattr">(),
                    {borrow(PyMethod_GET_SELF(method.ptr())), name});
}

uint32_t RebuildPlan::place_array(py::handle o) {
  if (const SourceId source = capture_.arrays.source_of_array(o); source.valid())
    return place_existing(o, source);
  return place_call(o, function_object<make_array>("array"),
                    {o.attr("memory"), o.attr("scalar"), o.attr("back")});
}

}  // namespace oxy::python
