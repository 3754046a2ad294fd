// Calls of functions that a user has marked, or that tell the compiler something, and of what is
// called as a whole because of what it is: cached functions, autograd functions, transforms.
#include "python/capture/controls.h"

#include <torch/csrc/autograd/python_variable.h>

#include <functional>

#include "python/capture/capture.h"
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/changes.h"
#include "python/cpython/compile_lock.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "python/torch_settings.h"
#include "python/transform_levels.h"
#include "support/check.h"

namespace oxy::python {
namespace {

struct ControlOf {
  Control control = Control::None;
  py::object substitute;
};

std::unordered_map<PyObject*, ControlOf>& controls() {
  static auto& table = *new std::unordered_map<PyObject*, ControlOf>();  // holds its keys
  return table;
}

Stance own_stance = Stance::Default;

// A module, if it has been imported; borrowed.
PyObject* imported(const char* name) {
  return PyDict_GetItemString(PyImport_GetModuleDict(), name);
}

// Whether one of TorchDynamo's sets of marked functions has this one.
bool is_in_set(PyObject* rules, PyObject* name, py::handle callable) {
  static PyObject* const function_ids = PyUnicode_InternFromString("function_ids");
  const py::object ids = py::getattr(py::getattr(rules, name), function_ids);
  const py::int_ id(reinterpret_cast<uintptr_t>(callable.ptr()));
  return PyAnySet_Check(ids.ptr()) && PySet_Contains(ids.ptr(), id.ptr()) == 1;
}

// What substitute_in_graph of torch.compiler was told by the user; torch's own are left out.
py::object dynamo_substitute(py::handle callable) {
  PyObject* functions = imported("torch._dynamo.variables.functions");
  if (functions == nullptr) return {};
  static const py::object& handlers = *new py::object(
      py::handle(functions).attr("PolyfilledFunctionVariable").attr("_get_polyfill_handlers")());
  py::object found = borrow(PyDict_GetItemWithError(handlers.ptr(), callable.ptr()));
  if (!found) return PyErr_Clear(), py::object();
  if (py::hasattr(found, "__torch_dynamo_polyfill__"))
    found = found.attr("__torch_dynamo_polyfill__");
  if (found.is(callable) || py::hasattr(callable, "__torch_dynamo_original__")) return {};
  const auto module = py::str(found.attr("__module__")).cast<std::string>();
  return module.starts_with("torch._dynamo.") ? py::object() : found;
}

// Whether each call from position `first` on makes each element of its result from the same element
// of its arguments.
bool goes_by_elements(const ir::Graph& graph, size_t first) {
  for (size_t i = first; i < graph.order().size(); i++) {
    const ir::Node& n = graph.node(graph.order()[i]);
    if (n.dead) continue;
    if (n.kind != ir::NodeKind::CallFunction || !(target_traits(n.target) & native::ByElement))
      return false;
    auto sizes = [&](ir::ValueId v) -> auto& { return graph.value(v).type.tensor.sizes; };
    bool same = true;
    ir::for_each_value(n, [&](ir::ValueId v) { same &= sizes(v) == sizes(n.outputs[0]); });
    if (!same) return false;
  }
  return true;
}

// Whether a key of a functools.lru_cache is that of these arguments: one text or int itself, else a
// tuple of the arguments, behind a mark the keywords and their values, and the types of all values
// where the cache is `typed`.
bool is_key_of(py::handle key, const Arguments& args, const Keywords& kwargs, bool typed) {
  const auto equal = [](py::handle a, py::handle b) {
    return PyObject_RichCompareBool(a.ptr(), b.ptr(), Py_EQ) == 1;
  };
  const bool itself = args.size() == 1 && kwargs.empty() && !typed &&
                      (PyUnicode_CheckExact(args[0].ptr()) || PyLong_CheckExact(args[0].ptr()));
  if (itself || !PyTuple_CheckExact(key.ptr()))
    return itself && Py_TYPE(key.ptr()) == Py_TYPE(args[0].ptr()) && equal(key, args[0]);
  const size_t values = args.size() + (kwargs.empty() ? 0 : 1 + 2 * kwargs.size());
  const size_t size = values + (typed ? args.size() + kwargs.size() : 0);
  if (PyTuple_GET_SIZE(key.ptr()) != static_cast<Py_ssize_t>(size)) return false;
  const auto item = [&](size_t i) { return py::handle(PyTuple_GET_ITEM(key.ptr(), i)); };
  for (size_t i = 0; i < args.size(); i++)
    if (!equal(item(i), args[i])) return false;
  if (!kwargs.empty() && !Py_IS_TYPE(item(args.size()).ptr(), &PyBaseObject_Type)) return false;
  for (size_t i = 0; i < kwargs.size(); i++) {
    const size_t at = args.size() + 1 + 2 * i;
    if (!equal(item(at), kwargs[i].first) || !equal(item(at + 1), kwargs[i].second)) return false;
  }
  if (!typed) return true;
  for (size_t i = 0; i < args.size(); i++)
    if (!item(values + i).is(py::type::of(args[i]))) return false;
  for (size_t i = 0; i < kwargs.size(); i++)
    if (!item(values + args.size() + i).is(py::type::of(kwargs[i].second))) return false;
  return true;
}

struct CacheEntry {
  py::object cache, key;        // a dict; null where there is no entry
  std::optional<size_t> limit;  // where there is one, the dict holds an LruEntry
};

// The entry that a functools.lru_cache has for these arguments. Its cache is what the garbage
// collector finds in it; results, which it may find as well, are no entries.
CacheEntry cache_entry(py::handle cached, const Arguments& args, const Keywords& kwargs) {
  std::optional<RefusedFrames> allowed;
  if (module_of(cached) == "typing") allowed.emplace(nullptr);  // its keys compare their parts
  const py::object parameters = cached.attr("cache_parameters")();
  const bool typed = PyObject_IsTrue(py::object(parameters["typed"]).ptr()) == 1;
  CacheEntry found;
  if (const py::object limit = parameters["maxsize"]; !limit.is_none())
    found.limit = limit.cast<size_t>();
  const py::object own = py::getattr(cached, "__dict__", py::none());
  for (py::handle held : py::module_::import("gc").attr("get_referents")(cached)) {
    if (!PyDict_CheckExact(held.ptr()) || held.is(own)) continue;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(held))
      if (found.limit.has_value() == is_lru_entry(value.ptr()) &&
          is_key_of(key, args, kwargs, typed))
        found.cache = borrow(held), found.key = borrow(key);
  }
  PyErr_Clear();
  return found;
}

// A constant, a number or a tuple of such: of which nobody sees whether it is another one.
bool is_value(py::handle o) {
  const bool is_sizes = py::type::handle_of(o).is(member_of<"torch", "Size">());
  if (!PyTuple_CheckExact(o.ptr()) && !is_sizes)
    return is_constant(o.ptr()) || is_symbolic_int(o) || is_symbolic_float(o);
  return std::ranges::all_of(py::reinterpret_borrow<py::tuple>(o), is_value);
}

ControlOf control_of(py::handle callable) {
  static PyObject* const disallowed = PyUnicode_InternFromString("_disallowed_callable_ids");
  static PyObject* const allowed = PyUnicode_InternFromString("_allowed_callable_ids");
  if (auto it = controls().find(callable.ptr()); it != controls().end()) return it->second;
  PyObject* rules = imported("torch._dynamo.trace_rules");
  if (rules == nullptr) return {};
  if (PyFunction_Check(callable.ptr())) {
    if (is_in_set(rules, disallowed, callable)) return {Control::NotInGraph, {}};
    if (is_in_set(rules, allowed, callable)) return {Control::InGraph, {}};
  }
  if (py::object substitute = dynamo_substitute(callable)) return {Control::Substitute, substitute};
  return {};
}

}  // namespace

