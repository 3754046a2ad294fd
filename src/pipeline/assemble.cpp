// Buffers, kernels, gemms and extern calls of a schedule as rows of a Plan.
#include "pipeline/assemble.h"

#include <algorithm>

#include "codegen/cpp/gemm.h"
#include "ops/op_table.h"
#include "pipeline/plan_writer.h"
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
using runtime::Size;
using sym::Expr;

constexpr std::pair<Buffer::Kind, PlanBuffer::Kind> kKinds[] = {
    {Buffer::Kind::Input, PlanBuffer::Kind::Input},
    {Buffer::Kind::Attribute, PlanBuffer::Kind::Attribute},
    {Buffer::Kind::Temp, PlanBuffer::Kind::Arena},
    {Buffer::Kind::Extern, PlanBuffer::Kind::Extern},
    {Buffer::Kind::Output, PlanBuffer::Kind::Output},
    {Buffer::Kind::View, PlanBuffer::Kind::View},
};

PlanBuffer::Kind kind_of(Buffer::Kind wanted) {
  for (const auto& [kind, of_plan] : kKinds)
    if (kind == wanted) return of_plan;
  OXY_FAIL("buffer kind");
}

// Iterations of the Parallel loops at the top.
Expr parallel_iterations(const schedule::Block& block) {
  if (block.empty()) return 1;
  const auto* loop = std::get_if<schedule::For>(&block.back().v);
  if (!loop || loop->kind != schedule::ForKind::Parallel) return 1;
  return loop->size * parallel_iterations(loop->body);
}

// A kernel of the plan as it is added.
struct KernelSource {
  std::string name, text;
  Size range = 1, scratch_bytes = 0, grain = 1;
  int64_t moved_bytes = 0;
  std::vector<Size> parameters;
};

class Assembler final : PlanWriter {
 public:
  Assembler(const ir::Graph& graph, const schedule::Schedule& s, const Machine& machine,
            const std::vector<bool>& frozen, RegionPlans regions, std::span<const Expr> numbers,
            std::span<const Fact> checks)
      : PlanWriter(graph, numbers, checks),
        schedule_(s),
        program_(s.program),
        machine_(machine),
        frozen_(frozen),
        regions_(std::move(regions)) {}

  Assembly run() {
    add_inputs();
    add_sizes(checks_now());
    define_symbols();
    add_buffers();
    for (const schedule::Kernel& k : schedule_.kernels) add_kernel(k);
    for (const schedule::ScheduledStep& step : schedule_.steps) add_step(step);
    add_results();
    for (runtime::PlanMutation& m : plan_.mutations)
      for (const auto& written : schedule_.in_place) m.in_place |= written.first == m.input;
    for (uint32_t i = 0; i < frozen_.size(); i++)
      if (frozen_[i]) plan_.frozen.push_back(i);
    plan_.arena_bytes = slot(schedule_.memory.arena_bytes);
    return {std::move(plan_), std::move(texts_)};
  }

