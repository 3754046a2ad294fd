// torch.cond and torch.while_loop of tensors in the graph: what may run is captured into graphs of
// its own, the regions of one node. Where that cannot be (a branch writes to something, breaks,
// gives another kind of result than the other), the capture starts again and leaves this choice to
// a graph break.
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/capture/plan_rebuild.h"
#include "python/transform_levels.h"
#include "support/check.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

constexpr size_t kMostObjects = 10000;

[[noreturn]] void refuse(const std::string& why) { throw Break(BreakId::control_flow, why); }

// Where among the operands the i-th input of a region stands; SIZE_MAX: nowhere.
size_t place_of(const std::vector<py::object>& given, size_t i, size_t carried,
                const std::vector<py::object>& operands) {
  if (i < carried) return i;
  for (size_t k = carried; k < operands.size(); ++k)
    if (operands[k].is(given[i])) return k;
  return SIZE_MAX;
}

// What a region takes and no other one before.
void add_operands(const std::vector<py::object>& given, size_t carried,
                  std::vector<py::object>& operands) {
  if (operands.empty())
    operands.assign(given.begin(), given.begin() + static_cast<ptrdiff_t>(carried));
  for (size_t i = carried; i < given.size(); ++i)
    if (place_of(given, i, carried, operands) == SIZE_MAX) operands.push_back(given[i]);
}

// The graph, whose inputs are for `given`, as one whose inputs are for all operands; so the
// gradients of a joint one.
void take_inputs(ir::Graph& graph, const std::vector<py::object>& given, size_t carried,
                 const std::vector<py::object>& operands) {
  const std::vector<ir::ValueId> before = graph.inputs();
  const bool joint = graph.stage == ir::Stage::Joint;
  const size_t results = graph.outputs.size() - (joint ? given.size() : 0);
  std::vector<ir::OutputSpec> gradients(joint ? operands.size() : 0,
                                        {.kind = ir::OutputSpec::Kind::None});
  std::vector<ir::ValueId> inputs(operands.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const size_t place = place_of(given, i, carried, operands);
    inputs[place] = before[i];
    if (joint) gradients[place] = graph.outputs[results + i];
  }
  graph.outputs.resize(results);
  graph.outputs.insert(graph.outputs.end(), gradients.begin(), gradients.end());
  for (size_t k = 0; k < operands.size(); ++k) {
    if (inputs[k].valid()) continue;
    const at::Tensor& t = THPVariable_Unpack(operands[k].ptr());
    inputs[k] = graph.add_input(cat("unused_", k), ir::Type::of(bridge::type_of(t)));
  }
  inputs.insert(inputs.end(), before.begin() + static_cast<ptrdiff_t>(given.size()), before.end());
  graph.arrange_inputs(std::move(inputs));
}

}  // namespace

TorchIr& Graphs::ir_now() { return inner_ ? *inner_->ir : *ir; }
bridge::Recorder& Graphs::recorder_now() { return inner_ ? inner_->recorder : *recorder_; }

// A tensor of a graph around the current one, as an input of the current one.
py::object Graphs::lift(const py::object& tensor) {
  const size_t of = heap().tracked(tensor)->graph;
  if (of == (inner_ ? inner_->number : 0)) return tensor;
  if (!inner_)
    throw LeftAlone{inner_steps_[of - 1], "a tensor of a branch or loop is used behind it"};
  if (auto it = inner_->lifted.find(tensor.ptr()); it != inner_->lifted.end()) return it->second;
  return inner_->lifted[tensor.ptr()] = add_inner_input(lift_around(tensor));
}

// The same for the graph around the current one.
py::object Graphs::lift_around(const py::object& tensor) {
  const auto back = c10::make_scope_exit([this, graph = inner_] { inner_ = graph; });
  inner_ = inner_->around;
  return lift(tensor);
}