void set_control(py::handle callable, Control control, py::object substitute) {
  auto [it, added] =
      controls().insert_or_assign(callable.ptr(), ControlOf{control, std::move(substitute)});
  if (added) callable.inc_ref();
}

Stance stance_named(std::string_view name) {
  if (name == "default") return Stance::Default;
  if (name == "force_eager") return Stance::ForceEager;
  if (name == "eager_on_recompile") return Stance::EagerOnRecompile;
  if (name == "fail_on_recompile") return Stance::FailOnRecompile;
  if (name == "eager_then_compile" || name == "aot_eager_then_compile")
    return Stance::EagerThenCompile;
  throw UserError(cat("unknown stance '", name, "'"));
}

void set_stance(Stance stance) { own_stance = stance; }

// Every call asks: versions of the dicts on the way tell that the answer is what it was.
Stance current_stance() {
  if (own_stance != Stance::Default) return own_stance;
  static uint64_t modules_version = 0, members_version = 0;
  static PyObject *members = nullptr, *last = nullptr;  // held
  static Stance named = Stance::Default;
  PyObject* modules = PyImport_GetModuleDict();
  if (dict_version(modules) == modules_version &&
      (members == nullptr || dict_version(members) == members_version))
    return named;
  static PyObject* const name = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  static PyObject* const variable = PyUnicode_InternFromString("_stance");
  PyObject* module = PyDict_GetItemWithError(modules, name);
  Py_XSETREF(members, module ? Py_NewRef(PyModule_GetDict(module)) : nullptr);
  PyObject* now = members ? PyDict_GetItemWithError(members, variable) : nullptr;
  if (now == nullptr)
    named = Stance::Default;
  else if (now != last)
    named = stance_named(view_of(py::object(py::handle(now).attr("stance")).ptr()));
  Py_XSETREF(last, Py_XNewRef(now));
  modules_version = dict_version(modules);
  members_version = members ? dict_version(members) : 0;
  return named;
}

