// Reads what functionalisation has left and writes the graph's results and mutations.

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <unordered_set>

#include "ops/rewriter.h"
#include "ops/shapes.h"
#include "support/check.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/view_replay.h"

namespace oxy::bridge {
namespace {

namespace functional = at::functionalization::impl;
using ops::list_of;

ir::ValueId new_memory(ir::Graph& graph, ir::ValueId like, const ir::TensorType& type) {
  return graph
      .add_call(ir::NodeKind::CallOp, "aten.new_empty_strided.default",
                {like, list_of(type.sizes), list_of(type.strides)}, {ir::Type::of(type)})
      .outputs[0];
}

// A fresh constant must not leave the graph itself: a caller may write to what it gets.
ir::ValueId escape(ir::Graph& graph, ir::ValueId v) {
  if (graph.def(v).kind != ir::NodeKind::Attribute) return v;
  ir::Type type = graph.value(v).type;
  type.tensor.offset = 0;
  if (!type.tensor.is_dense()) throw Unsupported("an attribute of the module is returned");
  return graph.add_call(ir::NodeKind::CallOp, "aten.clone.default", {v}, {type}).outputs[0];
}

// The memory of a value that has gaps, as one row of elements: nobody sees what is in the gaps.
ir::ValueId with_gaps(ir::Graph& graph, ir::ValueId v) {
  const ir::TensorType t = graph.tensor_type(v);
  auto constant = [](ir::Expr e) { return e.is_const(); };
  if (t.may_overlap_itself() || !std::ranges::all_of(t.sizes, constant) ||
      !std::ranges::all_of(t.strides, constant) || !constant(t.offset))
    throw Unsupported("results that share sparse memory");
  ir::Expr length = t.offset + ir::Expr(1);
  for (size_t d = 0; d < t.sizes.size(); ++d)
    length = length + (t.sizes[d] - ir::Expr(1)) * t.strides[d];
  ir::TensorType row = t;
  row.sizes = {length};
  row.strides = {ir::Expr(1)};
  row.offset = 0;
  row.requires_grad = false;
  const ir::ValueId memory = new_memory(graph, v, row);
  return graph
      .add_call(ir::NodeKind::CallOp, "aten.as_strided_scatter.default",
                {memory, v, list_of(t.sizes), list_of(t.strides), t.offset}, {ir::Type::of(row)})
      .outputs[0];
}

// Where one of the results is all of the shared memory, it takes the place of the hidden output.
void promote_base(ir::Graph& graph, std::vector<at::Tensor>& roots, const at::Tensor& result,
                  size_t i, size_t visible) {
  ir::OutputSpec out = graph.outputs[i];
  if (out.kind != ir::OutputSpec::Kind::ViewOfOutput || out.index < visible || out.conj ||
      out.neg || out.detached || result.is_view())
    return;
  ir::OutputSpec base = graph.outputs[out.index];
  if (base.kind != ir::OutputSpec::Kind::Value || !same_layout(base.type, out.type) ||
      base.type.requires_grad != out.type.requires_grad || !out.type.offset.is_const(0))
    return;
  graph.outputs[i] = base;
  const uint32_t from = out.index;
  roots[i] = roots[from];
  roots.erase(roots.begin() + from);
  graph.outputs.erase(graph.outputs.begin() + from);
  for (ir::OutputSpec& o : graph.outputs) {
    if (o.kind != ir::OutputSpec::Kind::ViewOfOutput) continue;
    if (o.index == from)
      o.index = static_cast<uint32_t>(i);
    else if (o.index > from)
      --o.index;
  }
}

// By an op that gives new memory.
bool is_computed(const ir::Graph& graph, ir::ValueId v) {
  const ir::Node& n = graph.def(v);
  const ops::OpInfo* info = ops::find(n);
  return n.kind == ir::NodeKind::CallOp && info && !info->has(ops::View);
}

// First and one past the last byte that a real tensor can touch.
std::pair<size_t, size_t> bytes_touched(const at::Tensor& t) {
  if (t.numel() == 0) return {0, 0};
  const size_t item = t.element_size(), offset = static_cast<size_t>(t.storage_offset());
  return {offset * item, at::detail::computeStorageNbytes(t.sizes(), t.strides(), item, offset)};
}

// The layout that a view of a written input has in eager: the same views of the input as it came.
// The view itself was rebuilt on the written value, which has strides and an offset of its own.
ir::TensorType layout_of_view(Recording& r, const RecordedSource& input, const at::Tensor& view) {
  at::AutoDispatchSkipFunctionalize below;
  at::Tensor fake = r.another_fake(input.value);
  try {
    for (const auto& step : wrapper_of(view)->view_metas()) fake = step->forward(fake);
  } catch (const c10::Error&) {  // a reshape, which is a view only of the written value
    throw Unsupported("a view of a written input where eager has a copy");
  }
  ir::TensorType type = r.graph.tensor_type(r.value_of(fake));
  type.requires_grad = false;
  return type;
}

// The layout that an input leaves the graph with, where it is another one. The wrapper itself does
// not know its offset.
std::optional<ir::TensorType> changed_layout(Recording& r, const RecordedSource& s) {
  if (!wrapper_of(s.came_as())->has_metadata_mutation()) return std::nullopt;
  const ir::TensorType type = layout_of_view(r, s, s.came_as());
  if (same_place(type, r.graph.tensor_type(s.value))) return std::nullopt;
  return type;
}

// What autograd takes a tensor as a view of.
at::Tensor seen_by_autograd(const at::Tensor& t) { return t.is_view() ? at::Tensor(t._base()) : t; }

bool is_seen_as(const at::Tensor& a, const at::Tensor& b) {
  return seen_by_autograd(a).is_same(seen_by_autograd(b));
}

const torch::autograd::Node* history_of(const at::Tensor& t) {
  try {
    return t.grad_fn().get();
  } catch (const c10::Error&) {
    throw Unsupported("a view made under no_grad of memory that was written since");
  }
}

// Along the nodes of views.
bool leads_to_base(const at::Tensor& view) {
  const auto base = torch::autograd::impl::gradient_edge(at::Tensor(view._base())).function;
  const torch::autograd::Node* n = history_of(view);
  while (n != nullptr && n != base.get())
    n = n->num_outputs() > 0 ? n->next_edge(0).function.get() : nullptr;
  return n != nullptr;
}

// Made where gradients were not recorded. Eager's has no history, but that of what is written to
// its memory later, which it refuses.
bool is_no_grad_view(const at::Tensor& t) {
  using torch::autograd::CreationMeta;
  const auto* view = torch::autograd::impl::get_view_autograd_meta(t);
  if (view == nullptr || !view->has_bw_view()) return false;
  if (view->get_creation_meta() == CreationMeta::NO_GRAD_MODE) return true;
  // One of several that an op gave does not say of what they are.
  return view->get_creation_meta() == CreationMeta::MULTI_OUTPUT_NODE && t.requires_grad() &&
         !is_view_of_function(t) && !leads_to_base(t);
}

// Whether autograd knows a new value of it.
bool has_new_history(const RecordedSource& s) {
  return s.wrapper.requires_grad() &&
         torch::autograd::impl::gradient_edge(s.wrapper).function != s.edge.function;
}

// Every element of `was` has a place in `now`.
bool covers(const ir::TensorType& now, const ir::TensorType& was) {
  return now.is_dense() && sym::known_equal(now.numel(), was.numel()).value_or(false);
}

// In eager a view's new history is that of all views of its base.
bool shares_storage(const Recording& r, size_t input) {
  const auto* storage = storage_of(r.inputs[input].real);
  return std::ranges::count_if(r.inputs, [&](const RecordedSource& s) {
           return s.real.defined() && storage_of(s.real) == storage;
         }) > 1;
}

// `input`: it shares memory with one. What is no view may be of an op whose code runs without grad
// mode (torch.library.custom_op).
bool needs_gradient(const OpRecorder& ops, const at::Tensor& result, bool input) {
  return result.requires_grad() && !is_no_grad_view(result) && (ops.grad_mode_seen() || !input);
}

void describe_input_alias(Recording& r, ir::OutputSpec& out, const at::Tensor& t, size_t input) {
  const RecordedSource& s = r.inputs[input];
  out.index = static_cast<uint32_t>(input);
  const bool same = t.is_same(s.came_as());
  out.kind = same ? ir::OutputSpec::Kind::Input : ir::OutputSpec::Kind::ViewOfInput;
  if (!same && wrapper_of(s.came_as())->has_data_mutation()) out.type = layout_of_view(r, s, t);
}

ir::OutputSpec base_of(Recording& r, OpRecorder& ops, const at::Tensor& t) {
  auto* storage = static_cast<at::functionalization::FunctionalStorageImpl*>(
      t.storage().unsafeGetStorageImpl());
  ir::OutputSpec base;
  base.value = r.value_of(ops.with_marks(storage->base(), {}));
  base.type = r.graph.tensor_type(base.value);
  if (!base.type.is_dense() || !base.type.offset.is_const(0)) {
    base.value = with_gaps(r.graph, base.value);
    base.type = r.graph.tensor_type(base.value);
  }
  base.value = escape(r.graph, base.value);
  return base;
}

// Whether its version is that of what Tensor.data gave.
bool is_unseen(const Recording& r, const at::Tensor& t) {
  c10::VariableVersion version = torch::autograd::impl::version_counter(t);
  const auto shares_it = [&](const at::Tensor& given) {
    const uint32_t now = version.current_version(), before = given._version();
    version.bump();
    const bool out = given._version() != before;
    version.set_version(now);
    return out;
  };
  return version.enabled() && std::ranges::any_of(r.unseen, shares_it);
}

// Marks views of the memory alone, of which autograd knows a tensor of its own. `roots`: by output.
void find_detached(Recording& r, const std::vector<at::Tensor>& results,
                   const std::vector<at::Tensor>& roots) {
  const size_t count = results.size();
  std::vector<at::Tensor> known(r.graph.outputs.size());  // as what autograd knows an output
  for (size_t i = count; i < known.size(); ++i) known[i] = roots[i];
  const auto is_likely = [&](size_t i) {
    const ir::OutputSpec& out = r.graph.outputs[i];
    return results[i].is_view() || same_layout(out.type, r.graph.outputs[out.index].type);
  };
  for (const bool likely : {true, false})
    for (size_t i = 0; i < count; ++i) {
      const ir::OutputSpec& out = r.graph.outputs[i];
      if (out.kind != ir::OutputSpec::Kind::ViewOfOutput || known[out.index].defined()) continue;
      if (!likely || is_likely(i)) known[out.index] = seen_by_autograd(results[i]);
    }
  std::vector<std::vector<at::Tensor>> of_inputs(r.inputs.size()), of_outputs(known.size());
  for (size_t i = 0; i < count; ++i) {
    ir::OutputSpec& out = r.graph.outputs[i];
    if (!out.is_view()) continue;
    const bool of_input = out.kind == ir::OutputSpec::Kind::ViewOfInput;
    const at::Tensor seen = seen_by_autograd(results[i]);
    if (seen.is_same(of_input ? seen_by_autograd(r.inputs[out.index].wrapper) : known[out.index]))
      continue;
    auto& aliases = (of_input ? of_inputs : of_outputs)[out.index];
    const auto same = [&](const at::Tensor& t) { return t.is_same(seen); };
    const auto alias = std::ranges::find_if(aliases, same);
    out.detached = true;
    out.itself = same(results[i]);
    out.unseen = is_unseen(r, seen);
    out.alias = static_cast<uint32_t>(alias - aliases.begin());
    if (of_input && seen.requires_grad() && !out.itself)
      throw Unsupported("a view of a detached input that has got gradients");
    if (alias == aliases.end()) aliases.push_back(seen);
  }
}

// The tensor that autograd knows the shared memory of these results by, of which they are views;
// undefined where none of them requires gradients. `base` becomes what it is: autograd may know the
// memory in another form than the op made it in (a product of rows that linear has reshaped).
at::Tensor root_of(Recording& r, OpRecorder& ops, const std::vector<at::Tensor>& results,
                   const c10::StorageImpl* storage, ir::OutputSpec& base) {
  at::Tensor root;
  for (const at::Tensor& t : results) {
    if (!t.defined() || !t.requires_grad() || storage_of(t) != storage) continue;
    const at::Tensor of = t.is_view() ? at::Tensor(t._base()) : t;
    // A Function's view has gradients of its own, also of memory that has none.
    if (!of.requires_grad() && is_view_of_function(t)) continue;
    if (root.defined() && !root.is_same(of))
      throw Unsupported("results that share memory without autograd's knowing");
    root = of;
  }
  if (!root.defined()) return root;
  functional::sync(root);
  const ir::TensorType type = type_of(root);
  auto* w = wrapper_of(root);
  if (!w || !base.type.offset.is_const(0))
    throw Unsupported("results that share memory which autograd knows in another form");
  if (same_layout(type, base.type) && r.value_of(w->value()) == base.value) return root;
  if (!type.is_dense() || !type.offset.is_const(0) || !base.type.is_dense() ||
      type.dtype != base.type.dtype || type.numel() != base.type.numel())
    throw Unsupported("results that share memory which autograd knows in part");
  base.value = laid_out_as(r.graph, type, r.value_of(ops.with_marks(w->value(), {})));
  base.type = type;
  return root;
}

// Whether a real view can take its place, with a node of its own in front of that of its base.
bool is_plain_view(const Recording& r, const ir::OutputSpec& o) {
  if (!o.is_view() || o.detached || o.no_grad || o.conj || o.neg) return false;
  const auto is_moved = [&](const ir::Mutation& m) { return m.metadata && m.input == o.index; };
  return o.kind == ir::OutputSpec::Kind::ViewOfOutput ||
         std::ranges::none_of(r.graph.mutations, is_moved);
}

// The nodes that autograd comes to from these, which are not among them themselves.
std::unordered_set<const torch::autograd::Node*> nodes_behind(
    std::vector<const torch::autograd::Node*> open) {
  std::unordered_set<const torch::autograd::Node*> out;
  while (!open.empty()) {
    const torch::autograd::Node* n = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& e : n->next_edges())
      if (e.function && out.insert(e.function.get()).second) open.push_back(e.function.get());
  }
  return out;
}

}  // namespace

