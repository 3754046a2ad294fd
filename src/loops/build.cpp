// Chooses loop, contraction or extern step for each node, and maps values to buffers.
#include "loops/build.h"

#include <algorithm>
#include <ranges>

#include "ir/text.h"
#include "loops/body_builder.h"
#include "ops/promote.h"
#include "ops/shapes.h"
#include "support/check.h"

namespace oxy::loops {

namespace {

bool is_supported(const ir::Type& t, bool (*is_one)(ir::DType) = ops::is_computable) {
  return !t.is_tensor() || (t.tensor.device.is_cpu() && is_one(t.tensor.dtype));
}

// Ops that compute nothing.
bool converts(const ir::Node& n, const ops::OpInfo& info) {
  return info.has(ops::View) || n.target == "aten._to_copy.default" ||
         n.target == "aten.clone.default" || n.target == "prims.convert_element_type.default";
}

class ProgramBuilder final : public ValueHome {
 public:
  ProgramBuilder(const ir::Graph& graph, const BuildOptions& options)
      : graph_(graph), options_(options), uses_(graph.use_counts()) {
    program_.graph = &graph;
    program_.pool = graph.pool;
    program_.variables = std::make_shared<Variables>(graph.pool);
  }

  Program build();

  bool is_virtual(ir::ValueId v) const override { return virtual_[v.index]; }
  BufferId buffer(ir::ValueId v) override;

 private:
  // A loop that is being written: the index of an element in its axes, and its body.
  struct Writing {
    Writing(ProgramBuilder& p, std::string name, ir::NodeId origin)
        : loop{.name = std::move(name), .origins = {origin}},
          scope(*p.program_.variables),
          body(p.graph_, p, scope, loop.body) {}

    Loop loop;
    VariableScope scope;
    Index index;
    BodyBuilder body;
  };

  void add_sources();
  void classify_values();
  bool has_loop(const ir::Node& n, const ops::OpInfo* info) const;
  void add_node(const ir::Node& n);
  void add_extern(const ir::Node& n);
  void check_operands(const ir::Node& n);
  bool add_contraction(const ir::Node& n);
  Writing writing(const ir::Node& n);
  void add_axes(Writing& l, const std::vector<Expr>& sizes);
  void finish(Writing& l);
  void add_loop(const ir::Node& n, uint32_t out);
  void add_reduction(const ir::Node& n);
  void add_scan(const ir::Node& n);
  void add_scatter(const ir::Node& n);
  void note_symbols(const ir::Node& n);
  void finish_outputs();
  void finish_mutations();

  BufferId add_buffer(Buffer::Kind kind, ir::ValueId v, ir::TensorType type);
  void add_source(Buffer::Kind kind, ir::ValueId v, const char* prefix, uint32_t source);
  BufferId result_buffer(ir::ValueId v);
  BufferId extern_buffer(ir::ValueId v);
  ir::TensorType planned_type(ir::ValueId v) const;
  // The value in memory, as an extern op or the caller reads it.
  BufferId in_memory(ir::ValueId v);
  BufferId result(ir::ValueId v);
  std::optional<Buffer> strided_alias(ir::ValueId v);
  BufferId copy(ir::ValueId v, Buffer::Kind kind);
  void may_alias(const ir::Node& n);
  bool add_parts(const ir::Node& n);

