#include "pipeline/assemble.h"

#include <algorithm>

#include "codegen/cpp/product.h"
#include "ops/op_table.h"
#include "pipeline/lower_sizes.h"
#include "runtime/pack.h"
#include "schedule/epilogues.h"
#include "schedule/moved_bytes.h"
#include "schedule/step_uses.h"
#include "support/check.h"
#include "support/tuning.h"

namespace oxy::pipeline {
namespace {

using codegen::cpp::Product;
using loops::Buffer;
using loops::BufferId;
using runtime::PlanBuffer;
using sym::Expr;

int64_t known(Expr e) {
  OXY_CHECK(e.is_const(), "a plan needs known sizes, not ", e);
  return e.value();
}

std::vector<int64_t> known(const std::vector<Expr>& list) {
  std::vector<int64_t> out;
  for (const Expr e : list) out.push_back(known(e));
  return out;
}

PlanBuffer::Kind kind_of(Buffer::Kind k) {
  switch (k) {
    case Buffer::Kind::Input:
      return PlanBuffer::Kind::Input;
    case Buffer::Kind::Attribute:
      return PlanBuffer::Kind::Attribute;
    case Buffer::Kind::Temp:
      return PlanBuffer::Kind::Arena;
    case Buffer::Kind::Extern:
      return PlanBuffer::Kind::Extern;
    case Buffer::Kind::Output:
      return PlanBuffer::Kind::Output;
    case Buffer::Kind::View:
      return PlanBuffer::Kind::View;
  }
  OXY_FAIL("buffer kind");
}

// Points of the Parallel loops at the top.
Expr parallel_points(const schedule::Block& block) {
  if (block.empty()) return 1;
  const auto* loop = std::get_if<schedule::For>(&block.back().v);
  if (!loop || loop->kind != schedule::ForKind::Parallel) return 1;
  return loop->size * parallel_points(loop->body);
}

class Assembler {
 public:
  Assembler(const ir::Graph& graph, const schedule::Schedule& s, const Machine& machine,
            const std::vector<bool>& frozen)
      : graph_(graph),
        schedule_(s),
        program_(s.program),
        machine_(machine),
        frozen_(frozen),
        sizes_(graph, out_.plan.sizes) {}

  Assembly run() {
    add_inputs();
    add_buffers();
    for (const schedule::Kernel& k : schedule_.kernels) add_kernel(k);
    for (const schedule::ScheduledStep& step : schedule_.steps) add_step(step);
    add_results();
    for (uint32_t i = 0; i < frozen_.size(); i++)
      if (frozen_[i]) plan().frozen.push_back(i);
    plan().arena_bytes = sizes_.slot(schedule_.memory.arena_bytes);
    return std::move(out_);
  }

 private:
  runtime::Plan& plan() { return out_.plan; }

  void add_inputs() {
    for (ir::ValueId v : graph_.inputs()) plan().inputs.push_back(sizes_.input(v));
  }

  void add_buffers() {
    for (size_t i = 0; i < program_.buffers.size(); i++) {
      const Buffer& b = program_.buffers[BufferId(i)];
      ir::TensorType type = b.type;
      PlanBuffer p;
      p.kind = kind_of(b.kind);
      p.name = b.name;
      p.source = b.source;
      if (b.kind == Buffer::Kind::View) {
        p.source = b.base.index;
        // From the start of the storage, as torch counts.
        type.offset += program_.buffers[b.base].type.offset;
      }
      p.meta = sizes_.tensor(type);
      p.bytes = sizes_.span_bytes(p.meta);
      const auto it = schedule_.memory.offset.find(BufferId(i));
      p.arena_offset = sizes_.slot(it == schedule_.memory.offset.end() ? 0 : it->second);
      plan().buffers.push_back(std::move(p));
    }
  }

