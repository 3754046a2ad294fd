// Values, and what was written: which step makes which object.
#include "python/capture/plan_rebuild.h"

#include <c10/util/ScopeExit.h>

#include "python/capture/natives.h"

namespace oxy::python {
namespace {

constexpr int kMaxDepth = 500;  // of objects that cannot change, in each other

bool is_namespace(PyTypeObject* type) {
  return reinterpret_cast<PyObject*>(type) == member_of<"types", "SimpleNamespace">().ptr();
}

[[noreturn]] void lost_key() {
  PyErr_Clear();
  throw Break(BreakId::builtin_on_existing, "an OrderedDict that was written to as a dict");
}

}  // namespace

PyTypeObject* builtin_base(PyTypeObject* type) {
  // Classes written in C may lie on the heap as well; those of Python share one deallocator.
  static const destructor of_python = as_type(py::module_::import("enum").attr("Enum"))->tp_dealloc;
  // From CPython 3.12 on it is written in C: as empty as before.
  static PyTypeObject* const generic = as_type(member_of<"typing", "Generic">());
  while (is_changeable_class(type) && (type->tp_dealloc == of_python || type == generic))
    type = type->tp_base;
  return type;
}

bool is_of_python_class(PyObject* p) { return builtin_base(Py_TYPE(p)) != Py_TYPE(p); }

py::list plain_list(py::handle o) {
  py::object iterator = steal(builtin_base(Py_TYPE(o.ptr()))->tp_iter(o.ptr()));
  PyObject* items = PySequence_List(iterator.ptr());
  if (items == nullptr) lost_key();
  return py::reinterpret_steal<py::list>(items);
}

py::handle held_at(py::handle dict, py::handle key) {
  if (PyObject* found = PyDict_GetItemWithError(dict.ptr(), key.ptr())) return found;
  lost_key();
}

bool is_deque(py::handle o) {
  return std::string(builtin_base(Py_TYPE(o.ptr()))->tp_name) == "collections.deque";
}

RebuildPlan::RebuildPlan(Capture& capture) : capture_(capture) {
  for (const py::object& o : capture.heap.held()) made_.insert(o.ptr());
}

void RebuildPlan::refuse(py::handle o) {
  throw Break(BreakId::result_kind, Py_TYPE(o.ptr())->tp_name);
}

void RebuildPlan::add_root(py::handle value) {
  rebuild.roots.push_back(place(value));
  fill_all();
}

uint32_t RebuildPlan::add(py::handle o, RebuildStep step) {
  const auto at = static_cast<uint32_t>(rebuild.steps.size());
  for (uint32_t part : step.parts) step.late |= rebuild.steps[part].late;
  rebuild.steps.push_back(std::move(step));
  step_of_[o.ptr()] = at;
  kept_.push_back(borrow(o));
  return at;
}

uint32_t RebuildPlan::fill_later(py::handle o, uint32_t step) {
  unfilled_.emplace_back(borrow(o), step);
  return step;
}

uint32_t RebuildPlan::add_unfilled(py::handle o, RebuildStep step) {
  return fill_later(o, add(o, std::move(step)));
}

uint32_t RebuildPlan::constant(py::handle o) { return add(o, {Kind::Constant, 0, borrow(o), {}}); }

std::vector<uint32_t> RebuildPlan::place_all(py::handle iterable) {
  std::vector<uint32_t> out;
  for (py::handle item : iterable) out.push_back(place(item));
  return out;
}

uint32_t RebuildPlan::place(py::handle o) {
  if (auto it = step_of_.find(o.ptr()); it != step_of_.end()) return it->second;
  if (is_symbolic_float(o)) {
    const Deferred& number = capture_.numbers.deferred().at(o.ptr());
    return number.source.valid() ? place_existing(o, number.source)
                                 : place_call(o, number.function, number.parts);
  }
  if (is_symbolic(o)) return place_size(o);
  if (const SourceId source = capture_.numbers.source_of_float(o); source.valid())
    return place_existing(o, source);
  if (capture_.numbers.is_graph_float(o))
    return place_call(o, member_of<"torch", "Tensor">().attr("item"),
                      {py::object(o.attr("value"))});
  if (++depth_ > kMaxDepth) refuse(o);
  capture_.classes.refuse_made_class(o);
  const auto leave = c10::make_scope_exit([this] { depth_--; });
  Tracked* k = capture_.heap.tracked(o);
  if (k && k->value) return place_tensor(o);
  if (auto it = capture_.heap.fakes().find(o.ptr()); it != capture_.heap.fakes().end())
    return place(it->second);  // the key of a dict
  if (is_tensor_object(o.ptr()) && !capture_.heap.exists(o))
    return Wrappers::wraps(o.ptr()) ? place_wrapper(o) : (refuse(o), 0);
  if (is_array(o)) return place_array(o);
  if (PyMethod_Check(o.ptr()) && !(k && k->source.valid()))
    if (const auto step = place_array_method(o)) return *step;
  if (capture_.iterators.lazy(o)) return place_lazy(o);
  if (auto it = capture_.numbers.deferred().find(o.ptr());
      it != capture_.numbers.deferred().end() && it->second.function)
    return it->second.taken_apart && PyDict_CheckExact(it->second.real.ptr())
               ? place(it->second.real)
               : place_call(o, it->second.function, it->second.parts);
  const SourceId own = may_be_another(o.ptr()) ? own_place(o) : SourceId();
  if (k && k->source.valid()) return place_existing(o, k->source);
  if (own.valid() && is_constant(o.ptr())) return place_existing(o, own);
  if (auto it = capture_.heap.shadowed().find(o.ptr()); it != capture_.heap.shadowed().end()) {
    // An iterator or view would be made before the writes are done.
    if (capture_.heap.tracked(it->second)->writes) refuse(it->second);
    return place(it->second);
  }
  if (auto it = owner_.find(o.ptr()); it != owner_.end())
    return add(o, {Kind::DictOf, 0, {}, {it->second}});
  return place_made(o);
}

// What depends on data is computed by the graph, all else by the guards.
uint32_t RebuildPlan::place_size(py::handle o) {
  if (is_symbolic_bool(o)) {
    const py::object number =
        symbolic_int(as_number(condition_of(o)), capture_.graphs.recorder().facts());
    kept_.push_back(number);
    return place_call(o, type_object(&PyBool_Type), {number});
  }
  const sym::Expr e = expr_of(o);
  if (e.is_const()) return add(o, {Kind::Constant, 0, py::int_(e.value()), {}});
  if (sym::origin_of(e) != sym::Origin::Data)
    return add(o, {Kind::Size, capture_.sizes.wanted(o), {}, {}});
  output_numbers.emplace(outputs.size(), e);
  outputs.push_back(e);
  output_tensors.emplace_back();
  return add(o, {Kind::Output, static_cast<uint32_t>(outputs.size() - 1), {}, {}});
}

// Of a value that came with the call: where a call has its own object for it.
SourceId RebuildPlan::own_place(py::handle o) {
  if (!own_) {
    own_.emplace();
    for (const auto& [source, found] : capture_.heap.by_source()) {
      if (!may_be_another(found.ptr())) continue;
      auto [it, is_new] = own_->emplace(found.ptr(), source);
      if (!is_new && source.index < it->second.index) it->second = source;
    }
  }
  auto it = own_->find(o.ptr());
  if (it == own_->end()) return {};
  capture_.heap.guard_one_object(o);
  return it->second;
}

uint32_t RebuildPlan::place_tensor(py::handle o) {
  Tracked& k = *capture_.heap.tracked(o);
  capture_.graphs.refuse_wrapped(THPVariable_Unpack(o.ptr()));
  capture_.graphs.refuse_made_leaf(o);
  if (k.source.valid()) return place_existing(o, k.source);
  if (const auto spent = capture_.graphs.spent_result(borrow(o))) {
    place_output(spent->left);
    Arguments parts{spent->left};
    parts.insert(parts.end(), spent->inputs.begin(), spent->inputs.end());
    return place_call(o, spent_function(), parts);
  }
  if (const auto hidden = capture_.graphs.hidden_result(borrow(o))) {
    place_output(hidden->front());
    return place_call(o, hidden_function(), *hidden);
  }
  return place_output(o);
}

// What the graph computes, as it is.
uint32_t RebuildPlan::place_output(py::handle o) {
  const bool of_inference = capture_.inference.is_result(THPVariable_Unpack(o.ptr()));
  capture_.graphs.lift(borrow(o));  // none of a graph inside of this one
  outputs.push_back(*capture_.heap.tracked(o)->value);
  output_tensors.push_back(THPVariable_Unpack(o.ptr()));
  uint32_t made = add(o, {Kind::Output, static_cast<uint32_t>(outputs.size() - 1), {}, {}});
  if (of_inference) made = add(o, {Kind::Call, 0, inference_function(), {made}});
  const py::object type = py::type::of(o);
  if (THPVariable_CheckExact(o.ptr()) || !Wrappers::is_derived(type)) return made;
  return add(o, {Kind::Call, 0, function_object<with_class>("with_class"), {made, place(type)}});
}

uint32_t RebuildPlan::place_existing(py::handle o, SourceId source) {
  if (capture_.heap.sources[source].kind == SourceKind::Pinned)
    return add(o, {Kind::Constant, 0, capture_.heap.sources[source].key, {}});
  return add(o, {Kind::Fetched, capture_.graphs.fetched(source), {}, {}});
}

// An object that the captured code has made, or one that is the same for every call.
uint32_t RebuildPlan::place_made(py::handle o) {
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  if (PyTuple_Check(p)) return place_tuple(o);
  if (PyList_CheckExact(p)) return add_unfilled(o, {Kind::List, 0, {}, {}});
  if (PyDict_CheckExact(p)) return add_unfilled(o, {Kind::Dict, 0, {}, {}});
  if (PySet_CheckExact(p)) return add_unfilled(o, {Kind::Set, 0, {}, {}});
  if (auto step = place_special(o)) return *step;
  if (PyList_Check(p) || PyDict_Check(p) || PySet_Check(p)) return place_instance(o);
  if (!made_here(o) || is_one_for_all(o) || PyCode_Check(p) || PyRange_Check(p)) return constant(o);
  if ((type_traits(type) & native::Scalar) != 0) return constant(o);  // of NumPy
  if (is_derived_value(p)) return place_derived_value(o);
  if (builtin_base(type) != &PyBaseObject_Type && !is_namespace(type)) refuse(o);
  return place_instance(o);
}

// Of a class derived from int, float, complex, str or bytes: by __new__ of that.
uint32_t RebuildPlan::place_derived_value(py::handle o) {
  const py::object value = plain_value(o.ptr());
  const py::object make = py::type::of(value).attr("__new__");
  kept_.push_back(value);
  const py::object attributes = attributes_of(o);
  if (attributes && PyDict_GET_SIZE(attributes.ptr()) > 0) refuse(o);
  return fill_later(o, place_call(o, make, {py::type::of(o), value}));
}

uint32_t RebuildPlan::place_tuple(py::handle o) {
  if (capture_.heap.is_fixed(o.ptr())) return constant(o);  // of the code
  if (py::hasattr(py::type::of(o), "n_sequence_fields")) {  // a structseq
    std::vector<py::object> parts{py::tuple(plain_list(o))};
    if (const py::dict hidden = hidden_fields(o); !hidden.empty()) parts.push_back(hidden);
    return place_call(o, py::type::of(o), parts);
  }
  if (capture_.classes.made_again(py::type::of(o)))
    return place_call(o, type_object(&PyTuple_Type).attr("__new__"),
                      {py::type::of(o), py::tuple(plain_list(o))});
  return add_instance(o, {Kind::Tuple, 0, py::type::of(o), place_all(plain_list(o))});
}

uint32_t RebuildPlan::place_instance(py::handle o) {
  return add_instance(o, {Kind::Instance, 0, py::type::of(o), {}});
}

void RebuildPlan::fill_all() {
  while (!unfilled_.empty()) {
    auto [o, step] = std::move(unfilled_.back());
    unfilled_.pop_back();
    fill(o, step);
  }
}

void RebuildPlan::write(Write kind, uint32_t target, std::vector<uint32_t> parts) {
  if (parts.empty()) return;
  bool late = rebuild.steps[target].late || kind == Write::State;
  for (uint32_t part : parts) late |= rebuild.steps[part].late;
  (late ? rebuild.late : rebuild.fills).push_back({kind, target, std::move(parts)});
}

void RebuildPlan::fill(py::handle o, uint32_t step) {
  PyObject* p = o.ptr();
  if (PyList_Check(p)) {
    write(Write::ListExtend, step, place_all(plain_list(o)));
  } else if (PyDict_Check(p)) {
    fill_dict(step, o);
  } else if (PyAnySet_Check(p)) {
    write(Write::SetAdd, step, place_all(items_of_set(o)));
  } else if (PyCell_Check(p)) {
    if (PyCell_GET(p) != nullptr) write(Write::CellSet, step, {place(PyCell_GET(p))});
  } else if (is_deque(o)) {
    write(Write::Extend, step, place_all(plain_list(o)));
  } else if (PyFunction_Check(p)) {
    return fill_function(o, step);
  }
  if (py::object attributes = attributes_of(o)) {
    if (PyDict_GET_SIZE(attributes.ptr()) > 0) fill_dict(place(attributes), attributes);
  }
  if (is_changeable_class(Py_TYPE(p))) fill_slots(o, step);
}

void RebuildPlan::fill_dict(uint32_t target, py::handle dict) {
  std::vector<uint32_t> parts;
  py::object items = borrow(dict);
  if (PyODict_Check(dict.ptr())) {
    items = py::dict();
    for (py::handle key : plain_list(dict)) items[key] = held_at(dict, key);
  }
  for (auto [key, value] : py::reinterpret_borrow<py::dict>(items)) {
    require_plain_hash(key);
    parts.push_back(place(key));
    parts.push_back(place(value));
  }
  for (uint32_t part : parts)
    if (rebuild.steps[part].late && iterated_.contains(target)) refuse(dict);
  write(Write::DictSet, target, std::move(parts));
}

// The __dict__ of an instance of a class written in Python, or null.
py::object RebuildPlan::attributes_of(py::handle o) {
  const bool has = is_changeable_class(Py_TYPE(o.ptr())) || is_namespace(Py_TYPE(o.ptr())) ||
                   PyExceptionInstance_Check(o.ptr());
  if (!has || _PyObject_GetDictPtr(o.ptr()) == nullptr) return {};
  return steal(PyObject_GenericGetDict(o.ptr(), nullptr));
}

uint32_t RebuildPlan::add_instance(py::handle o, RebuildStep step) {
  const uint32_t at = add_unfilled(o, std::move(step));
  if (py::object dict = attributes_of(o)) {
    if (step_of_.contains(dict.ptr())) refuse(o);  // met before its owner
    owner_[dict.ptr()] = at;
    kept_.push_back(dict);
  }
  return at;
}

// Keys are hashed while objects are half filled, and no Python code may run then.
void RebuildPlan::require_plain_hash(py::handle key) {
  PyObject* p = key.ptr();
  if (PyTuple_Check(p)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); i++) require_plain_hash(PyTuple_GET_ITEM(p, i));
    return;
  }
  if (is_tensor_object(p)) return;  // by its address
  if (is_one_for_all(key)) return;
  PyObject* hash = _PyType_Lookup(Py_TYPE(p), py::str("__hash__").ptr());
  if (hash != nullptr && PyFunction_Check(hash)) refuse(key);
}