py::object Graphs::add_inner_input(const py::object& outside) {
  const at::Tensor& t = THPVariable_Unpack(outside.ptr());
  if (bridge::marks_of(t).any()) refuse("a lazily conjugated or negated tensor");
  const std::string name = cat("operand_", inner_->given.size());
  py::object fake = steal(THPVariable_Wrap(inner_->recorder.add_operand(t, name)));
  Tracked k;
  k.value = inner_->ir->graph.add_input(name, ir::Type::of(bridge::type_of(t)));
  k.graph = inner_->number;
  heap().entry(fake.ptr()) = std::move(k);
  heap().hold(fake);
  inner_->given.push_back(outside);
  return fake;
}

// An argument with its tensors lifted.
py::object Graphs::lifted(const py::object& o) {
  if (heap().is_tensor(o)) return lift(o);
  return with_items(o, [this](const py::object& item) { return lifted(item); });
}

// What lies in nested tuples, lists and dicts, a tensor each; what they are goes to `form`.
void Graphs::tensors_in(const py::object& tree, std::vector<py::object>& leaves,
                        std::string& form) {
  PyObject* p = tree.ptr();
  if (heap().is_tensor(tree)) {
    leaves.push_back(tree);
    form += 't';
  } else if (p == Py_None) {
    form += 'n';
  } else if (PyTuple_CheckExact(p) || PyList_CheckExact(p)) {
    form += PyTuple_CheckExact(p) ? '(' : '[';
    for (py::handle item : heap().contents(tree)) tensors_in(borrow(item), leaves, form);
    form += ']';
  } else if (PyDict_CheckExact(p)) {
    form += '{';
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(heap().contents(tree))) {
      if (!PyUnicode_CheckExact(key.ptr())) refuse("a dict with keys that are no strings");
      cat_to(form, key.cast<std::string>().size(), ':', key.cast<std::string>());
      tensors_in(borrow(value), leaves, form);
    }
    form += '}';
  } else {
    refuse(cat("a branch or loop with a ", Py_TYPE(p)->tp_name));
  }
}

py::object Graphs::with_tensors(const py::object& tree, const py::list& leaves, size_t& next) {
  PyObject* p = tree.ptr();
  if (heap().is_tensor(tree)) return leaves[next++];
  if (p == Py_None) return tree;
  if (PyDict_CheckExact(p)) {
    py::dict out;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(heap().contents(tree)))
      out[key] = with_tensors(borrow(value), leaves, next);
    return std::move(out);
  }
  py::list items;
  for (py::handle item : heap().contents(tree))
    items.append(with_tensors(borrow(item), leaves, next));
  if (PyList_Check(p)) return std::move(items);
  return py::tuple(items);
}

// What code can reach and change that the capture has made itself, as it is now: changes of what
// was there before are counted (`writes_`).
Graphs::Snapshot Graphs::snapshot(const Arguments& roots, bool written) {
  Snapshot out;
  std::vector<py::object> open(roots.begin(), roots.end());
  if (written)
    for (const py::object& o : effects().all_written()) {
      Tracked* k = heap().tracked(o);
      if (k == nullptr || !k->writes) continue;
      open.push_back(k->writes->items);
      if (k->shadow) open.push_back(k->shadow);
    }
  while (!open.empty()) {
    const py::object o = open.back();
    open.pop_back();
    PyObject* p = o.ptr();
    if (out.contains(p) || heap().is_tensor(o) || is_constant(p) || PyModule_Check(p)) continue;
    if (heap().exists(o) && !PyFunction_Check(p) && !PyMethod_Check(p)) continue;
    std::vector<py::object> held;
    auto add = [&](PyObject* x) {
      if (x != nullptr) held.push_back(borrow(x));
    };
    if (PyFunction_Check(p)) {
      auto* f = as_function(p);
      for (PyObject* part : {f->func_closure, f->func_defaults, f->func_kwdefaults}) add(part);
    } else if (PyMethod_Check(p)) {
      add(PyMethod_GET_SELF(p));
      add(PyMethod_GET_FUNCTION(p));
    } else if (PyCell_Check(p)) {
      add(PyCell_GET(p));
    } else if (PyTuple_Check(p) || PyList_Check(p)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++)
        add(PySequence_Fast_GET_ITEM(p, i));
    } else if (PyDict_Check(p)) {
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(p, &at, &key, &value);) add(key), add(value);
    } else if (LazyIterator* l = iterators().lazy(o)) {
      out[p] = {
          o,
          {py::make_tuple(l->taken, l->next, l->started, l->done, l->frame ? l->frame->next : 0)}};
      continue;
    } else if (PyAnySet_Check(p) || is_deque(o)) {
      for (py::handle item : o) add(item.ptr());
    } else if (PyObject** dict = _PyObject_GetDictPtr(p); dict != nullptr || !PyType_Check(p)) {
      for (py::handle x : py::module_::import("gc").attr("get_referents")(o))
        if (!PyType_Check(x.ptr()) || classes().is_made_class(x)) add(x.ptr());
      if (PyIter_Check(p) && !is_changeable_class(Py_TYPE(p))) {
        const Py_ssize_t left = PyObject_LengthHint(p, 0);
        check(left < 0 ? -1 : 0);
        held.emplace_back(py::int_(left));
      }
    }
    for (const py::object& x : held) open.push_back(x);
    out.emplace(p, std::pair(o, std::move(held)));
    if (out.size() > kMostObjects) refuse("code that can reach too many objects");
  }
  return out;
}