// Whether the program has told torch's compiler that such calls do nothing: of the function, or of
// a method of one object.
bool Calls::is_ignored(py::handle function, const Arguments& args) {
  if (!ignored_) ignored_ = dynamo_object("ignore_logging_functions");
  if (!*ignored_ || !PyAnySet_Check(ignored_->ptr()) || PySet_GET_SIZE(ignored_->ptr()) == 0)
    return false;
  for (py::handle f : py::list(*ignored_)) {
    if (f.is(function)) return true;
    if (PyMethod_Check(f.ptr()) && PyMethod_GET_FUNCTION(f.ptr()) == function.ptr() &&
        !args.empty() && args[0].ptr() == PyMethod_GET_SELF(f.ptr()))
      return true;
  }
  return false;
}

bool Calls::is_reordered(py::handle function) {
  if (!reordered_) reordered_ = dynamo_object("reorderable_logging_functions");
  return *reordered_ && PyAnySet_Check(reordered_->ptr()) &&
         (PyFunction_Check(function.ptr()) || PyCFunction_Check(function.ptr())) &&
         PySet_Contains(reordered_->ptr(), function.ptr()) == 1;
}

// Of tensors, numbers and texts, which it is given as they are once the graph has run.
Done Calls::call_reordered(py::handle function, const Arguments& args, const Keywords& kwargs) {
  if (!is_reordered(function)) return std::nullopt;
  for (const py::object& a : args)
    if (!heap().is_tensor(a) && !is_symbolic(a) && !numbers().is_deferred(a))
      require_plain(a, function);
  for (const auto& [name, value] : kwargs)
    if (!is_constant(value.ptr())) return std::nullopt;
  const py::object& partial = member_of<"functools", "partial">();
  behind_.emplace_back(kwargs.empty() ? borrow(function) : partial(function, **dict_of(kwargs)),
                       args);
  return py::none();
}

Done Calls::call_control(py::handle callable, Arguments& args, Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (!PyFunction_Check(p) && !PyCFunction_Check(p)) return std::nullopt;
  if (is_ignored(callable, args)) return py::none();
  if (auto done = call_reordered(callable, args, kwargs)) return done;
  if (PyFunction_Check(p)) {
    auto* f = as_function(p);
    if (f->func_dict != nullptr &&
        PyDict_GetItemString(f->func_dict, "_dynamo_marked_constant") != nullptr)
      return call_once_for_all(callable, args, kwargs);
    if (auto done = call_of_optimizer(f, args, kwargs)) return done;
  }
  const auto [control, substitute] = control_of(callable);
  switch (control) {
    case Control::None:
      return std::nullopt;
    case Control::InGraph:
      for (const py::object& a : args)
        if (heap().exists(a) && !PyList_Check(a.ptr()) && !PyDict_Check(a.ptr()))
          throw Break(BreakId::builtin_on_existing, "a function that is allowed in the graph");
      refuse_objects(args, kwargs, "a function that is allowed in the graph");
      return graphs().record(ir::NodeKind::CallFunction, "", callable, args, kwargs);
    case Control::NotInGraph:
      throw Break(BreakId::disallowed, py::str(callable.attr("__name__")).cast<std::string>());
    case Control::Constant:
      return call_once_for_all(callable, args, kwargs);
    case Control::Substitute:
      return call(substitute, args, kwargs);
  }
  return std::nullopt;
}