std::vector<uint32_t> add_roots_of_views(const Recording& r, const std::vector<at::Tensor>& results,
                                         const std::vector<bool>& required,
                                         const std::vector<at::Tensor>& written,
                                         std::vector<at::Tensor>& roots) {
  std::vector<uint32_t> views;
  const auto node_of = [](const at::Tensor& t) {
    return torch::autograd::impl::gradient_edge(t).function.get();
  };
  std::vector<const torch::autograd::Node*> from;
  for (uint32_t i = 0; i < results.size(); ++i) {
    if (!required[i] || roots[i].defined() || !is_plain_view(r, r.graph.outputs[i])) continue;
    views.push_back(i);
    from.push_back(node_of(results[i]));
  }
  if (views.empty()) return views;
  for (const std::vector<at::Tensor>& tensors : {roots, written})
    for (const at::Tensor& t : tensors)
      if (t.defined()) from.push_back(node_of(t));
  const auto behind = nodes_behind(std::move(from));
  std::vector<uint32_t> out;
  const auto add = [&](uint32_t i) {
    roots[i] = results[i];
    out.push_back(i);
  };
  for (const uint32_t i : views)
    if (behind.contains(node_of(results[i]))) add(i);
  // A view of one of these, and the pieces that one op gives with them.
  const size_t first = out.size();
  for (const uint32_t i : views) {
    if (roots[i].defined()) continue;
    const auto before = nodes_behind({node_of(results[i])});
    const ir::OutputSpec& spec = r.graph.outputs[i];
    const auto goes_with = [&](uint32_t other) {
      const ir::OutputSpec& o = r.graph.outputs[other];
      return before.contains(node_of(results[other])) ||
             (spec.piece && o.piece && o.kind == spec.kind && o.index == spec.index);
    };
    if (std::any_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(first), goes_with)) add(i);
  }
  std::ranges::sort(out);
  return out;
}

