// Makes fakes for what enters a recording, and knows the value of each.
#include "torch_bridge/recording.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include "ir/specialize.h"
#include "ops/op_table.h"
#include "support/check.h"
#include "torch_bridge/exact_views.h"
#include "torch_bridge/ivalue_convert.h"

namespace oxy::bridge {

namespace functional = at::functionalization::impl;

namespace {

// torch sets the key of a tensor without memory where it makes one, and has no other way.
struct KeySetOf : c10::TensorImpl {
  static constexpr auto member() { return &KeySetOf::key_set_; }
};

}  // namespace

Recording::Recording(bool symbolic, NumberOf symbolic_number, const Recording* around)
    : symbolic_number_(std::move(symbolic_number)), owns_facts_(around == nullptr) {
  if (around) {
    graph.pool = around->graph.pool;
    shapes = around->shapes;
  }
  if (!symbolic || around) return;
  shapes.emplace(graph.pool);
  shapes->facts()->set_position([this] { return print_position(); });
}

Recording::~Recording() {
  if (shapes && owns_facts_) shapes->facts()->close();
}

std::string Recording::print_position() const {
  if (!graph.has_stack(position_.stack)) return "";
  return join(graph.stack(position_.stack), "\n", [](std::string& out, const ir::Frame& f) {
    cat_to(out, f.file, ":", f.line, " in ", f.function, ": ", f.code);
  });
}

// ---- what enters

RecordedSource Recording::make_source(const at::Tensor& real, const std::string& name,
                                      bool is_input, std::span<const DynamicDim> dynamic_dims) {
  if (is_symbolic(real) && !shapes) throw Unsupported("a tensor with symbolic sizes");
  if (auto why = why_not_recordable(real)) throw Unsupported(*why);
  auto type = dynamic_dims.empty() ? type_of(real) : shapes.value().input_type(real, dynamic_dims);
  RecordedSource s;
  s.real = real;
  // Under inference mode functionalisation cannot make views of normal tensors, and both kinds may
  // meet.
  c10::InferenceMode off(false);
  const at::Tensor fake = new_fake(type);
  s.value = is_input ? graph.add_input(name, ir::Type::of(type))
                     : graph.add_attribute(name, ir::Type::of(type));
  bind(fake, s.value);
  const bool plain = shapes || (real.storage_offset() == 0 &&
                                real.strides().equals(c10::contiguous_strides(real.sizes())));
  s.wrapper = is_input && !plain ? keeping_layout(fake) : functional::to_functional_tensor(fake);
  forbid_data(s.wrapper);
  if (real.requires_grad() && !real.is_inference())
    s.edge = require_gradients(s.wrapper, real.is_leaf());
  return s;
}

const RecordedSource& Recording::add_input(const at::Tensor& real, const std::string& name,
                                           std::span<const DynamicDim> dynamic_dims) {
  const auto is_by_then = [&](const RecordedSource& s) {
    return s.memory.defined() && s.real.is_same(real);  // Graphs::read_data_late
  };
  for (const RecordedSource& s : inputs)
    if (s.wrapper.defined() && wrapper_of(s.came_as())->has_data_mutation() && !is_by_then(s) &&
        may_overlap(s.real, real))
      throw Unsupported("an input that shares memory with one that has changed");
  return inputs.emplace_back(make_source(real, name, true, dynamic_dims));
}

void Recording::add_number(ir::Expr value, const std::string& name) {
  inputs.emplace_back().value = graph.add_input(name, ir::Type::integer(value));
}

RecordedSource& Recording::attribute(const at::Tensor& real, const std::string& name) {
  const auto found = attribute_of_.find(real.unsafeGetTensorImpl());
  if (found != attribute_of_.end()) return attributes[found->second];
  attributes.push_back(make_source(real, name, false, {}));
  attribute_of_.emplace(real.unsafeGetTensorImpl(), attributes.size() - 1);
  return attributes.back();
}

// Another one was there before, and nothing guards which one it is.
RecordedSource& Recording::met(const at::Tensor& real) {
  const c10::TensorImpl* known = real.unsafeGetTensorImpl();
  if (!attribute_of_.contains(known) && !admitted.contains(known))
    give_up("a tensor that is no input of the graph");
  return constant(real);
}

std::optional<ir::ValueId> Recording::entering(const at::Tensor& wrapper) const {
  for (const auto* sources : {&inputs, &attributes})
    for (const RecordedSource& s : *sources)
      if (!s.fresh && wrapper.is_same(s.wrapper)) return s.value;
  return std::nullopt;
}

// ---- fakes

at::Tensor Recording::new_fake(const ir::TensorType& type, const c10::Storage* storage) const {
  return shapes ? shapes->make_fake(type, storage) : make_fake(type, storage);
}

at::Tensor Recording::another_fake(ir::ValueId v) {
  at::Tensor fake = new_fake(graph.tensor_type(v));
  bind(fake, v);
  return fake;
}

at::Tensor Recording::like(const at::Tensor& t) const {
  at::Tensor out = new_fake(type_of(t));
  if (t.requires_grad()) out.set_requires_grad(true);
  return out;
}

at::Tensor Recording::marked(const at::Tensor& fake, LazyMarks marks) {
  at::Tensor out = new_fake(type_of(fake), &fake.storage());
  set_marks(out, marks);
  bind(out, value_of(fake));
  return out;
}

at::Tensor Recording::marked_as_zero(const at::Tensor& fake) {
  at::Tensor out = new_fake(type_of(fake), &fake.storage());
  c10::DispatchKeySet& keys = out.unsafeGetTensorImpl()->*KeySetOf::member();
  keys = keys.add(c10::DispatchKey::ZeroTensor);
  bind(out, value_of(fake));
  return out;
}

bool Recording::may_need_gradients() const {
  const auto has_edge = [](const RecordedSource& s) { return s.edge.is_valid(); };
  return c10::GradMode::is_enabled() && std::ranges::any_of(inputs, has_edge);
}

void Recording::bind(const at::Tensor& fake, ir::ValueId v) {
  values_[fake.unsafeGetTensorImpl()] = v;
  kept_.push_back(fake);
}

const ir::ValueId* Recording::find(const c10::TensorImpl* fake) const {
  auto it = values_.find(fake);
  return it == values_.end() ? nullptr : &it->second;
}

ir::ValueId Recording::value_of(const at::Tensor& fake) const {
  if (const ir::ValueId* v = find(fake.unsafeGetTensorImpl())) return *v;
  throw Unsupported("a tensor that the recording did not make");
}

ir::Arg Recording::arg_of(const at::Tensor& t) {
  if (!t.defined()) return {};
  if (auto* w = wrapper_of(t)) {
    functional::sync(t);
    return arg_of(w->value());
  }
  if (const ir::ValueId* v = find(t.unsafeGetTensorImpl())) return *v;
  if (!t.unsafeGetTensorImpl()->is_wrapped_number()) return met(t).value;
  if (shapes && symbolic_number_)
    if (auto number = symbolic_number_(t)) return to_arg(*number);
  return number_of(t);
}

// ---- nodes

void Recording::set_position(ir::StackId stack, ir::NodeId torch_node) {
  position_ = {stack, torch_node};
}

ir::Node& Recording::add_call(ir::NodeKind kind, const std::string& target,
                              std::vector<ir::Arg> args, std::vector<ir::Type> types) {
  ir::Node& node = graph.add_call(kind, target, std::move(args), std::move(types));
  Position at = position_;
  if (!in_backward_ && !c10::GradMode::is_enabled()) without_grad.push_back(node.id);
  if (is_in_try) in_try.push_back(node.id);
  if (in_backward_) {
    const auto running = torch::autograd::get_current_node();
    const auto found = running ? position_of_.find(running->sequence_nr()) : position_of_.end();
    if (found != position_of_.end()) at = found->second;
  } else if (c10::GradMode::is_enabled() && at::sequence_number::peek() > 0) {
    // autograd has made its node, if it makes one, just before.
    position_of_.try_emplace(at::sequence_number::peek() - 1, position_);
  }
  node.stack = at.stack;
  node.parent = at.parent;
  return node;
}

void Recording::simplify_sizes() {
  if (!shapes || shapes->facts()->changes() == facts_applied_) return;
  facts_applied_ = shapes->facts()->changes();
  ir::map_exprs(graph, [this](ir::Expr e) { return shapes->facts()->simplify(e); });
}

// ---- writes

void Recording::write_back(const at::Tensor& old, const at::Tensor& now) {
  for (const auto* sources : {&inputs, &attributes}) {
    for (const RecordedSource& s : *sources) {
      auto* w = s.wrapper.defined() ? wrapper_of(s.wrapper) : nullptr;
      if (!w || !w->value().is_same(old)) continue;
      check_write(s.wrapper);
      w->replace_(now);
      w->commit_update();
      w->sync_();
      return;
    }
  }
  const auto* memory = storage_of(old);
  if (std::ranges::count_if(kept_, [&](const at::Tensor& t) { return storage_of(t) == memory; }) !=
      1)
    throw Unsupported("running statistics of a batch norm that share memory");
  bind(old, value_of(now));
}

void Recording::check_write(const at::Tensor& wrapper) {
  const auto input = input_with_storage(*this, storage_of(wrapper));
  if (const char* why = input ? why_unwritable(*this, *input) : nullptr) give_up(why);
}

void Recording::check_written_splits() const {
  if (unsafe_splits.empty()) return;
  struct Split {
    ir::NodeId node;
    size_t written_at;
  };
  std::unordered_map<ir::ValueId, Split> of;  // by what was split
  const auto is_view = [this](ir::NodeId id) {
    const ops::OpInfo* op = ops::find(graph.node(id));
    return op && op->has(ops::View);
  };
  const auto check = [](bool unseen) {
    if (!unseen) throw Unsupported("a write to a part of what autograd does not know to be split");
  };
  for (const auto& [split, written_at] : unsafe_splits) {
    if (!written_at) continue;
    const ir::ValueId v = graph.node(split).args[0].value();
    const ir::Node& made_by = graph.def(v);
    check(made_by.kind == ir::NodeKind::CallOp && !is_view(made_by.id) &&
          of.try_emplace(v, Split{split, *written_at}).second);
  }
  for (size_t i = 0; i < graph.order().size(); ++i) {
    const ir::NodeId id = graph.order()[i];
    ir::for_each_value(graph.node(id), [&](ir::ValueId v) {
      const auto found = of.find(v);
      if (found == of.end() || found->second.node == id) return;
      check(i < found->second.written_at && !is_view(id));
    });
  }
  for (const ir::OutputSpec& o : graph.outputs)
    check(o.kind != ir::OutputSpec::Kind::Value || !of.contains(o.value));
  for (const ir::Mutation& m : graph.mutations) check(!of.contains(m.value));
}

void Recording::give_up(const char* why) {
  if (!failure) failure = std::make_exception_ptr(Unsupported(why));
  std::rethrow_exception(failure);
}

}  // namespace oxy::bridge