bool Graphs::is_unchanged(const Snapshot& before, const Snapshot& after) {
  for (const auto& [p, was] : before) {
    auto it = after.find(p);
    // What held it has changed, or has been met since and exists: writes to that are counted.
    if (it == after.end()) continue;
    const auto& now = it->second.second;
    if (iterators().lazy(was.first)) {
      if (!now[0].equal(was.second[0])) return false;
      continue;
    }
    auto same = [](const py::object& a, const py::object& b) {
      return a.is(b) || (PyLong_CheckExact(a.ptr()) && PyLong_CheckExact(b.ptr()) && a.equal(b));
    };
    if (!std::ranges::equal(now, was.second, same)) return false;
  }
  return true;
}

// The call `function(*args)` as a graph of its own. `fresh`: the tensors of `args` are its first
// inputs, each another one at each call.
Graphs::Captured Graphs::capture_inner(const py::object& function, Arguments args, bool fresh) {
  Captured out;
  inner_steps_.push_back(inner_ ? inner_steps_[inner_->number - 1] : frames().stack().back()->step);
  InnerGraph graph(inner_steps_.size(), inner_, recorder_now());
  const TorchModes modes;
  const auto back = c10::make_scope_exit([this, inner = inner_, modes = graph_modes_,
                                          autocasts = std::exchange(autocasts_, {}),
                                          stack_ids = std::exchange(stack_ids_, {}),
                                          casts_end = std::exchange(casts_end_, false)]() mutable {
    inner_ = inner;
    graph_modes_ = modes;
    autocasts_ = std::move(autocasts);
    stack_ids_ = std::move(stack_ids);
    casts_end_ = casts_end;
  });
  graph_modes_ = modes;  // the graph around it comes to these in front of the node
  inner_ = &graph;
  if (fresh) {
    std::vector<py::object> leaves;
    std::string form;
    const py::object tree = tuple_of(args);
    tensors_in(tree, leaves, form);
    py::list inputs;
    for (const py::object& leaf : leaves) inputs.append(add_inner_input(lift_around(leaf)));
    size_t next = 0;
    args = items_of_call(with_tensors(tree, inputs, next));
  }
  Arguments reached = args;
  reached.push_back(function);
  const Snapshot before = snapshot(reached);
  const size_t writes = effects().count(), behind = calls().behind().size();
  frames().direct = false;
  out.result = calls().call(function, args);
  if (writes != effects().count() || behind != calls().behind().size() ||
      !is_unchanged(before, snapshot(reached)))
    refuse("a branch or loop that changes something outside of it");
  if (!(TorchModes() == modes)) refuse("a branch or loop that leaves another mode of torch behind");
  std::vector<py::object> leaves;
  tensors_in(out.result, leaves, out.form);
  finish_inner(leaves, !fresh && modes.grad, out);
  bring_graph_to(modes);
  out.ir = graph.ir;
  out.recorded.attributes = graph.recorder.attributes();
  out.given = std::move(graph.given);
  return out;
}