bool may_overlap(const at::Tensor& a, const at::Tensor& b) {
  if (storage_of(a) != storage_of(b)) return false;
  auto [a0, a1] = bytes_touched(a);
  auto [b0, b1] = bytes_touched(b);
  return a0 < b1 && b0 < a1;
}

std::optional<size_t> input_with_storage(const Recording& r, const c10::StorageImpl* storage) {
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (r.inputs[i].wrapper.defined() && storage_of(r.inputs[i].came_as()) == storage) return i;
  return std::nullopt;
}

const char* why_unwritable(const Recording& r, size_t input) {
  const at::Tensor& written = r.inputs[input].real;
  auto meets = [&](const RecordedSource& other) {
    return other.wrapper.defined() && may_overlap(other.real, written);
  };
  for (size_t j = 0; j < r.inputs.size(); ++j)
    if (j != input && meets(r.inputs[j]))
      return "an input that changes shares memory with another input";
  if (std::ranges::any_of(r.attributes, meets))
    return "an input that changes shares memory with an attribute";
  return type_of(written).may_overlap_itself() ? "an input that changes overlaps itself" : nullptr;
}

ir::ValueId laid_out_as(ir::Graph& graph, const ir::TensorType& wanted, ir::ValueId v) {
  const ir::TensorType has = graph.tensor_type(v);
  if (same_layout(has, wanted)) return v;
  // Sizes that vary may be equal by what is known of them.
  if (!ops::known_same(has.sizes, wanted.sizes) || has.dtype != wanted.dtype)
    throw Unsupported("a result that changed its shape");
  ir::TensorType type = wanted;
  type.offset = 0;
  type.requires_grad = false;
  ir::Node& copy = graph.add_call(ir::NodeKind::CallOp, "aten.copy.default",
                                  {new_memory(graph, v, type), v}, {ir::Type::of(type)});
  return copy.outputs[0];
}