void Calls::set_error_on_break(py::handle value) {
  error_on_break.reset();
  if (PyBool_Check(value.ptr())) error_on_break = value.ptr() == Py_True;
}

py::object Calls::combine_elements(const Arguments& args) {
  const size_t before = graphs().ir_now().graph.order().size();
  py::object out = call(args[0], {args[1], args[2]});
  if (!goes_by_elements(graphs().ir_now().graph, before))
    throw Break(BreakId::control_flow, "a scan whose parts are not combined element by element");
  return out;
}

bool Calls::is_chosen(const py::object& condition) {
  if (heap().is_tensor(condition) && !numbers().use_number(condition))
    throw Break(BreakId::control_flow, "a tensor: ", graphs().why_left_alone);
  return objects().truth(condition);
}

// Other threads may capture meanwhile.
py::object Calls::call_for_good(py::handle callable, Arguments args, Keywords kwargs) {
  sizes().make_plain(args, kwargs);
  const size_t step = frames().stack().back()->step;
  const std::tuple key(step, answered_[step]++, callable.ptr());
  if (auto it = answers->find(key); it != answers->end()) return it->second;
  const RefusedFrames allowed(nullptr);
  const CompileUnlocked waiting;
  py::object out = steal(PyObject_Call(callable.ptr(), tuple_of(args).ptr(),
                                       kwargs.empty() ? nullptr : dict_of(kwargs).ptr()));
  if (sizes().symbolic()) out = from_torch(out);
  return answers->emplace(key, std::move(out)).first->second;
}

// assume_constant_result: called now, with the real arguments, and never again.
py::object Calls::call_once_for_all(py::handle callable, const Arguments& args,
                                    const Keywords& kwargs) {
  for (const py::object& a : args)
    if (heap().is_tensor(a)) throw Break(BreakId::builtin_call, "a constant function of tensors");
  py::object out = call_for_good(callable, args, kwargs);
  if (!is_one_for_all(out) && !PyTuple_Check(out.ptr()))
    throw Break(BreakId::builtin_call, "a constant function that returns an object");
  if (PyTuple_Check(out.ptr())) require_plain(out, callable);
  return out;
}

// An argument that is a part of a cache's key: plain, or an object whose identity is its equality,
// or what typing makes (`Optional[T]`), which nobody changes.
void Calls::require_key(const py::object& o, py::handle callable) {
  const PyTypeObject* type = Py_TYPE(o.ptr());
  if (PyTuple_CheckExact(o.ptr())) {
    for (py::handle item : o) require_key(borrow(item), callable);
    return;
  }
  const bool by_identity = type->tp_hash == PyBaseObject_Type.tp_hash &&
                           type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  const bool stays = by_identity || module_of(py::type::of(o)) == "typing";
  if (heap().exists(o) && stays && !heap().is_tensor(o) && !iterators().lazy(o)) {
    arrays().as_key(o);
    heap().guard(GuardKind::IdIs, heap().source_of(o), o);
  } else {
    require_plain(o, callable);
  }
}

// Calls of functions with a cache that are not captured; held.
static std::set<CachedCall>& left_alone() {
  static std::set<CachedCall>& calls = *new std::set<CachedCall>;
  return calls;
}

[[noreturn]] static void leave_alone(const CachedCall& place) {
  Py_INCREF(place.first);
  Py_INCREF(place.second);
  left_alone().insert(place);
  throw StartAgain();
}

// Numbers, tuples, lists and dicts of such, and what the arguments hold.
bool Calls::is_result_of_values(py::handle o) const {
  if (heap().exists(o) || is_value(o)) return true;
  const auto all = [this](const auto& items) {
    return std::ranges::all_of(items, [this](py::handle i) { return is_result_of_values(i); });
  };
  if (PyTuple_CheckExact(o.ptr())) return all(py::reinterpret_borrow<py::tuple>(o));
  if (PyList_CheckExact(o.ptr())) return all(py::reinterpret_borrow<py::list>(o));
  return PyDict_CheckExact(o.ptr()) && all(items_of(o));
}