// -------------------------------------------------------------------------------- what was written

void RebuildPlan::add_effect(RebuildWrite write) {
  rebuild.effects.push_back(std::move(write));
  fill_all();
}

// Of each object that was there before its last state, in the order of the first writes.
void RebuildPlan::add_effects() {
  // First, before anything that they go over is written to.
  for (const py::object& o : capture_.effects.all_written())
    if (const Writes& w = capture_.effects.writes_of(o); w.advanced != 0 && !w.driven)
      add_effect({Write::Advance, place(o), {}, w.advanced});
  std::vector<py::object> last;
  std::vector<py::object> made;  // tensors; their attributes matter where they leave
  for (const py::object& o : capture_.effects.all_written())
    if (Calls::is_state_of_warnings(o))
      last.push_back(o);
    else if (capture_.heap.is_tensor(o) && !capture_.heap.tracked(o)->source.valid())
      made.push_back(o);
    else
      add_effects_on(o);
  const auto& behind = capture_.calls.behind();
  const auto comes = [&](const Arguments& args) {
    if (args.size() < 3) return true;
    const Graphs& graphs = capture_.graphs;
    return !graphs.is_removed_hook(args[2]) &&
           (!graphs.is_done_hook(args[2]) || makes(args[0]) || makes(args[2]));
  };
  // First, all that gets a hooked tensor besides.
  for (const auto& [callable, args] : behind)
    if (comes(args)) place_all(args.size() < 3 ? tuple_of(args) : tuple_of({args[1]}));
  fill_all();
  for (const auto& [callable, args] : behind) {
    if (args.size() == 3 && capture_.heap.is_tensor(args[0]) && !makes(args[0]))
      only_hooked.insert(THPVariable_Unpack(args[0].ptr()).unsafeGetTensorImpl());
    if (comes(args)) add_effect({Write::Call, constant(callable), place_all(tuple_of(args))});
  }
  while (true) {
    const auto leaves = std::ranges::find_if(made, [&](const py::object& o) { return makes(o); });
    if (leaves == made.end()) break;
    const py::object o = *leaves;
    made.erase(leaves);
    add_effects_on(o);
  }
  for (const py::object& o : last) add_effects_on(o);
}