 private:
  // In the order in which they run.
  void define_symbols() {
    for (const schedule::ScheduledStep& step : schedule_.steps) {
      const loops::Call* call = schedule::call_of(step);
      if (call == nullptr || graph_.node(call->node).kind == ir::NodeKind::Region) continue;
      defined_[call->node] = PlanWriter::define_symbols(graph_.node(call->node), outputs_of(*call));
    }
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
        const ir::TensorType& base = program_.buffers[b.base].type;
        type.offset +=
            sym::floordiv(base.offset * ir::byte_size(base.dtype), ir::byte_size(type.dtype));
      }
      p.meta = tensor(type);
      p.bytes = span_bytes(p.meta);
      // Of a size that is not known yet: memory of its own, once it is.
      if (b.kind == Buffer::Kind::Temp && schedule::is_late(b.type))
        p.kind = PlanBuffer::Kind::Output;
      const auto it = schedule_.memory.offset.find(BufferId(i));
      p.arena_offset = slot(it == schedule_.memory.offset.end() ? 0 : it->second);
      plan_.buffers.push_back(std::move(p));
    }
  }

  void add_kernel(const schedule::Kernel& k) {
    int64_t moved_bytes = schedule::moved_bytes(k);
    if (schedule::is_epilogue(k))
      moved_bytes -= cached_bytes(program_.buffers[schedule::epilogue_of(k)]);
    KernelSource source{k.name, codegen::cpp::emit(k, machine_)};
    source.range = size(parallel_iterations(k.body));
    source.scratch_bytes = size(codegen::cpp::scratch_bytes(k));
    source.grain = max(Size(tuning::thread_work) / max(iteration_cost(k), 1), 1);
    source.moved_bytes = moved_bytes;
    for (Expr s : k.parameters) source.parameters.push_back(size(s));
    add_source(std::move(source));
  }

  // What an iteration costs, by which threads share them.
  Size iteration_cost(const schedule::Kernel& k) {
    const Expr cost = schedule::varying_cost(k);
    return cost.is_const() ? Size(k.cost) : size(cost);
  }

  // An epilogue finds its matrix in the cache, and overwrites it there where the result lies in its
  // place.
  static int64_t cached_bytes(const Buffer& matrix) {
    return schedule::count_of(loops::byte_extent(matrix.type)) *
           (matrix.kind == Buffer::Kind::View ? 2 : 1);
  }

  uint32_t add_source(KernelSource source) {
    runtime::PlanKernel kernel{source.name, content_hash(source.text)};
    kernel.range = slot(source.range);
    kernel.grain = slot(source.grain);
    kernel.scratch_bytes = slot(source.scratch_bytes);
    kernel.moved_bytes = source.moved_bytes;
    for (const Size& p : source.parameters) kernel.parameters.push_back(slot(p));
    plan_.kernels.push_back(std::move(kernel));
    texts_.push_back({std::move(source.name), std::move(source.text)});
    return static_cast<uint32_t>(texts_.size() - 1);
  }

  void add_step(const schedule::ScheduledStep& step) {
    if (auto* call = std::get_if<schedule::KernelCall>(&step)) {
      plan_.steps.emplace_back(runtime::LaunchStep{call->kernel, buffers_of(call->kernel)});
    } else if (auto* free = std::get_if<schedule::Free>(&step)) {
      plan_.steps.emplace_back(runtime::FreeStep{free->buffer.index});
    } else if (auto* call = std::get_if<schedule::ContractionCall>(&step)) {
      add_contraction(*call);
    } else {
      add_call(std::get<schedule::ExternCall>(step).step);
    }
  }

  std::vector<uint32_t> buffers_of(uint32_t kernel) const {
    std::vector<uint32_t> out;
    for (const schedule::KernelBuffer& b : schedule_.kernels[kernel].buffers)
      if (b.kind != schedule::KernelBuffer::Kind::Local) out.push_back(b.buffer.index);
    return out;
  }

  uint32_t buffer_of(ir::ValueId v) const override {
    auto it = program_.buffer_of.find(v);
    OXY_CHECK(it != program_.buffer_of.end(), "a value without memory");
    return it->second.index;
  }

  uint32_t result_of(ir::ValueId v) const override {
    const BufferId* b = loops::result_of(program_, v);
    OXY_CHECK(b, "a result without memory");
    return b->index;
  }

  // The op of the call's node, on its arguments.
  void add_call(const loops::Call& e) {
    const ir::Node& n = graph_.node(e.node);
    if (n.kind == ir::NodeKind::Region)
      return add_region(n, std::move(regions_.at(n.id.index)), outputs_of(e));
    if (n.target != ops::kReadNumber) add_extern(n, n.target, arguments(n), outputs_of(e));
    add_sizes(std::move(defined_[n.id]));
  }

  static std::vector<int64_t> outputs_of(const loops::Call& e) {
    std::vector<int64_t> out;
    for (BufferId b : e.writes) out.push_back(b.valid() ? static_cast<int64_t>(b.index) : -1);
    return out;
  }

  void add_contraction(const schedule::ContractionCall& call) {
    const loops::ContractionStep& s = call.step;
    if (s.is_own()) return add_own_kernel(s, call.epilogue);
    if (s.provider == ops::Provider::Aten) return add_call(s);
    auto value = [](uint32_t buffer) { return PlanArg{runtime::BufferArg{buffer}}; };
    add_extern(graph_.node(s.node), "mkldnn._linear_pointwise.default",
               {value(s.a().index), value(transposed(s.b())),
                s.bias().valid() ? value(s.bias().index) : PlanArg{}, PlanArg{std::string("none")},
                PlanArg{PlanArg::List{}}, PlanArg{std::string()}},
               outputs_of(s));
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
    PlanBuffer t = plan_.buffers[b.index];
    t.kind = PlanBuffer::Kind::View;
    t.source = memory.index;
    std::swap(t.meta.sizes[0], t.meta.sizes[1]);
    std::swap(t.meta.strides[0], t.meta.strides[1]);
    t.name = cat("transposed_", t.name);
    plan_.buffers.push_back(std::move(t));
    return static_cast<uint32_t>(plan_.buffers.size() - 1);
  }

  // The parameters of the kernel for a contraction; how it is packed and finished comes later.
  Gemm parameters_of(const loops::ContractionStep& s) {
    const ops::ContractionLayout l = layout_of(program_, s);
    Gemm p;
    p.dtype = l.dtype, p.to_f32 = l.result != l.dtype;
    p.batch = size(l.batch), p.m = size(l.m), p.n = size(l.n), p.channels = size(l.k);
    p.a_batch = size(l.a_batch), p.a_row = size(l.a_row), p.a_k = size(l.a_k);
    p.b_batch = size(l.b_batch), p.b_k = size(l.b_k), p.b_n = size(l.b_n);
    p.c_batch = size(l.c_batch), p.c_row = size(l.c_row);
    p.a_offset = view_offset(s.a()), p.b_offset = view_offset(s.b());
    p.c_offset = view_offset(s.c());
    p.bias = s.bias().valid();
    if (p.bias) p.bias_offset = view_offset(s.bias());
    if (s.what.kind == ops::Contraction::Kind::Gemm) {
      p.rows = rows_of(p, l.m);
      return p;
    }
    p.in_h = size(l.in_h), p.in_w = size(l.in_w), p.out_w = size(l.out_w);
    p.kernel_h = size(l.kernel_h), p.kernel_w = size(l.kernel_w);
    p.stride_h = size(s.what.stride[0]), p.stride_w = size(s.what.stride[1]);
    p.pad_h = size(s.what.padding[0]), p.pad_w = size(s.what.padding[1]);
    p.dilation_h = size(s.what.dilation[0]), p.dilation_w = size(s.what.dilation[1]);
    return p;
  }

  // Many, where the number varies, unless there are never more than few.
  Gemm::Rows rows_of(const Gemm& p, Expr m) {
    if (m.is_const()) return Gemm::Rows::AsHinted;
    return sym::range_of(m).hi <= few_rows_limit(p, machine_) ? Gemm::Rows::Few : Gemm::Rows::Many;
  }

  // A gemm whose rows may be few or many is one of each kind, the other of which has no iterations:
  // either is several times as slow at what it is not for. The text for few has no epilogue, which
  // then runs behind it.
  void add_own_kernel(const loops::ContractionStep& s, std::optional<uint32_t> epilogue) {
    Gemm p = parameters_of(s);
    runtime::GemmStep step{{0, {s.a().index, s.b().index, s.c().index}}, std::nullopt};
    if (p.bias) step.gemm.buffers.push_back(s.bias().index);
    const int64_t limit =
        p.rows == Gemm::Rows::Many && may_be_few(s, p) ? few_rows_limit(p, machine_) : 0;
    const Size few = limit == 0 ? Size(0) : is_at_most(p.m, limit);
    if (limit > 0) {
      Gemm thin = p;
      thin.rows = Gemm::Rows::Few;
      runtime::GemmStep first = step;
      first.gemm.kernel = gemm_kernel(thin, 0, few);
      plan_.steps.emplace_back(std::move(first));
    }
    if (p.dtype == ir::DType::F32 && is_constant(s.b()) && has_constant_layout(s.b()) &&
        !codegen::cpp::reads_as_it_lies(p, machine_)) {
      step.gemm.buffers[1] = packed(p, s.b());
      p.packed = true;
    }
    Size cost = 0;
    if (epilogue) {
      const schedule::Kernel& kernel = schedule_.kernels[*epilogue];
      step.epilogue = runtime::LaunchStep{*epilogue, buffers_of(*epilogue)};
      p.epilogue = true;
      p.epilogue_reads = schedule::read_with_matrix(schedule_, kernel);
      p.epilogue_scratch = size(codegen::cpp::scratch_bytes(kernel));
      cost = size(parallel_iterations(kernel.body)) * iteration_cost(kernel);
    }
    step.gemm.kernel = gemm_kernel(p, cost, Size(1) - few);
    plan_.steps.emplace_back(std::move(step));
    if (epilogue && limit > 0)
      plan_.steps.emplace_back(
          runtime::LaunchStep{kernel_where(*epilogue, few), buffers_of(*epilogue)});
  }

  bool may_be_few(const loops::ContractionStep& s, const Gemm& p) const {
    return s.what.kind == ops::Contraction::Kind::Gemm && few_rows_limit(p, machine_) > 0;
  }

  // The kernel once more, without iterations where the condition does not hold.
  uint32_t kernel_where(uint32_t kernel, const Size& condition) {
    runtime::PlanKernel k = plan_.kernels[kernel];
    k.name += "_apart";
    k.range = slot(size(parallel_iterations(schedule_.kernels[kernel].body)) * condition);
    texts_.push_back({k.name, texts_[kernel].text});
    plan_.kernels.push_back(std::move(k));
    return static_cast<uint32_t>(plan_.kernels.size() - 1);
  }

  bool is_constant(BufferId b) const {
    const Buffer* buffer = &program_.buffers[b];
    while (buffer->kind == Buffer::Kind::View) buffer = &program_.buffers[buffer->base];
    if (buffer->kind == Buffer::Kind::Attribute) return !frozen_.empty();
    return buffer->kind == Buffer::Kind::Input && buffer->source < frozen_.size() &&
           frozen_[buffer->source];
  }

  bool has_constant_layout(BufferId b) const {
    const ir::TensorType& t = program_.buffers[b].type;
    auto constant = [](Expr e) { return e.is_const(); };
    return std::ranges::all_of(t.sizes, constant) && std::ranges::all_of(t.strides, constant) &&
           constant(t.offset);
  }

  // The attribute that holds the right side of `p` in panels.
  uint32_t packed(const Gemm& p, BufferId b) {
    runtime::PlanPacking packing;
    packing.from = b.index;
    packing.batch = p.b_batch.is_constant(0) ? 1 : p.batch.constant();
    packing.k = (p.channels * p.taps()).constant(), packing.n = p.n.constant();
    packing.batch_stride = p.b_batch.constant(), packing.k_stride = p.b_k.constant();
    packing.n_stride = p.b_n.constant(), packing.offset = p.b_offset.constant();
    packing.width = tuning::gemm_panel_columns(machine_);
    for (const runtime::PlanPacking& made : plan_.packings) {
      packing.to = made.to;
      if (made == packing) return made.to;
    }
    PlanBuffer buffer;
    buffer.kind = PlanBuffer::Kind::Attribute;
    buffer.meta.sizes = {constant(runtime::packed_elements(packing))};
    buffer.meta.strides = {constant(1)};
    buffer.meta.offset = buffer.arena_offset = constant(0);
    buffer.bytes = span_bytes(buffer.meta);
    buffer.source = static_cast<uint32_t>(attribute_count() + plan_.packings.size());
    buffer.name = cat("packed", plan_.packings.size());
    packing.to = static_cast<uint32_t>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(buffer));
    plan_.packings.push_back(packing);
    return packing.to;
  }

  size_t attribute_count() const {
    return static_cast<size_t>(std::ranges::count_if(graph_.order(), [&](ir::NodeId id) {
      return !graph_.node(id).dead && graph_.node(id).kind == ir::NodeKind::Attribute;
    }));
  }

  // One kernel text for all; a plan kernel a shape. `cost`: of the epilogue. It has iterations
  // where `wanted` holds.
  uint32_t gemm_kernel(const Gemm& p, const Size& cost, const Size& wanted) {
    for (const MadeGemm& made : gemms_)
      if (made.shape == p && made.cost == cost) return made.kernel;
    KernelSource source;
    source.name = cat(p.is_convolution() ? "convolution_" : "gemm_", gemms_.size());
    source.text = codegen::cpp::emit_gemm(p, machine_);
    const Size range = codegen::cpp::gemm_range(p, machine_);
    source.range = range * wanted;
    source.scratch_bytes = codegen::cpp::gemm_scratch_bytes(p, machine_) * wanted;
    source.parameters = codegen::cpp::gemm_parameters(p, machine_);
    source.moved_bytes = codegen::cpp::gemm_bytes(p);
    const Size work = (p.multiplications() + tuning::gemm_work * cost) / max(range, 1);
    source.grain = max(Size(tuning::gemm_work * tuning::thread_work) / max(work, 1), 1);
    uint32_t kernel = add_source(std::move(source));
    gemms_.push_back({p, cost, kernel});
    return kernel;
  }

  // Elements between a view and the first element of its base, which is what a kernel gets.
  Size view_offset(BufferId b) {
    const Buffer& buffer = program_.buffers[b];
    return buffer.kind == Buffer::Kind::View ? size(buffer.type.offset) : Size(0);
  }

  const schedule::Schedule& schedule_;
  const loops::Program& program_;
  const Machine& machine_;
  const std::vector<bool>& frozen_;
  RegionPlans regions_;
  std::unordered_map<ir::NodeId, runtime::SizeStep> defined_;  // of calls: what is read of them
  std::vector<KernelText> texts_;
  struct MadeGemm {
    Gemm shape;
    Size cost;
    uint32_t kernel;
  };
  std::vector<MadeGemm> gemms_;
};

}  // namespace

Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const Machine& machine, const std::vector<bool>& frozen, RegionPlans regions,
                  std::span<const Expr> numbers, std::span<const Fact> checks) {
  return Assembler(graph, schedule, machine, frozen, std::move(regions), numbers, checks).run();
}

}  // namespace oxy::pipeline
