// Buffers, kernels, gemms and extern calls of a schedule as rows of a Plan.
#include "pipeline/assemble.h"

#include <algorithm>

#include "codegen/cpp/gemm.h"
#include "ops/op_table.h"
#include "pipeline/lower_sizes.h"
#include "runtime/pack.h"
#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/epilogues.h"
#include "support/check.h"
#include "support/tuning.h"

namespace oxy::pipeline {
namespace {

using codegen::cpp::Gemm;
using loops::Buffer;
using loops::BufferId;
using runtime::PlanArg;
using runtime::PlanBuffer;
using sym::Expr;

int64_t known(Expr e) {
  OXY_CHECK(e.is_const(), "a plan needs known sizes, not ", e);
  return e.value();
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

// Iterations of the Parallel loops at the top.
Expr parallel_iterations(const schedule::Block& block) {
  if (block.empty()) return 1;
  const auto* loop = std::get_if<schedule::For>(&block.back().v);
  if (!loop || loop->kind != schedule::ForKind::Parallel) return 1;
  return loop->size * parallel_iterations(loop->body);
}

class Assembler {
 public:
  Assembler(const ir::Graph& graph, const schedule::Schedule& s, const Machine& machine,
            const std::vector<bool>& frozen, RegionPlans regions)
      : graph_(graph),
        schedule_(s),
        program_(s.program),
        machine_(machine),
        frozen_(frozen),
        regions_(std::move(regions)),
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
    source.range = parallel_iterations(k.body);
    source.grain = std::max<int64_t>(1, tuning::thread_work / std::max<int64_t>(1, k.cost));
    source.scratch_bytes = codegen::cpp::scratch_bytes(k);
    source.parameters = k.parameters;
    source.moved_bytes = schedule::moved_bytes(k);
    if (schedule::is_epilogue(k))
      source.moved_bytes -= cached_bytes(program_.buffers[schedule::epilogue_of(k)]);
    add_source(std::move(source));
  }

  // An epilogue finds its matrix in the cache, and overwrites it there where the result lies in its
  // place.
  static int64_t cached_bytes(const Buffer& matrix) {
    return known(loops::byte_extent(matrix.type)) * (matrix.kind == Buffer::Kind::View ? 2 : 1);
  }

  uint32_t add_source(KernelSource source) {
    plan().kernels.push_back({source.name, content_hash(source.text), sizes_.slot(source.range),
                              sizes_.constant(source.grain), sizes_.slot(source.scratch_bytes),
                              source.moved_bytes, sizes_.slots(source.parameters)});
    out_.texts.push_back({std::move(source.name), std::move(source.text)});
    return static_cast<uint32_t>(out_.texts.size() - 1);
  }

  void add_step(const schedule::ScheduledStep& step) {
    if (auto* call = std::get_if<schedule::KernelCall>(&step)) {
      plan().steps.emplace_back(runtime::LaunchStep{call->kernel, buffers_of(call->kernel)});
    } else if (auto* free = std::get_if<schedule::Free>(&step)) {
      plan().steps.emplace_back(runtime::FreeStep{free->buffer.index});
    } else if (auto* call = std::get_if<schedule::ContractionCall>(&step)) {
      add_contraction(*call);
    } else {
      add_extern(std::get<schedule::ExternCall>(step).step);
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

  void add_region(const loops::Call& e) {
    const ir::Node& n = graph_.node(e.node);
    runtime::RegionStep step = region_step(n, std::move(regions_.at(n.id.index)), plan());
    for (const ir::Arg& a : n.args) step.operands.push_back(buffer_of(a.value()).index);
    for (BufferId b : e.writes) step.results.push_back(b.index);
    plan().steps.emplace_back(std::move(step));
  }

  // The op of the call's node, on its arguments.
  void add_extern(const loops::Call& e) {
    const ir::Node& n = graph_.node(e.node);
    PlanArg::List args;
    for (const ir::Arg& a : n.args)
      args.push_back(sizes_.argument(a, [this](ir::ValueId v) { return buffer_of(v).index; }));
    add_extern(e, n.target, std::move(args));
  }

  void add_extern(const loops::Call& e, std::string op, PlanArg::List args) {
    const ir::Node& n = graph_.node(e.node);
    if (n.kind == ir::NodeKind::Region) return add_region(e);
    const ops::OpInfo* info = ops::find(n);
    runtime::ExternStep step;
    step.op = std::move(op);
    step.args = std::move(args);
    step.returns = n.returns;
    for (BufferId b : e.writes)
      step.outputs.push_back(b.valid() ? static_cast<int64_t>(b.index) : -1);
    step.random = info && info->has(ops::Random);
    step.origin = n.id.index;
    plan().steps.emplace_back(std::move(step));
  }

  void add_contraction(const schedule::ContractionCall& call) {
    const loops::ContractionStep& s = call.step;
    if (s.is_own()) return add_own_kernel(s, call.epilogue);
    if (s.provider == ops::Provider::Aten) return add_extern(s);
    auto value = [](uint32_t buffer) { return PlanArg{runtime::BufferArg{buffer}}; };
    add_extern(s, "mkldnn._linear_pointwise.default",
               {value(s.a().index), value(transposed(s.b())),
                s.bias().valid() ? value(s.bias().index) : PlanArg{}, PlanArg{std::string("none")},
                PlanArg{PlanArg::List{}}, PlanArg{std::string()}});
  }

  // A matrix as (columns, rows), which is what oneDNN calls weights.
  uint32_t transposed(BufferId b) {
    const Buffer& matrix = program_.buffers[b];
    const BufferId memory = memory_of(program_, b);
    ir::TensorType type = matrix.type;
    std::swap(type.sizes[0], type.sizes[1]);
    std::swap(type.strides[0], type.strides[1]);
    const ir::TensorType& whole = program_.buffers[memory].type;
    if (matrix.kind == Buffer::Kind::View && type.offset == 0 && type.sizes == whole.sizes &&
        type.strides == whole.strides)
      return memory.index;  // has been transposed before
    PlanBuffer t = plan().buffers[b.index];
    t.kind = PlanBuffer::Kind::View;
    t.source = memory.index;
    std::swap(t.meta.sizes[0], t.meta.sizes[1]);
    std::swap(t.meta.strides[0], t.meta.strides[1]);
    t.name = cat("transposed_", t.name);
    plan().buffers.push_back(std::move(t));
    return static_cast<uint32_t>(plan().buffers.size() - 1);
  }

  // The parameters of the kernel for a contraction; how it is packed and finished comes later.
  Gemm parameters_of(const loops::ContractionStep& s) const {
    const ops::ContractionLayout l = layout_of(program_, s);
    Gemm p;
    p.dtype = l.dtype;
    p.batch = known(l.batch), p.m = known(l.m), p.n = known(l.n), p.channels = known(l.k);
    p.a_batch = known(l.a_batch), p.a_row = known(l.a_row);
    p.b_batch = known(l.b_batch), p.b_k = known(l.b_k), p.b_n = known(l.b_n);
    p.c_batch = known(l.c_batch), p.c_row = known(l.c_row);
    p.a_offset = view_offset(s.a()), p.b_offset = view_offset(s.b());
    p.c_offset = view_offset(s.c());
    p.bias = s.bias().valid();
    if (p.bias) p.bias_offset = view_offset(s.bias());
    if (s.what.kind == ops::Contraction::Kind::Gemm) return p;
    p.in_h = known(l.in_h), p.in_w = known(l.in_w), p.out_w = known(l.out_w);
    p.kernel_h = known(l.kernel_h), p.kernel_w = known(l.kernel_w);
    p.stride_h = known(s.what.stride[0]), p.stride_w = known(s.what.stride[1]);
    p.pad_h = known(s.what.padding[0]), p.pad_w = known(s.what.padding[1]);
    p.dilation_h = known(s.what.dilation[0]), p.dilation_w = known(s.what.dilation[1]);
    return p;
  }

  void add_own_kernel(const loops::ContractionStep& s, std::optional<uint32_t> epilogue) {
    Gemm p = parameters_of(s);
    runtime::GemmStep step{{0, {s.a().index, s.b().index, s.c().index}}, std::nullopt};
    if (p.dtype == ir::DType::F32 && is_constant(s.b()) && !codegen::cpp::reads_as_it_lies(p)) {
      step.gemm.buffers[1] = packed(p, s.b());
      p.packed = true;
    }
    if (p.bias) step.gemm.buffers.push_back(s.bias().index);
    int64_t cost = 0;
    if (epilogue) {
      step.epilogue = runtime::LaunchStep{*epilogue, buffers_of(*epilogue)};
      p.epilogue = true;
      p.epilogue_reads = schedule::read_with_matrix(schedule_, schedule_.kernels[*epilogue]);
      p.epilogue_scratch = known(codegen::cpp::scratch_bytes(schedule_.kernels[*epilogue]));
      const schedule::Kernel& kernel = schedule_.kernels[*epilogue];
      cost = known(parallel_iterations(kernel.body)) * kernel.cost;
    }
    step.gemm.kernel = gemm_kernel(p, cost);
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
  uint32_t packed(const Gemm& p, BufferId b) {
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
  uint32_t gemm_kernel(const Gemm& p, int64_t cost) {
    for (const MadeGemm& made : gemms_)
      if (made.shape == p && made.cost == cost) return made.kernel;
    KernelSource source;
    source.name = cat(p.in_h ? "convolution_" : "gemm_", gemms_.size());
    source.text = codegen::cpp::emit_gemm(p, machine_);
    const int64_t range = codegen::cpp::gemm_range(p, machine_);
    source.range = range;
    source.scratch_bytes = codegen::cpp::gemm_scratch_bytes(p, machine_);
    for (const int64_t n : codegen::cpp::gemm_parameters(p, machine_))
      source.parameters.push_back(n);
    source.moved_bytes = codegen::cpp::gemm_bytes(p);
    source.grain = std::max<int64_t>(
        1, tuning::gemm_work * tuning::thread_work /
               std::max<int64_t>(1, (p.multiplications() + tuning::gemm_work * cost) / range));
    uint32_t kernel = add_source(std::move(source));
    gemms_.push_back({p, cost, kernel});
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
  RegionPlans regions_;
  Assembly out_;
  SizeLowering sizes_;
  struct MadeGemm {
    Gemm shape;
    int64_t cost;
    uint32_t kernel;
  };
  std::vector<MadeGemm> gemms_;
};

}  // namespace

Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const Machine& machine, const std::vector<bool>& frozen, RegionPlans regions) {
  return Assembler(graph, schedule, machine, frozen, std::move(regions)).run();
}

runtime::RegionStep region_step(const ir::Node& n, std::vector<runtime::Plan> regions,
                                runtime::Plan& plan) {
  using Kind = runtime::RegionStep::Kind;
  if (n.target != "cond" && n.target != "while_loop")
    throw Unsupported(cat("a plan of ", n.target));
  runtime::RegionStep step;
  step.kind = n.target == "cond" ? Kind::Cond : Kind::Loop;
  for (runtime::Plan& region : regions) {
    step.plans.push_back(static_cast<uint32_t>(plan.regions.size()));
    plan.regions.push_back(std::move(region));
  }
  return step;
}

}  // namespace oxy::pipeline