// Ends the current graph with these results, copies of those that share memory with an input or
// with each other. `gradients`: they may require gradients.
void Graphs::finish_inner(const std::vector<py::object>& leaves, bool gradients, Captured& out) {
  InnerGraph& graph = *inner_;
  ir::Tuple values;
  std::vector<py::object> results;
  for (const py::object& leaf : leaves) results.push_back(lift(leaf));
  std::vector<at::Tensor> tensors, taken = graph.recorder.sources();
  for (py::object& own : results) {
    const at::Tensor& t = THPVariable_Unpack(own.ptr());
    if (bridge::marks_of(t).any())
      refuse("a branch or loop with a lazily conjugated or negated result");
    auto shares = [&](const at::Tensor& other) { return other.is_alias_of(t); };
    const bool copied = std::ranges::any_of(taken, shares) || !t.is_non_overlapping_and_dense();
    if (copied && gives_itself_) refuse("a branch that gives an operand or a view back");
    if (copied) own = calls().call_method(own, "clone", {}, {});
    values.items.emplace_back(*heap().tracked(own)->value);
    tensors.push_back(THPVariable_Unpack(own.ptr()));
    taken.push_back(tensors.back());
    out.results.push_back(bridge::type_of(tensors.back()));
  }
  graph.ir->graph.result = std::move(values);
  drop_unused_items(*graph.ir);
  graph.ir->graph.compact();
  out.recorded.graph =
      graph.recorder.finish(tensors, {}, gradients ? &out.recorded.gradients : nullptr);
}

Arguments Graphs::items_of_call(const py::object& sequence) {
  Arguments out;
  for (py::handle item : heap().contents(sequence)) out.push_back(borrow(item));
  return out;
}

// One node with these regions, and the result in a tuple. The first `carried` inputs of each region
// are the same operands.
py::object Graphs::record_regions(const char* op, const Arguments& front, size_t carried,
                                  std::array<Captured, 2> regions, const py::object& form) {
  Arguments operands;
  for (const Captured& c : regions) add_operands(c.given, carried, operands);
  bring_graph_to(TorchModes());
  Arguments args = front;
  args.insert(args.end(), operands.begin(), operands.end());
  std::vector<ir::Arg> values;
  std::vector<at::Tensor> tensors;
  for (py::object& o : args) {
    o = lift(o);
    values.emplace_back(heap().tracked(o)->value.value());
    tensors.push_back(THPVariable_Unpack(o.ptr()));
  }
  ir::Node& node =
      ir_now().graph.add_call(ir::NodeKind::Region, op, std::move(values), {ir::Type::opaque()});
  const ir::NodeId id = node.id;
  std::vector<bridge::RecordedRegion> recorded;
  for (Captured& c : regions) {
    take_inputs(c.ir->graph, c.given, carried, operands);
    take_inputs(c.recorded.graph, c.given, carried, operands);
    node.regions.push_back(std::move(c.ir->graph));
    ir_now().regions_of(id).push_back(std::move(*c.ir));
    recorded.push_back(std::move(c.recorded));
  }
  const StackIds stack = stack_ids(frames().user_stack());
  node.stack = stack.torch;
  recorder_now().set_position(stack.aten, id);
  py::list made;
  {
    const bridge::Recorder::Entered entered(recorder_now());
    for (const at::Tensor& t : recorder_now().add_regions(op, tensors, std::move(recorded)))
      made.append(steal(THPVariable_Wrap(t)));
  }
  note_results(py::tuple(made), ir_now().graph.node(id).outputs[0]);
  size_t next = 0;
  return py::make_tuple(with_tensors(form, made, next));
}

// A symbolic truth as a tensor; a tensor is one.
py::object Graphs::tensor_of_truth(const py::object& truth) {
  if (!is_symbolic_bool(truth)) return truth;
  const py::object number = symbolic_int(as_number(condition_of(truth)), recorder_->facts());
  const py::object filled =
      record(ir::NodeKind::CallFunction, "torch.full", member_of<"torch", "full">(),
             {py::tuple(), number}, {{py::str("dtype"), member_of<"torch", "int64">()}});
  return calls().call_method(filled, "ne", {py::int_(0)}, {});
}