  void add_kernel(const schedule::Kernel& k) {
    KernelSource source;
    source.name = k.name;
    source.text = codegen::cpp::emit(k, machine_);
    source.range = parallel_points(k.body);
    source.grain = std::max<int64_t>(1, tuning::thread_work / std::max<int64_t>(1, k.cost));
    source.scratch_bytes = codegen::cpp::scratch_bytes(k);
    source.moved_bytes = schedule::moved_bytes(k);
    if (k.epilogue_of.valid()) source.moved_bytes -= cached_bytes(program_.buffers[k.epilogue_of]);
    add_source(std::move(source));
  }

  // An epilogue finds its matrix in the cache, and overwrites it there where the result lies in its place.
  static int64_t cached_bytes(const Buffer& matrix) {
    return known(loops::byte_extent(matrix.type)) * (matrix.kind == Buffer::Kind::View ? 2 : 1);
  }

  uint32_t add_source(KernelSource source) {
    plan().kernels.push_back({source.name, content_hash(source.text), sizes_.slot(source.range),
                              sizes_.constant(source.grain), sizes_.constant(source.scratch_bytes),
                              source.moved_bytes, sizes_.slots(source.parameters)});
    out_.texts.push_back(std::move(source.text));
    return static_cast<uint32_t>(out_.texts.size() - 1);
  }

  void add_step(const schedule::ScheduledStep& step) {
    if (auto* call = std::get_if<schedule::KernelCall>(&step)) {
      plan().steps.emplace_back(runtime::LaunchStep{call->kernel, buffers_of(call->kernel)});
    } else if (auto* free = std::get_if<schedule::Free>(&step)) {
      plan().steps.emplace_back(runtime::FreeStep{free->buffer.index});
    } else {
      const auto& call = std::get<schedule::ExternCall>(step);
      const loops::ExternStep& e = call.step;
      if (!schedule::is_own_kernel(program_, e))
        add_extern(e);
      else if (graph_.node(e.node).target == "aten.convolution.default")
        add_convolution(e, call.epilogue);
      else
        add_product(e, call.epilogue);
    }
  }

  std::vector<uint32_t> buffers_of(uint32_t kernel) const {
    std::vector<uint32_t> out;
    for (const schedule::KernelBuffer& b : schedule_.kernels[kernel].buffers)
      if (b.kind != schedule::KernelBuffer::Kind::Local) out.push_back(b.buffer.index);
    return out;
  }

  BufferId buffer_of(ir::ValueId v) const {
    auto it = program_.buffer_of.find(v);
    OXY_CHECK(it != program_.buffer_of.end(), "a value without memory");
    return it->second;
  }

  void add_extern(const loops::ExternStep& e) {
    const ir::Node& n = graph_.node(e.node);
    const ops::OpInfo* info = ops::find(n);
    runtime::ExternStep step;
    step.op = n.target;
    for (const ir::Arg& a : n.args)
      step.args.push_back(sizes_.argument(a, [this](ir::ValueId v) { return buffer_of(v).index; }));
    step.returns = n.returns;
    for (BufferId b : e.writes)
      step.outputs.push_back(b.valid() ? static_cast<int64_t>(b.index) : -1);
    step.random = info && info->has(ops::Random);
    step.origin = n.id.index;
    plan().steps.emplace_back(std::move(step));
  }

  // mm(a, b), bmm(a, b) or addmm(bias, a, b): the last two dimensions are the product's, one before them is the batch.
  void add_product(const loops::ExternStep& e, std::optional<uint32_t> epilogue) {
    const ir::Node& n = graph_.node(e.node);
    const size_t first = n.args.size() > 2 ? 1 : 0;
    BufferId a = buffer_of(n.arg(first).value()), b = buffer_of(n.arg(first + 1).value()),
             c = e.writes.at(0);
    const auto ma = dims(a), mb = dims(b), mc = dims(c);
    Product p;
    const size_t d = ma.sizes.size() - 2;
    p.batch = d ? ma.sizes[0] : 1;
    p.m = ma.sizes[d];
    p.n = mb.sizes[d + 1];
    p.channels = ma.sizes[d + 1];
    p.a_row = ma.strides[d];
    p.b_k = mb.strides[d];
    p.b_n = mb.strides[d + 1];
    p.c_row = mc.strides[d];
    p.dtype = program_.buffers[c].type.dtype;
    if (d) p.a_batch = ma.strides[0], p.b_batch = mb.strides[0], p.c_batch = mc.strides[0];
    std::optional<BufferId> bias;
    if (first) bias = buffer_of(n.arg(0).value());
    add_own_kernel("product", p, a, b, c, bias, epilogue);
  }