// Of a dict its keys, and its values behind them.
py::tuple Calls::items_of(py::handle container) {
  if (!PyDict_CheckExact(container.ptr())) return py::tuple(borrow(container));
  const py::list keys(container.attr("keys")()), values(container.attr("values")());
  return py::tuple(keys + values);
}

void Calls::note_cached(py::handle o, const CachedCall& place) {
  if (heap().exists(o) || is_value(o)) return;
  const py::tuple items = items_of(o);
  if (!PyTuple_CheckExact(o.ptr())) cached_results_.push_back({borrow(o), items, place});
  for (py::handle item : items) note_cached(item, place);
}

void Calls::check_cached(const std::function<bool(py::handle)>& hands_out) const {
  const auto is_same = [](py::handle a, py::handle b) { return a.is(b); };
  for (const auto& [container, items, place] : cached_results_)
    if (!std::ranges::equal(items_of(container), items, is_same) || hands_out(container))
      leave_alone(place);
}

// Of sizes and floats that vary, a function with a cache is captured, where all that it does is to
// give values; nullopt where it does more, or has no such argument.
Done Calls::call_without_cache(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  const CachedCall place{callable.ptr(), frames().stack().back()->code};
  const auto varies = [](py::handle o) {
    return mentions(o, is_symbolic_int, false) || mentions(o, is_symbolic_float, false);
  };
  if (!any_argument(args, kwargs, varies) || left_alone().contains(place)) return std::nullopt;
  const auto before = effects_met();
  try {
    py::object out = call(borrow(callable.attr("__wrapped__")), args, kwargs);
    const auto plain = [this](py::handle a) { return heap().exists(a) || is_value(a); };
    const bool of_values =
        std::ranges::all_of(args, plain) &&
        std::ranges::all_of(kwargs, [&](const auto& item) { return plain(item.second); });
    if (effects_met() == before && (is_value(out) || (of_values && is_result_of_values(out)))) {
      note_cached(out, place);
      if (heap().exists(callable))
        heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
      return out;
    }
  } catch (const Break&) {
  } catch (const py::error_already_set&) {}  // the cache may have what it gave before
  leave_alone(place);
}

// How much the captured code has written, and read of that.
std::pair<size_t, size_t> Calls::effects_met() const {
  return {effects().count(), heap().met_written()};
}

// A function with a cache, of constants: what it gives now, later calls are given as long as the
// cache has it; they do not ask the cache, which counts no use. It runs for real where the cache
// has nothing, and must not depend on what the captured code has written and nobody has done yet:
// then it is captured first, to see what it reads.
py::object Calls::call_cached(py::handle callable, Arguments args, Keywords kwargs) {
  // It keeps nothing.
  if (py::object(callable.attr("cache_parameters")()["maxsize"]).equal(py::int_(0))) {
    heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
    return call(objects().load_attr(callable, py::str("__wrapped__")), args, kwargs);
  }
  if (auto done = call_without_cache(callable, args, kwargs)) return *done;
  sizes().make_plain(args, kwargs);
  for (const py::object& a : args) require_key(a, callable);
  for (const auto& [key, a] : kwargs) require_key(a, callable);
  CacheEntry entry = cache_entry(callable, args, kwargs);
  const auto refuse = [] {
    throw Break(BreakId::builtin_call, "a function with a cache, behind a change of globals");
  };
  if (!entry.key && graphs().defers_what_torch_sees())
    throw Break(BreakId::builtin_call, "a function with a cache, behind what is not done yet");
  // It lets go of what has not been asked for longest.
  if (!entry.key && entry.limit && cached_keys_[callable.ptr()].size() >= *entry.limit)
    throw Break(BreakId::builtin_call, "a function whose cache is full");
  py::object here;  // what it gives to the captured code
  const bool changed = !effects().no_type_is_written();
  if (!entry.key && (changed || !effects().all_written().empty())) {
    const CachedCall place{callable.ptr(), frames().stack().back()->code};
    if (left_alone().contains(place)) refuse();
    const auto before = effects_met();
    try {
      here = call(borrow(callable.attr("__wrapped__")), args, kwargs);
    } catch (const Break&) {
      leave_alone(place);
    }
    if (effects_met() != before || (changed && !is_constant(here.ptr()))) refuse();
    if (!is_constant(here.ptr())) here = {};
  }
  if (heap().exists(callable)) heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
  py::object out = call_for_good(callable, args, kwargs);
  const bool plain = is_constant(out.ptr()) || is_callable_constant(out.ptr());
  if (!plain && mentions_tensor(out) && (is_transformed() || graphs().inner() != nullptr))
    throw Break(BreakId::builtin_call, "a function with a cache that returns a tensor");
  if (here && !(is_constant(out.ptr()) && here.get_type().is(out.get_type()) && here.equal(out)))
    refuse();
  entry = cache_entry(callable, args, kwargs);
  if (!entry.key) throw Break(BreakId::builtin_call, "a function whose cache lets its result go");
  SourceId source = heap().sources.dict_item(
      heap().sources.pinned(entry.cache, cat("the cache of ", name_of(callable))), entry.key);
  if (entry.limit) cached_keys_[callable.ptr()].insert(entry.key.ptr());
  if (entry.limit) source = heap().sources.cached_result(source);
  if (!plain) return heap().wrap(out, source);  // what is read of it is guarded
  heap().guard(is_constant(out.ptr()) ? GuardKind::Equals : GuardKind::IdIs, source, out);
  return out;
}