void RebuildPlan::add_effects_on(const py::object& o) {
  PyObject* p = o.ptr();
  const Writes& w = capture_.effects.writes_of(o);
  if (w.advanced != 0) return;
  if (PyDict_Check(p)) {
    add_dict_effects(o);
  } else if (PyList_Check(p)) {
    add_list_effects(o);
  } else if (is_deque(o)) {
    add_effect({Write::DequeAssign, place(o), place_all(capture_.heap.contents(o))});
  } else if (PySet_Check(p)) {
    for (py::handle put : w.done) {
      auto [change, item] = put.cast<std::pair<int, py::object>>();
      const Write kind = change == kPut      ? Write::SetAdd
                         : change == kPopped ? Write::SetPop
                                             : Write::SetDiscard;
      add_effect({kind, place(o), {place(item)}});
    }
  } else if (PyCell_Check(p)) {
    for (auto [name, value] : w.items)
      add_effect({Write::CellSet, place(o),
                  value.is(missing()) ? std::vector<uint32_t>() : std::vector{place(value)}});
  } else {
    for (auto [name, value] : w.items)
      if (value.is(missing()))
        add_effect({Write::AttributeDelete, place(o), {place(name)}});
      else
        add_effect({Write::AttributeSet, place(o), {place(name), place(value)}});
  }
}