  // convolution(x, w, bias, stride, padding, dilation, ...) on channels-last x.
  void add_convolution(const loops::ExternStep& e, std::optional<uint32_t> epilogue) {
    const ir::Node& n = graph_.node(e.node);
    BufferId x = buffer_of(n.arg(0).value()), w = buffer_of(n.arg(1).value()), out = e.writes.at(0);
    const auto xs = dims(x).sizes, ws = dims(w).sizes, os = dims(out).sizes;
    auto number = [&](size_t i, size_t d) { return known((*n.arg(i).items())[d].get<ir::Expr>()); };
    Product p;
    p.batch = xs[0], p.channels = xs[1], p.in_h = xs[2], p.in_w = xs[3];
    p.n = os[1], p.m = os[2] * os[3], p.out_w = os[3];
    p.kernel_h = ws[2], p.kernel_w = ws[3];
    p.stride_h = number(3, 0), p.stride_w = number(3, 1);
    p.pad_h = number(4, 0), p.pad_w = number(4, 1);
    p.dilation_h = number(5, 0), p.dilation_w = number(5, 1);
    p.a_row = p.channels, p.a_batch = p.in_h * p.in_w * p.channels;
    p.b_k = 1, p.b_n = p.channels * p.taps();
    p.c_row = p.n, p.c_batch = p.m * p.n;
    std::optional<BufferId> bias;
    if (n.arg(2).is_value()) bias = buffer_of(n.arg(2).value());
    add_own_kernel("convolution", p, x, w, out, bias, epilogue);
  }

  struct Dims {
    std::vector<int64_t> sizes, strides;
  };
  Dims dims(BufferId b) const {
    const ir::TensorType& t = program_.buffers[b].type;
    return {known(t.sizes), known(t.strides)};
  }

  void add_own_kernel(const char* name, Product p, BufferId a, BufferId b, BufferId c,
                      std::optional<BufferId> bias, std::optional<uint32_t> epilogue) {
    p.a_offset = view_offset(a);
    p.b_offset = view_offset(b);
    p.c_offset = view_offset(c);
    runtime::ProductStep step{{0, {a.index, b.index, c.index}}, std::nullopt};
    if (p.dtype == ir::DType::F32 && is_constant(b) && !codegen::cpp::reads_as_it_lies(p)) {
      step.product.buffers[1] = packed(p, b);
      p.packed = true;
    }
    if (bias) {
      p.bias = true;
      p.bias_offset = view_offset(*bias);
      step.product.buffers.push_back(bias->index);
    }
    int64_t cost = 0;
    if (epilogue) {
      step.epilogue = runtime::LaunchStep{*epilogue, buffers_of(*epilogue)};
      p.epilogue = true;
      p.epilogue_reads = schedule::read_with_matrix(schedule_, schedule_.kernels[*epilogue]);
      p.epilogue_scratch = codegen::cpp::scratch_bytes(schedule_.kernels[*epilogue]);
      const schedule::Kernel& kernel = schedule_.kernels[*epilogue];
      cost = known(parallel_points(kernel.body)) * kernel.cost;
    }
    step.product.kernel = product_kernel(name, p, cost);
    plan().steps.emplace_back(std::move(step));
  }

  bool is_constant(BufferId b) const {
    const Buffer* buffer = &program_.buffers[b];
    while (buffer->kind == Buffer::Kind::View) buffer = &program_.buffers[buffer->base];
    if (buffer->kind == Buffer::Kind::Attribute) return !frozen_.empty();
    return buffer->kind == Buffer::Kind::Input && buffer->source < frozen_.size() &&
           frozen_[buffer->source];
  }