// Function.apply where no gradient is needed: its forward, with a context that keeps what it is
// given.
py::object Calls::call_autograd_function(py::handle type, Arguments args, Keywords kwargs) {
  static const py::object& forward =
      *new py::object(own_function("oxyfuel.autograd_function", "forward"));
  const bool hooks = type.is(member_of<"torch.nn.modules._functions", "BackwardHookFunction">());
  if (is_transformed()) {
    if (hooks) Graphs::refuse_in_transform("a backward hook of a module");
    if (in_jvp()) Graphs::refuse_in_transform("an autograd.Function of forward AD");
    return call_differentiable(type, args, kwargs);
  }
  Graphs::refuse_in_transform("an autograd.Function");
  for (const py::object& a : args)
    if (at::GradMode::is_enabled() && heap().is_tensor(a) &&
        THPVariable_Unpack(a.ptr()).requires_grad()) {
      // A module's backward hooks, which torch puts on autograd's nodes.
      if (hooks) throw Break(BreakId::autograd_function, "a backward hook of a module");
      return call_differentiable(type, args, kwargs);
    }
  args.insert(args.begin(), borrow(type));
  return call(forward, std::move(args), std::move(kwargs));
}

// object.__reduce_ex__ of an object that has a __reduce__ of its own, or a plain one, with a
// __dict__ or slots or what says them, as copy.deepcopy asks for it; nullopt where `o` is no such
// one.
Done Calls::reduce_plain(py::handle o) {
  PyObject* p = o.ptr();
  if (is_constant(p)) return py::object(borrow(p).attr("__reduce_ex__")(4));
  if (PySet_CheckExact(p))
    return py::make_tuple(objects().type_of(o), py::make_tuple(py::list(heap().contents(o))),
                          py::none());
  PyTypeObject* type = Py_TYPE(p);
  if (heap().is_tensor(o) || PyType_Check(p)) return std::nullopt;
  if (PyObject* own = objects().special_method(o, py::str("__reduce__")))
    return call(own, {borrow(o)});
  if (builtin_base(type) != &PyBaseObject_Type || type == &PyBaseObject_Type) return std::nullopt;
  for (const char* own : {"__reduce_ex__", "__getnewargs__", "__getnewargs_ex__"})
    if (objects().special_method(o, py::str(own)) != nullptr) return std::nullopt;
  const py::object of_type = type_object(type);
  py::object state = py::none();
  if (PyObject* own = objects().special_method(o, py::str("__getstate__"))) {
    state = call(own, {borrow(o)});
  } else {
    if (has_instance_dict(type)) state = objects().instance_dict(o);
    if (!state.is_none() && PyDict_Size(heap().contents(state).ptr()) == 0) state = py::none();
    py::dict slots;
    for (py::handle name : member_of<"copyreg", "_slotnames">()(of_type)) try {
        slots[name] = objects().load_attr(o, name);
      } catch (py::error_already_set& e) {
        if (!e.matches(PyExc_AttributeError)) throw;
      }
    if (!slots.empty()) state = py::make_tuple(state, slots);
  }
  return py::make_tuple(member_of<"copyreg", "__newobj__">(), py::make_tuple(of_type), state,
                        py::none(), py::none());
}

}  // namespace oxy::python