void RebuildPlan::add_dict_effects(py::handle dict) {
  const Tracked& k = *capture_.heap.tracked(dict);
  const Writes& w = *k.writes;
  const uint32_t target = place(dict);
  if (w.cleared) add_effect({Write::DictClear, target, {}});
  auto before = [&](py::handle key) {
    PyObject* found = w.cleared ? nullptr : PyDict_GetItemWithError(dict.ptr(), key.ptr());
    return borrow(found);
  };
  for (auto [key, value] : w.items)
    if ((value.is(missing()) || w.moved.contains(key)) && before(key))
      add_effect({Write::DictDelete, target, {place(key)}});
  for (auto [key, value] : w.items) {
    if (value.is(missing())) continue;
    // What was read and is the same again, is guarded to be there.
    if (before(key) && !w.moved.contains(key)) {
      auto it = capture_.heap.by_source().find(capture_.heap.sources.dict_item(k.source, key));
      if (it != capture_.heap.by_source().end() && it->second.is(value)) continue;
    }
    require_plain_hash(key);
    add_effect({Write::DictSet, target, {place(key), place(value)}});
  }
}

// The items between those at both ends that stayed.
void RebuildPlan::add_list_effects(py::handle list) {
  const Tracked& k = *capture_.heap.tracked(list);
  const Writes& w = *k.writes;
  const uint32_t target = place(list);
  if (!w.before) {
    add_effect({Write::ListExtend, target, place_all(w.added)});
    return;
  }
  const py::list now(k.shadow);
  size_t from = 0, old_end = py::len(w.before), end = now.size();
  const py::tuple before(w.before);
  auto same = [&](size_t i, size_t j) {
    return PyTuple_GET_ITEM(before.ptr(), i) == PyList_GET_ITEM(now.ptr(), j);
  };
  while (from < old_end && from < end && same(from, from)) from++;
  while (old_end > from && end > from && same(old_end - 1, end - 1)) old_end--, end--;
  if (!w.cleared && from == old_end && from == end) return;
  const auto first = static_cast<Py_ssize_t>(from);
  add_effect({Write::ListSplice, target,
              place_all(now[py::slice(first, static_cast<Py_ssize_t>(end), 1)]), first,
              w.cleared ? PY_SSIZE_T_MAX : static_cast<Py_ssize_t>(old_end)});
}