// (pred, true_fn, false_fn, operands) -> the result in a tuple.
py::object Graphs::choose_in_graph(const Arguments& args) {
  const Arguments operands = items_of_call(args[3]);
  // torch calls the branch that a bool chooses, whose results are what it gives.
  const bool before = std::exchange(gives_itself_, is_symbolic_bool(args[0]));
  const auto back = c10::make_scope_exit([this, before] { gives_itself_ = before; });
  Captured yes = capture_inner(args[1], operands, false);
  Captured no = capture_inner(args[2], operands, false);
  if (yes.form != no.form) refuse("branches whose results differ in their form");
  if (yes.results.empty()) refuse("branches without tensors as results");
  const py::object form = yes.result;
  return record_regions("cond", {tensor_of_truth(args[0])}, 0, {std::move(yes), std::move(no)},
                        form);
}

// (cond_fn, body_fn, carried) -> the result in a tuple.
py::object Graphs::repeat_in_graph(const Arguments& args) {
  const Arguments carried = items_of_call(args[2]);
  std::vector<py::object> leaves;
  std::string form;
  for (const py::object& o : carried) tensors_in(o, leaves, form);
  if (leaves.empty()) refuse("a loop without tensors");
  Captured condition = capture_inner(args[0], carried, true);
  if (condition.form != "t" || !condition.results[0].sizes.empty() ||
      condition.results[0].dtype != ir::DType::B8)
    refuse("a condition that is no boolean tensor without dimensions");
  Captured body = capture_inner(args[1], carried, true);
  if (body.form != cat('(', form, ']')) refuse("a loop whose results have another form");
  for (const py::object& o : leaves)
    if (!bridge::type_of(THPVariable_Unpack(o.ptr())).is_dense())
      refuse("a loop that carries a tensor with gaps");
  const py::object result = body.result;
  return record_regions("while_loop", {}, leaves.size(), {std::move(condition), std::move(body)},
                        result);
}

// (partial, full, front, tiles) -> the node's results, for `oxyfuel.attention`.
py::object Graphs::meet_blocks_in_graph(const Arguments& args) {
  const Arguments front = items_of_call(args[2]), tiles = items_of_call(args[3]);
  Captured partial = capture_inner(args[0], tiles, true),
           full = capture_inner(args[1], tiles, true);
  if (partial.form != "(ttt]" || full.form != partial.form) refuse("blocks with another state");
  const py::object form = full.result;
  return record_regions("block_sparse", front, tiles.size(), {std::move(partial), std::move(full)},
                        form);
}

// What oxyfuel.control_flow and oxyfuel.attention ask for: None where the choice is left to a graph
// break, or attention to the whole matrix of scores.
py::object Graphs::call_control_flow(std::string_view name, const Arguments& args) {
  inference().refuse_inside("a branch or loop");
  if (!is_transformed()) refuse_in_transform("a branch or loop");
  if (name == "choose" && !heap().is_tensor(args[0]) && !is_symbolic_bool(args[0]))
    return py::none();
  refuse_in_transform("a branch or loop that depends on a tensor");
  const size_t at = frames().stack().back()->step;
  if (auto it = left_alone.find(at); it != left_alone.end()) {
    why_left_alone = it->second;
    return py::none();
  }
  if (name == "choose" && heap().is_tensor(args[0]) && numbers().use_number(args[0]))
    return py::none();
  try {
    return name == "choose"   ? choose_in_graph(args)
           : name == "repeat" ? repeat_in_graph(args)
                              : meet_blocks_in_graph(args);
  } catch (const Break& b) {
    throw LeftAlone{at, b.what()};
  } catch (py::error_already_set& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) throw;
    throw LeftAlone{at, e.what()};
  } catch (const Unsupported& e) {
    throw LeftAlone{at, e.what()};
  } catch (const c10::Error& e) {
    throw LeftAlone{at, e.what_without_backtrace()};
  }
}

}  // namespace oxy::python