// Whether all that has written to it are what Tensor.data gave.
bool is_written_unseen(const Recording& r, const RecordedSource& s) {
  const auto* storage =
      dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(storage_of(s.came_as()));
  size_t writes = 0;
  for (const at::Tensor& t : r.unseen)
    if (storage_of(t) == storage) writes += t._version();
  return writes > 0 && writes == storage->generation();
}

std::vector<at::Tensor> add_mutations(Recording& r, OpRecorder& ops, bool gradients) {
  std::vector<at::Tensor> roots;
  for (size_t i = 0; i < r.inputs.size(); ++i) {
    RecordedSource& s = r.inputs[i];
    if (!s.wrapper.defined()) continue;
    auto* w = wrapper_of(s.came_as());
    if (w->was_storage_changed()) throw Unsupported("the storage of an input changes in place");
    const std::optional<ir::TensorType> layout = changed_layout(r, s);
    if (layout && s.real.requires_grad())
      throw Unsupported("the shape of an input that requires gradients changes in place");
    functional::sync(s.came_as());
    const at::Tensor value = ops.with_marks(w->value(), {});
    const bool data = w->has_data_mutation() && r.value_of(value) != s.value;
    if (!data && !layout) continue;
    if (data && layout && !covers(*layout, type_of(s.real)))
      throw Unsupported("an input is written and becomes a view of a part of its memory");
    if (const char* why = data ? why_unwritable(r, i) : nullptr) throw Unsupported(why);
    const bool has_history = has_new_history(s);
    if (has_history && !gradients) throw Unsupported("a new value that requires gradients");
    if (has_history && !s.real.requires_grad() && shares_storage(r, i))
      throw Unsupported(
          "an input that comes to require gradients, with another view of its memory");
    if (s.real.is_inference() && !r.inference)
      throw Unsupported("an inference tensor changes in place outside inference mode");
    roots.push_back(has_history ? s.wrapper : at::Tensor());
    ir::Mutation& m = r.graph.mutations.emplace_back();
    m.input = static_cast<uint32_t>(i);
    m.value = data ? laid_out_as(r.graph, type_of(s.came_as()), r.value_of(value)) : s.value;
    // The plan copies it to the input, whatever its layout is.
    if (auto it = r.computed_of.find(m.value); it != r.computed_of.end()) m.value = it->second;
    m.metadata = layout.has_value();
    m.unseen = !layout && is_written_unseen(r, s);
    if (layout) m.type = *layout;
  }
  for (RecordedSource& s : r.attributes) {
    auto* w = wrapper_of(s.wrapper);
    if (!s.fresh &&
        (w->has_data_mutation() || w->has_metadata_mutation() || w->was_storage_changed()))
      throw Unsupported("an attribute of the module changes in place");
  }
  return roots;
}