  // The attribute that holds the right side of `p` in panels.
  uint32_t packed(const Product& p, BufferId b) {
    runtime::PlanPacking packing;
    packing.from = b.index;
    packing.batch = p.b_batch ? p.batch : 1;
    packing.k = p.channels * p.taps(), packing.n = p.n;
    packing.batch_stride = p.b_batch, packing.k_stride = p.b_k, packing.n_stride = p.b_n;
    packing.offset = p.b_offset;
    packing.width = tuning::gemm_panel_columns(machine_);
    for (const runtime::PlanPacking& made : plan().packings) {
      packing.to = made.to;
      if (made == packing) return made.to;
    }
    PlanBuffer buffer;
    buffer.kind = PlanBuffer::Kind::Attribute;
    buffer.meta.sizes = {sizes_.constant(runtime::packed_elements(packing))};
    buffer.meta.strides = {sizes_.constant(1)};
    buffer.meta.offset = buffer.arena_offset = sizes_.constant(0);
    buffer.bytes = sizes_.span_bytes(buffer.meta);
    buffer.source = static_cast<uint32_t>(attribute_count() + plan().packings.size());
    buffer.name = cat("packed", plan().packings.size());
    packing.to = static_cast<uint32_t>(plan().buffers.size());
    plan().buffers.push_back(std::move(buffer));
    plan().packings.push_back(packing);
    return packing.to;
  }

  size_t attribute_count() const {
    size_t count = 0;
    for (ir::NodeId id : graph_.order())
      count += !graph_.node(id).dead && graph_.node(id).kind == ir::NodeKind::Attribute;
    return count;
  }

  // One kernel text for all; a plan kernel a shape. `cost`: of the epilogue.
  uint32_t product_kernel(const char* name, const Product& p, int64_t cost) {
    for (const MadeProduct& made : products_)
      if (made.shape == p && made.cost == cost) return made.kernel;
    KernelSource source;
    source.name = cat(name, "_", products_.size());
    source.text = codegen::cpp::emit_product(p, machine_);
    const int64_t range = codegen::cpp::product_range(p, machine_);
    source.range = range;
    source.scratch_bytes = codegen::cpp::product_scratch_bytes(p, machine_);
    for (const int64_t n : codegen::cpp::product_parameters(p, machine_))
      source.parameters.push_back(n);
    source.moved_bytes = codegen::cpp::product_bytes(p);
    source.grain = std::max<int64_t>(
        1, tuning::gemm_work * tuning::thread_work /
               std::max<int64_t>(1, (p.multiplications() + tuning::gemm_work * cost) / range));
    uint32_t kernel = add_source(std::move(source));
    products_.push_back({p, cost, kernel});
    return kernel;
  }

  // Elements between a view and the first element of its base, which is what a kernel gets.
  int64_t view_offset(BufferId b) const {
    const Buffer& buffer = program_.buffers[b];
    return buffer.kind == Buffer::Kind::View ? known(buffer.type.offset) : 0;
  }

  void add_results() {
    for (const ir::OutputSpec& spec : graph_.outputs)
      plan().outputs.push_back(
          sizes_.output(spec, [this](ir::ValueId v) { return buffer_of(v).index; }));
    for (const ir::Mutation& m : graph_.mutations) {
      bool in_place = std::any_of(schedule_.in_place.begin(), schedule_.in_place.end(),
                                  [&](const auto& p) { return p.first == m.input; });
      plan().mutations.push_back(sizes_.mutation(m, buffer_of(m.value).index, in_place));
    }
  }

  const ir::Graph& graph_;
  const schedule::Schedule& schedule_;
  const loops::Program& program_;
  const Machine& machine_;
  const std::vector<bool>& frozen_;
  Assembly out_;
  SizeLowering sizes_;
  struct MadeProduct {
    Product shape;
    int64_t cost;
    uint32_t kernel;
  };
  std::vector<MadeProduct> products_;
};

}  // namespace

Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const Machine& machine, const std::vector<bool>& frozen) {
  return Assembler(graph, schedule, machine, frozen).run();
}

}  // namespace oxy::pipeline