// ---------------------------------------------------------------------------- the end of a capture

uint32_t Graphs::fetched(SourceId source) {
  auto [it, is_new] = fetched_.try_emplace(source, static_cast<uint32_t>(fetched_.size()));
  return it->second;
}

void Graphs::finish(std::span<const py::object> values) {
  frames().refuse_closed_end();
  inference().refuse_writes();
  end_modes();
  change_real_leaves();
  keep_retained();
  keep_data();
  detach_real_inputs();
  spend_written_inputs();
  RebuildPlan plan(capture_);
  effects().guard_distinct();
  heap().guard_keys_apart();
  for (const py::object& value : values) plan.add_root(value);
  plan.add_effects();
  calls().check_cached([&](py::handle o) { return plan.makes(o); });
  for (const auto& l : iterators().all())  // nothing would close it
    if (iterators().is_open_generator(*l) && !plan.makes(l->stand_in))
      throw Break(BreakId::result_kind, "a generator that stands in a try or with");
  for (const Hook& h : hooks_)
    if (plan.makes(h.handle)) throw HooksLate();
  for (const py::object& id : hook_ids_)
    if (plan.makes(id)) throw HooksLate();
  refuse_custom_functions(plan.output_tensors);
  refuse_late_hooks(plan.output_tensors);
  if (!frames().left.empty() || !calls().error_on_break.value_or(fullgraph)) {
    refuse_views(plan.output_tensors);
    refuse_extremes(plan.output_tensors);
    refuse_led_to(plan.output_tensors);
  }
  std::vector<at::Tensor> seen = plan.output_tensors;
  std::erase_if(seen, [&](const at::Tensor& t) {
    return plan.only_hooked.contains(t.unsafeGetTensorImpl());
  });
  refuse_copies(seen);
  restore_leaves(plan.output_tensors);
  read_data_late(plan.output_tensors);
  numbers().make_guards();
  input_count = fetch.size();
  fetch.resize(input_count + fetched_.size());
  for (const auto& [source, index] : fetched_) fetch[input_count + index] = source;
  const auto in_front = static_cast<uint32_t>(input_count);
  for (RebuildStep& s : plan.rebuild.steps) {
    if (s.kind == RebuildStep::Kind::Fetched) s.index += in_front;
    if (s.kind != RebuildStep::Kind::Size) continue;
    s.kind = RebuildStep::Kind::Fetched;
    s.index += static_cast<uint32_t>(fetch.size());
  }
  const auto sizes_from = static_cast<uint32_t>(fetch.size());
  for (NumberInput& n : number_inputs) n.number.shift(in_front, sizes_from);
  sizes().shift_computed(in_front, sizes_from);
  for (NumberGuard& g : numbers().guards) g.question.shift(in_front, sizes_from);
  rebuild = std::move(plan.rebuild);
  ir->graph.result = ir::Tuple{std::move(plan.outputs)};
  drop_unused_items(*ir);
  ir->graph.compact();
  ir->seal();
  for (const at::Tensor& t : spent_inputs_) torch::autograd::impl::set_gradient_edge(t, {});
  finish_recording(plan.output_tensors, plan.output_numbers);
}

// Parts of results that nobody took.
void Graphs::drop_unused_items(TorchIr& ir) {
  std::vector<uint32_t> uses = ir.graph.use_counts();
  const auto& order = ir.graph.order();
  for (size_t i = order.size(); i-- > 0;) {
    ir::Node& n = ir.graph.node(order[i]);
    if (n.dead || n.target != "operator.getitem" || !n.args[0].is_value()) continue;
    if (uses[n.outputs[0].index] > 0 || ir.graph.value(n.args[0].value()).type.is_tensor())
      continue;
    ir.graph.kill(n.id);
    uses[n.args[0].value().index]--;
  }
}

}  // namespace oxy::python