std::vector<at::Tensor> add_outputs(Recording& r, OpRecorder& ops,
                                    const std::vector<at::Tensor>& results, bool gradients) {
  for (const at::Tensor& t : results)
    if (t.defined()) functional::sync(t);
  std::vector<ir::OutputSpec> hidden;  // memory that results are views of
  std::vector<const c10::StorageImpl*> hidden_storage;
  std::vector<at::Tensor> roots(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& t = results[i];
    ir::OutputSpec& out = r.graph.outputs.emplace_back();
    if (!t.defined()) {
      out.kind = ir::OutputSpec::Kind::None;
      continue;
    }
    auto* w = wrapper_of(t);
    if (!w) throw Unsupported("a result that the recording did not make");
    const c10::StorageImpl* storage = storage_of(t);
    const auto input = input_with_storage(r, storage);
    // Views of an input that requires gradients say so too, where in eager no_grad hides it.
    const bool no_grad = is_no_grad_view(t);
    const bool needs_grad = needs_gradient(ops, t, input.has_value());
    if (needs_grad && !gradients) throw Unsupported("a result that requires gradients");
    // Behind a write through a view autograd has them.
    if (needs_grad && !torch::autograd::isDifferentiableType(t.scalar_type()))
      throw Unsupported("integers that require gradients");
    if (w->was_storage_changed()) throw Unsupported("a result whose storage was replaced");
    out.type = type_of(t);
    out.type.requires_grad = needs_grad;
    const LazyMarks marks = marks_of(t);
    out.conj = marks.conj;
    out.neg = marks.neg;
    const bool piece = is_piece(t);
    out.derived = no_grad && history_of(t) != nullptr;
    if (input) {
      describe_input_alias(r, out, t, *input);
      out.no_grad = no_grad;
      out.piece = piece && out.is_view();
      out.type.requires_grad = needs_grad;
      // Several elements lie in one place: autograd's views of real tensors, which go by places,
      // would mix their gradients. Or it is a detached one, written with what has gradients, or has
      // gradients of a Function's.
      if (needs_grad && out.is_view() &&
          (type_of(r.inputs[*input].real).may_overlap_itself() || is_view_of_function(t) ||
           !is_seen_as(t, r.inputs[*input].wrapper)))
        roots[i] = t;
      continue;
    }
    for (const RecordedSource& a : r.attributes)
      if (!a.fresh && storage_of(a.wrapper) == storage)
        throw Unsupported("an attribute of the module is returned");
    auto shares = [&](const at::Tensor& o) { return o.defined() && storage_of(o) == storage; };
    const bool alone = std::ranges::count_if(results, shares) == 1;
    // Autograd is to know it as the view that it is. Where the caller records no gradients either,
    // and nothing here requires them, the memory of its own is cheaper.
    const bool is_view = (no_grad && (gradients || r.grad)) ||
                         (gradients && needs_grad && (piece || is_view_of_function(t)));
    if (alone && !is_view) {
      const ir::ValueId value = r.value_of(ops.with_marks(w->value(), marks));
      // What has gaps may be memory of its own too: an input's copy in part replaced
      // (slice_scatter).
      const bool whole = !t.is_view() && w->view_metas().empty() && is_computed(r.graph, value) &&
                         !out.type.may_overlap_itself();
      if (out.type.is_dense() || whole) {
        out.derived = false;
        out.value = escape(r.graph, laid_out_as(r.graph, out.type, value));
        if (needs_grad) roots[i] = t;
        continue;
      }
    }
    out.kind = ir::OutputSpec::Kind::ViewOfOutput;
    out.no_grad = no_grad;
    out.piece = piece;
    if (needs_grad && is_view_of_function(t)) roots[i] = t;
    auto seen = std::ranges::find(hidden_storage, storage);
    out.index = static_cast<uint32_t>(results.size() + (seen - hidden_storage.begin()));
    if (seen == hidden_storage.end()) {
      hidden_storage.push_back(storage);
      hidden.push_back(base_of(r, ops, t));
      roots.push_back(gradients ? root_of(r, ops, results, storage, hidden.back()) : at::Tensor());
      hidden.back().type.requires_grad = roots.back().defined();
    }
  }
  r.graph.outputs.insert(r.graph.outputs.end(), hidden.begin(), hidden.end());
  find_detached(r, results, roots);
  for (size_t i = 0; i < results.size(); ++i)
    promote_base(r.graph, roots, results[i], i, results.size());
  return roots;
}

}  // namespace oxy::bridge