  const ir::Graph& graph_;
  BuildOptions options_;
  std::vector<uint32_t> uses_;
  std::vector<bool> virtual_;
  std::vector<bool> recast_;        // see add_parts
  std::vector<bool> escapes_;       // is a Value output of the graph
  std::vector<bool> keeps_layout_;  // is that, or an extern op reads it or a view of it
  Program program_;
  uint32_t next_buffer_ = 0;
};

BufferId ProgramBuilder::add_buffer(Buffer::Kind kind, ir::ValueId v, ir::TensorType type) {
  return program_.buffers.add(
      {.name = cat("buf", next_buffer_++), .kind = kind, .type = std::move(type), .value = v});
}

void ProgramBuilder::add_source(Buffer::Kind kind, ir::ValueId v, const char* prefix,
                                uint32_t source) {
  if (!graph_.value(v).type.is_tensor()) return;
  program_.buffer_of[v] = program_.buffers.add({.name = cat(prefix, source),
                                                .kind = kind,
                                                .type = graph_.tensor_type(v),
                                                .source = source,
                                                .value = v});
}

void ProgramBuilder::add_sources() {
  uint32_t inputs = 0, attributes = 0;
  for (ir::ValueId v : graph_.inputs()) add_source(Buffer::Kind::Input, v, "in", inputs++);
  for (ir::NodeId id : graph_.order()) {
    const ir::Node& n = graph_.node(id);
    if (!n.dead && n.kind == ir::NodeKind::Attribute)
      add_source(Buffer::Kind::Attribute, n.outputs[0], "attr", attributes++);
  }
}

bool ProgramBuilder::has_loop(const ir::Node& n, const ops::OpInfo* info) const {
  if (!options_.kernels || !info || !info->element) return false;
  if (!ops::rules_hold(graph_, n, *info)) return false;
  bool supported = true;
  const auto is_one = converts(n, *info) ? ops::is_converted : ops::is_computable;
  auto check = [&](ir::ValueId v) { supported &= is_supported(graph_.value(v).type, is_one); };
  for (const ir::Arg& a : n.args) ir::for_each_value(a, check);
  bool any_tensor = false;
  for (ir::ValueId v : n.outputs) {
    check(v);
    any_tensor |= graph_.value(v).type.is_tensor();
  }
  ops::ReductionSpec probe;
  return supported && any_tensor && (!info->reduction || info->reduction(graph_, n, probe));
}

void ProgramBuilder::classify_values() {
  virtual_.assign(graph_.value_count(), false);
  recast_.assign(graph_.value_count(), false);
  escapes_.assign(graph_.value_count(), false);
  for (const ir::OutputSpec& o : graph_.outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) escapes_[o.value.index] = true;
  }
  for (ir::NodeId id : graph_.order()) {
    const ir::Node& n = graph_.node(id);
    if (n.dead || n.kind != ir::NodeKind::CallOp) continue;
    const ops::OpInfo* info = ops::find(n);
    if (!info || !info->has(ops::View) || !has_loop(n, info)) continue;
    for (ir::ValueId v : n.outputs) virtual_[v.index] = true;
  }
  keeps_layout_ = escapes_;
  for (ir::NodeId id : std::views::reverse(graph_.order())) {
    const ir::Node& n = graph_.node(id);
    if (n.dead) continue;
    const bool is_view = !n.outputs.empty() && virtual_[n.outputs[0].index];
    if (is_view ? std::ranges::none_of(n.outputs, [&](auto v) { return keeps_layout_[v.index]; })
                : has_loop(n, ops::find(n)))
      continue;
    for (const ir::Arg& a : n.args)
      ir::for_each_value(a, [&](ir::ValueId v) { keeps_layout_[v.index] = true; });
  }
}

BufferId ProgramBuilder::buffer(ir::ValueId v) {
  auto it = program_.buffer_of.find(v);
  OXY_CHECK(it != program_.buffer_of.end(), "no memory for ", ir::print(graph_, v));
  return it->second;
}

void ProgramBuilder::add_axes(Writing& l, const std::vector<Expr>& sizes) {
  for (Expr size : sizes) {
    l.index.push_back(size.is_const(1) ? Expr(0) : l.scope.get('p', size));
    if (!size.is_const(1)) l.loop.axes.push_back({l.index.back(), size, false});
  }
}

// Of a value in memory that we give it.
ir::TensorType ProgramBuilder::planned_type(ir::ValueId v) const {
  ir::TensorType type = graph_.tensor_type(v);
  type.offset = 0;
  type.requires_grad = false;
  if (!keeps_layout_[v.index] && !type.is_dense())
    type.strides = ir::contiguous_strides(type.sizes);
  return type;
}

BufferId ProgramBuilder::result_buffer(ir::ValueId v) {
  const Buffer::Kind kind = escapes_[v.index] ? Buffer::Kind::Output : Buffer::Kind::Temp;
  return program_.buffer_of[v] = add_buffer(kind, v, planned_type(v));
}

BufferId ProgramBuilder::extern_buffer(ir::ValueId v) {
  return program_.buffer_of[v] = add_buffer(Buffer::Kind::Extern, v, graph_.tensor_type(v));
}

ProgramBuilder::Writing ProgramBuilder::writing(const ir::Node& n) {
  std::string_view op = n.target;
  op.remove_prefix(std::min(op.size(), op.find('.') + 1));
  return {*this, cat("op", program_.steps.size(), "_", op.substr(0, op.find('.'))), n.id};
}

void ProgramBuilder::finish(Writing& l) {
  remove_dead(l.loop.body);
  program_.steps.push_back(std::move(l.loop));
}

void ProgramBuilder::add_loop(const ir::Node& n, uint32_t out) {
  const ir::ValueId v = n.outputs[out];
  Writing l = writing(n);
  add_axes(l, graph_.tensor_type(v).sizes);
  ops::Element e(l.body, n, out, l.index);
  const ops::Scalar r = l.body.cast(ops::find(n)->element(e), graph_.tensor_type(v).dtype);
  l.body.store(result_buffer(v), l.index, r);
  finish(l);
}

void ProgramBuilder::add_reduction(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  ops::ReductionSpec spec;
  OXY_CHECK(info->reduction(graph_, n, spec), "no reduction for ", n.target);
  const ir::TensorType& in = graph_.tensor_type(n.arg(0).value());
  Writing l = writing(n);
  Index out;
  std::vector<Axis> folded;
  for (size_t d = 0; d < in.sizes.size(); ++d) {
    const Expr size = in.sizes[d];
    const bool reduced = std::ranges::binary_search(spec.dims, static_cast<int64_t>(d));
    const Expr at = size.is_const(1) ? Expr(0) : l.scope.get(reduced ? 'r' : 'p', size);
    l.index.push_back(at);
    if (!at.is_const()) (reduced ? folded : l.loop.axes).push_back({at, size, reduced});
    if (!reduced || spec.keepdim) out.push_back(reduced ? Expr(0) : at);
  }
  l.loop.axes.insert(l.loop.axes.end(), folded.begin(), folded.end());
  ops::Element e(l.body, n, 0, l.index);
  const ops::Scalar value = l.body.cast(info->element(e), spec.accumulate);
  const ops::Scalar r = l.body.cast(l.body.reduce(spec.kind, value), spec.result);
  l.body.store(result_buffer(n.outputs[0]), out, r);
  finish(l);
}

// A dimension of size 1 is scanned in one step.
void ProgramBuilder::add_scan(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  ops::ReductionSpec spec;
  OXY_CHECK(info->reduction(graph_, n, spec), "no scan for ", n.target);
  const ir::ValueId v = n.outputs[0];
  Writing l = writing(n);
  add_axes(l, graph_.tensor_type(v).sizes);
  ops::Element e(l.body, n, 0, l.index);
  ops::Scalar r = l.body.cast(info->element(e), spec.accumulate);
  const Expr along = l.index[static_cast<size_t>(spec.dims[0])];
  if (!along.is_const()) r = l.body.scan(spec.kind, r, along);
  l.body.store(result_buffer(v), l.index, l.body.cast(r, spec.result));
  finish(l);
}

// What the result begins as, then its updates.
void ProgramBuilder::add_scatter(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  ops::ScatterSpec spec;
  OXY_CHECK(info->scatter(graph_, n, spec), "no scatter for ", n.target);
  const ir::ValueId v = n.outputs[0];
  add_loop(n, 0);
  Writing l = writing(n);
  add_axes(l, spec.sizes);
  ops::Element e(l.body, n, 0, l.index);
  const ops::ScatterUpdate u = info->update(e);
  const ops::Scalar r = l.body.cast(u.value, graph_.tensor_type(v).dtype);
  l.body.fold_into(buffer(v), u.place, r, spec.kind);
  finish(l);
}

// An op that we know nothing of may keep its arguments.
static bool is_foreign(const ir::Node& n) {
  if (n.dead) return false;
  if (n.kind == ir::NodeKind::CallOp) return n.target != ops::kNumber && ops::find(n) == nullptr;
  return std::ranges::any_of(n.regions, [](const ir::Graph& g) {
    return std::ranges::any_of(g.order(), [&](ir::NodeId id) { return is_foreign(g.node(id)); });
  });
}

// A result that lies in an argument's memory, or an op that has kept it, needs that memory for
// longer than a planned arena knows.
void ProgramBuilder::may_alias(const ir::Node& n) {
  const ops::OpInfo* info = n.kind == ir::NodeKind::Region ? nullptr : ops::find(n);
  if (!is_foreign(n) && !(info && info->has(ops::View))) return;
  for (const ir::Arg& a : n.args) {
    ir::for_each_value(a, [&](ir::ValueId v) {
      if (!graph_.value(v).type.is_tensor()) return;
      Buffer& b = program_.buffers[memory_of(program_, buffer(v))];
      if (b.kind == Buffer::Kind::Temp) b.kind = Buffer::Kind::Output;
    });
  }
}

void ProgramBuilder::add_extern(const ir::Node& n) {
  ExternStep step;
  step.node = n.id;
  for (const ir::Arg& a : n.args) {
    ir::for_each_value(a, [&](ir::ValueId v) {
      if (graph_.value(v).type.is_tensor()) step.reads.push_back(in_memory(v));
    });
  }
  may_alias(n);
  for (ir::ValueId v : n.outputs)
    step.writes.push_back(graph_.value(v).type.is_tensor() ? extern_buffer(v) : BufferId());
  program_.steps.push_back(std::move(step));
}

// What regions take has the layout that they were compiled for.
void ProgramBuilder::check_operands(const ir::Node& n) {
  for (const ir::Arg& a : n.args) {
    const bool tensor = a.is_value() && graph_.value(a.value()).type.is_tensor();
    if (!tensor) throw Unsupported(cat(n.target, " of what is no tensor"));
    const ir::TensorType& type = graph_.tensor_type(a.value());
    if (!same_layout(program_.buffers[in_memory(a.value())].type, type))
      throw Unsupported(cat(n.target, " of a tensor whose memory is laid out anew"));
  }
}

// Who computes it is chosen by the types of the memory that its operands have got.
bool ProgramBuilder::add_contraction(const ir::Node& n) {
  const auto node = options_.kernels ? ops::contraction_of(graph_, n) : std::nullopt;
  if (!node) return false;
  for (const ir::Arg& a : n.args) ir::for_each_value(a, [&](ir::ValueId v) { in_memory(v); });
  ContractionStep step;
  step.node = n.id;
  step.what = node->what;
  step.reads = {buffer(node->a), buffer(node->b)};
  if (node->bias.valid()) step.reads.push_back(buffer(node->bias));
  auto type = [&](BufferId b) { return b.valid() ? &program_.buffers[b].type : nullptr; };
  const ir::ValueId v = n.outputs[0];
  const ir::TensorType result = planned_type(v);
  step.provider = ops::provider_of(
      step.what, {type(step.a()), type(step.b()), type(step.bias()), &result}, options_.providers);
  if (step.provider == ops::Provider::Loops)
    step.provider = ops::Provider::Aten;  // nobody has made some
  step.writes = {step.is_own() ? result_buffer(v) : extern_buffer(v)};
  program_.steps.push_back(std::move(step));
  return true;
}

// The flat offset of the view's elements in its source, where it is linear in the view's indices.
std::optional<Buffer> ProgramBuilder::strided_alias(ir::ValueId v) {
  const ir::TensorType& type = graph_.tensor_type(v);
  // Other sizes of a line, which quotients of sizes that vary may hide.
  if (const ir::Node& n = graph_.def(v); n.target == "aten.view.default") {
    const ir::TensorType& from = graph_.tensor_type(n.arg(0).value());
    if (from.dtype == type.dtype && from.is_contiguous() && type.is_contiguous()) {
      const BufferId whole = in_memory(n.arg(0).value()), base = memory_of(program_, whole);
      Buffer line{.kind = Buffer::Kind::View, .type = type, .base = base, .value = v};
      line.type.offset = whole == base ? Expr(0) : program_.buffers[whole].type.offset;
      return line;
    }
  }
  Writing l(*this, "", {});
  add_axes(l, type.sizes);
  const ops::Scalar r = l.body.load(v, l.index);
  const Inst& load = l.loop.body[r.id];
  if (load.op != LoopOp::Load || !load.args.empty() || load.dtype != type.dtype)
    return std::nullopt;
  const Buffer& root = program_.buffers[load.buffer];
  if (root.type.dtype != type.dtype) return std::nullopt;
  Expr rest = flat_offset(root, load.index);
  for (size_t d = 0; d < l.index.size(); ++d) {
    if (l.index[d].is_const()) continue;
    auto linear = sym::linear_in(rest, l.index[d]);
    if (!linear || linear->first != type.strides[d]) return std::nullopt;
    rest = linear->second;
  }
  Buffer alias{.kind = Buffer::Kind::View,
               .type = type,
               .base = memory_of(program_, load.buffer),
               .value = v};
  alias.type.offset = rest;
  return alias;
}

BufferId ProgramBuilder::copy(ir::ValueId v, Buffer::Kind kind) {
  ir::TensorType type = graph_.tensor_type(v);
  type.offset = 0;
  type.requires_grad = false;
  Writing l(*this, cat("op", program_.steps.size(), "_copy"), graph_.value(v).def);
  add_axes(l, type.sizes);
  // Elements that share a place (an expanded view) are written once each: an extern op gets them
  // spread out, in the order of their places, by which ops choose the layout of what they give.
  if (!type.is_dense())
    type.strides = ops::preserved_strides(type).value_or(ir::contiguous_strides(type.sizes));
  const ops::Scalar r = l.body.load(v, l.index);
  const BufferId b = add_buffer(kind, v, std::move(type));
  l.body.store(b, l.index, r);
  finish(l);
  return b;
}

BufferId ProgramBuilder::in_memory(ir::ValueId v) {
  if (auto it = program_.buffer_of.find(v); it != program_.buffer_of.end()) return it->second;
  BufferId b;
  if (auto alias = strided_alias(v)) {
    alias->name = cat("view", next_buffer_++);
    b = program_.buffers.add(std::move(*alias));
  } else {
    b = copy(v, Buffer::Kind::Temp);
  }
  program_.buffer_of[v] = b;
  return b;
}

BufferId ProgramBuilder::result(ir::ValueId v) {
  if (auto it = program_.copy_of.find(v); it != program_.copy_of.end()) return it->second;
  return in_memory(v);
}

// Complex numbers and their parts lie in the same memory. The caller gets numbers that are views of
// memory of ours; other views as other dtypes that escape are torch's.
bool ProgramBuilder::add_parts(const ir::Node& n) {
  const bool to_parts = n.target == "aten.view_as_real.default";
  if (!options_.kernels || (!to_parts && n.target != "aten.view_as_complex.default")) return false;
  const ir::ValueId from = n.arg(0).value(), v = n.outputs[0];
  const BufferId whole = in_memory(from);
  const BufferId base = memory_of(program_, whole);
  const Buffer::Kind kind = program_.buffers[base].kind;
  const bool ours = kind == Buffer::Kind::Temp || kind == Buffer::Kind::Output;
  if (to_parts ? escapes_[v.index] : !ours) return false;
  Buffer view{.name = cat("view", next_buffer_++),
              .kind = Buffer::Kind::View,
              .type = graph_.tensor_type(v),
              .base = base,
              .value = v};
  view.type.offset = 0;
  if (whole != base) {
    const Expr offset = program_.buffers[whole].type.offset;
    view.type.offset = to_parts ? offset * Expr(2) : sym::floordiv(offset, 2);
  }
  program_.buffer_of[v] = program_.buffers.add(std::move(view));
  recast_[v.index] = true;
  return true;
}

// Those that are met for the first time.
void ProgramBuilder::note_symbols(const ir::Node& n) {
  std::vector<Expr> symbols;
  for (ir::ValueId v : n.outputs) {
    const ir::Type& type = graph_.value(v).type;
    if (type.is_tensor())
      for (Expr size : type.tensor.sizes) sym::collect_symbols(size, symbols);
    else if (type.kind == ir::Type::Kind::Int)
      sym::collect_symbols(type.expr, symbols);
  }
  for (Expr s : symbols)
    if (sym::origin_of(s) == sym::Origin::Data) program_.known_by.try_emplace(s, n.id);
}

void ProgramBuilder::add_node(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  note_symbols(n);
  if (n.target == ops::kNumber) return;
  if (add_parts(n) || add_contraction(n)) return;
  if (!has_loop(n, info)) return add_extern(n);
  if (info->has(ops::View)) return;
  if (info->reduction) return info->has(ops::Scan) ? add_scan(n) : add_reduction(n);
  if (info->scatter) return add_scatter(n);
  for (uint32_t out = 0; out < n.outputs.size(); ++out) {
    bool tensor = graph_.value(n.outputs[out]).type.is_tensor();
    if (tensor && uses_[n.outputs[out].index] > 0) add_loop(n, out);
  }
}

// A view that the caller gets as a tensor of its own takes over its source's memory where nobody
// else has it.
void ProgramBuilder::finish_outputs() {
  std::unordered_set<BufferId> taken;
  const auto is_virtual_result = [&](const ir::OutputSpec& o, bool wanted) {
    return o.kind == ir::OutputSpec::Kind::Value && o.value.valid() &&
           graph_.value(o.value).type.is_tensor() &&
           (virtual_[o.value.index] || recast_[o.value.index]) == wanted;
  };
  for (const ir::OutputSpec& o : graph_.outputs)
    if (is_virtual_result(o, false)) taken.insert(memory_of(program_, buffer(o.value)));
  std::unordered_set<ir::ValueId> done;
  for (const ir::OutputSpec& o : graph_.outputs) {
    if (!is_virtual_result(o, true) || !done.insert(o.value).second) continue;
    BufferId base = memory_of(program_, result(o.value));
    Buffer::Kind kind = program_.buffers[base].kind;
    bool ours =
        kind == Buffer::Kind::Temp || kind == Buffer::Kind::Extern || kind == Buffer::Kind::Output;
    if (!ours || taken.contains(base)) {
      program_.copy_of[o.value] = base = copy(o.value, Buffer::Kind::Output);
    } else if (kind == Buffer::Kind::Temp) {
      program_.buffers[base].kind = Buffer::Kind::Output;
    }
    taken.insert(base);
  }
}

// The new value of an input is read after the last step, when other inputs may have changed
// already.
void ProgramBuilder::finish_mutations() {
  for (const ir::Mutation& m : graph_.mutations) {
    if (!graph_.value(m.value).type.is_tensor()) continue;
    const BufferId b = result(m.value);
    bool own = program_.buffers[memory_of(program_, b)].kind != Buffer::Kind::Input;
    bool supported = options_.kernels && is_supported(graph_.value(m.value).type);
    if (!own && supported && b != buffer(graph_.inputs()[m.input])) {
      program_.copy_of[m.value] = copy(m.value, Buffer::Kind::Temp);
    }
  }
}

Program ProgramBuilder::build() {
  OXY_CHECK(graph_.stage == ir::Stage::Aten, "loops are built from an ATen graph");
  add_sources();
  classify_values();
  for (ir::NodeId id : graph_.order()) {
    const ir::Node& n = graph_.node(id);
    if (n.dead) continue;
    if (n.kind == ir::NodeKind::Region) check_operands(n);
    if (n.kind == ir::NodeKind::CallOp || n.kind == ir::NodeKind::Region) add_node(n);
  }
  finish_outputs();
  finish_mutations();
  return std::move(program_);
}

}  // namespace

Program build_program(const ir::Graph& graph, const BuildOptions& options) {
  return ProgramBuilder(graph, options).build();
}

}  // namespace oxy::loops
