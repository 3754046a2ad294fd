#include "pipeline/assemble.h"

#include <algorithm>

#include "codegen/cpp/conv2d.h"
#include "codegen/cpp/matmul.h"
#include "ops/op_table.h"
#include "runtime/extern_plan.h"
#include "support/check.h"

namespace oxy::pipeline {
namespace {

using loops::Buffer;
using loops::BufferId;
using runtime::PlanBuffer;

int64_t known(sym::Expr e) {
  OXY_CHECK(e.is_const(), "a plan needs known sizes, not ", e);
  return e.value();
}

PlanBuffer::Kind kind_of(Buffer::Kind k) {
  switch (k) {
    case Buffer::Kind::Input: return PlanBuffer::Kind::Input;
    case Buffer::Kind::Attribute: return PlanBuffer::Kind::Attribute;
    case Buffer::Kind::Temp: return PlanBuffer::Kind::Arena;
    case Buffer::Kind::Extern: return PlanBuffer::Kind::Extern;
    case Buffer::Kind::Output: return PlanBuffer::Kind::Output;
    case Buffer::Kind::View: return PlanBuffer::Kind::View;
  }
  OXY_FAIL("buffer kind");
}

// Points of the Parallel loops at the top.
int64_t parallel_points(const schedule::Block& block) {
  if (block.size() != 1) return 1;
  const auto* loop = std::get_if<schedule::For>(&block[0].v);
  if (!loop || loop->kind != schedule::ForKind::Parallel) return 1;
  return known(loop->size) * parallel_points(loop->body);
}

// Less than this many bytes and flops are not worth a second thread.
constexpr int64_t kWorkOfAThread = 32 * 1024;

class Assembler {
 public:
  Assembler(const ir::Graph& graph, const schedule::Schedule& s, const codegen::cpp::Target& target)
      : graph_(graph), schedule_(s), program_(s.program), target_(target) {}

  Assembly run() {
    add_inputs();
    add_buffers();
    for (const schedule::Kernel& k : schedule_.kernels) add_kernel(k);
    for (const schedule::ScheduledStep& step : schedule_.steps) add_step(step);
    add_results();
    plan().arena_bytes = known(schedule_.memory.arena_bytes);
    return std::move(out_);
  }

 private:
  runtime::Plan& plan() { return out_.plan; }

  void add_inputs() {
    for (ir::ValueId v : graph_.inputs()) {
      const ir::Type& type = graph_.value(v).type;
      runtime::TensorMeta number;
      number.dtype = ir::DType::None;
      if (type.kind == ir::Type::Kind::Int) number.offset = known(type.expr);
      plan().inputs.push_back(type.is_tensor() ? runtime::meta_of(type.tensor) : number);
    }
  }

  void add_buffers() {
    for (size_t i = 0; i < program_.buffers.size(); i++) {
      const Buffer& b = program_.buffers[BufferId(i)];
      PlanBuffer p;
      p.kind = kind_of(b.kind);
      p.meta = runtime::meta_of(b.type);
      p.name = b.name;
      p.source = b.source;
      if (b.kind == Buffer::Kind::View) {
        p.source = b.base.index;
        p.meta.offset += known(program_.buffers[b.base].type.offset);  // from the start of the storage, as torch counts
      }
      p.bytes = runtime::span_bytes(p.meta);
      if (auto it = schedule_.memory.offset.find(BufferId(i)); it != schedule_.memory.offset.end())
        p.arena_offset = known(it->second);
      plan().buffers.push_back(std::move(p));
    }
  }

  void add_kernel(const schedule::Kernel& k) {
    KernelSource source;
    source.name = k.name;
    source.text = codegen::cpp::emit(k, target_);
    source.range = parallel_points(k.body);
    source.grain = std::max<int64_t>(1, kWorkOfAThread / std::max<int64_t>(1, k.cost));
    source.scratch_bytes = codegen::cpp::scratch_bytes(k);
    add_source(std::move(source));
  }

  uint32_t add_source(KernelSource source) {
    plan().kernels.push_back({source.name, nullptr, source.range, source.grain, source.scratch_bytes});
    out_.sources.push_back(std::move(source));
    return static_cast<uint32_t>(out_.sources.size() - 1);
  }

  void add_step(const schedule::ScheduledStep& step) {
    if (auto* call = std::get_if<schedule::KernelCall>(&step)) {
      runtime::KernelStep k{call->kernel, {}};
      for (const schedule::KernelBuffer& b : schedule_.kernels[call->kernel].buffers)
        if (b.kind != schedule::KernelBuffer::Kind::Local) k.buffers.push_back(b.buffer.index);
      plan().steps.emplace_back(std::move(k));
    } else if (auto* free = std::get_if<schedule::Free>(&step)) {
      plan().steps.emplace_back(runtime::FreeStep{free->buffer.index});
    } else {
      const loops::ExternStep& e = std::get<schedule::ExternCall>(step).step;
      if (!is_own_kernel(e)) add_extern(e);
      else if (graph_.node(e.node).target == "aten.convolution.default") add_convolution(e);
      else add_product(e);
    }
  }

  BufferId buffer_of(ir::ValueId v) const {
    auto it = program_.buffer_of.find(v);
    OXY_CHECK(it != program_.buffer_of.end(), "a value without memory");
    return it->second;
  }

  ir::Arg argument(const ir::Arg& a) const {
    if (a.is_value()) {
      const ir::Type& type = graph_.value(a.value()).type;
      if (type.kind == ir::Type::Kind::Int) return ir::Arg(type.expr);
      return ir::Arg(ir::ValueId(buffer_of(a.value()).index));
    }
    if (auto* l = a.get_if<ir::List>()) {
      ir::List out;
      for (const ir::Arg& x : l->items) out.items.push_back(argument(x));
      return ir::Arg(std::move(out));
    }
    return a;
  }

  // Building the program gave such a step memory of the plan to write to.
  bool is_own_kernel(const loops::ExternStep& e) const {
    return e.writes.size() == 1 && e.writes[0].valid() && program_.buffers[e.writes[0]].kind != Buffer::Kind::Extern;
  }

  void add_extern(const loops::ExternStep& e) {
    const ir::Node& n = graph_.node(e.node);
    const ops::OpInfo* info = ops::find(n);
    runtime::ExternStep step;
    step.op = n.target;
    for (const ir::Arg& a : n.args) step.args.push_back(argument(a));
    step.returns = n.returns;
    for (BufferId b : e.writes) step.outputs.push_back(b.valid() ? static_cast<int64_t>(b.index) : -1);
    step.random = info && info->has(ops::Random);
    step.origin = n.id.index;
    plan().steps.emplace_back(std::move(step));
  }

  // mm(a, b), bmm(a, b) or addmm(bias, a, b): the last two dimensions are the product's, one before them is the batch.
  void add_product(const loops::ExternStep& e) {
    const ir::Node& n = graph_.node(e.node);
    const size_t first = n.args.size() > 2 ? 1 : 0;
    BufferId a = buffer_of(n.arg(first).value()), b = buffer_of(n.arg(first + 1).value()), c = e.writes.at(0);
    const PlanBuffer &pa = plan().buffers[a.index], &pb = plan().buffers[b.index], &pc = plan().buffers[c.index];
    codegen::cpp::Matmul m;
    size_t d = pa.meta.sizes.size() - 2;
    auto batch = [&](const PlanBuffer& p) { return d ? p.meta.strides[0] : 0; };
    m.batch = d ? pa.meta.sizes[0] : 1;
    m.m = pa.meta.sizes[d];
    m.k = pa.meta.sizes[d + 1];
    m.n = pb.meta.sizes[d + 1];
    m.a_row = pa.meta.strides[d];
    m.b_k = pb.meta.strides[d];
    m.b_n = pb.meta.strides[d + 1];
    m.c_row = pc.meta.strides[d];
    m.a_batch = batch(pa);
    m.b_batch = batch(pb);
    m.c_batch = batch(pc);
    m.a_offset = view_offset(a);
    m.b_offset = view_offset(b);
    m.c_offset = view_offset(c);
    std::optional<BufferId> bias;
    if (first) {
      bias = buffer_of(n.arg(0).value());
      m.bias = true;
      m.bias_offset = view_offset(*bias);
    }
    uint32_t kernel = own_kernel(products_, m, "matmul", [&](KernelSource& k) {
      k.text = codegen::cpp::emit_matmul(m, target_);
      k.range = codegen::cpp::matmul_range(m, target_);
      k.grain = grain_of_product(m.batch * m.m * m.n * m.k, k.range);
      k.scratch_bytes = codegen::cpp::matmul_scratch_bytes(m, target_);
    });
    add_own_step(kernel, a, b, bias, c);
  }

  // convolution(x, w, bias, stride, padding, dilation, ...) on channels-last x.
  void add_convolution(const loops::ExternStep& e) {
    const ir::Node& n = graph_.node(e.node);
    BufferId x = buffer_of(n.arg(0).value()), w = buffer_of(n.arg(1).value()), out = e.writes.at(0);
    const auto &xs = plan().buffers[x.index].meta.sizes, &ws = plan().buffers[w.index].meta.sizes,
               &os = plan().buffers[out.index].meta.sizes;
    auto pair = [&](size_t i, size_t d) { return known((*n.arg(i).items())[d].get<ir::Expr>()); };
    codegen::cpp::Conv2d c;
    c.batch = xs[0], c.in_channels = xs[1], c.in_h = xs[2], c.in_w = xs[3];
    c.out_channels = os[1], c.out_h = os[2], c.out_w = os[3];
    c.kernel_h = ws[2], c.kernel_w = ws[3];
    c.stride_h = pair(3, 0), c.stride_w = pair(3, 1);
    c.pad_h = pair(4, 0), c.pad_w = pair(4, 1);
    c.dilation_h = pair(5, 0), c.dilation_w = pair(5, 1);
    c.x_offset = view_offset(x), c.w_offset = view_offset(w);
    std::optional<BufferId> bias;
    if (n.arg(2).is_value()) {
      bias = buffer_of(n.arg(2).value());
      c.bias = true;
      c.bias_offset = view_offset(*bias);
    }
    uint32_t kernel = own_kernel(convolutions_, c, "conv2d", [&](KernelSource& k) {
      k.text = codegen::cpp::emit_conv2d(c, target_);
      k.range = codegen::cpp::conv2d_range(c, target_);
      k.grain = grain_of_product(c.batch * c.out_h * c.out_w * c.out_channels * c.in_channels * c.taps(), k.range);
      k.scratch_bytes = codegen::cpp::conv2d_scratch_bytes(c, target_);
    });
    add_own_step(kernel, x, w, bias, out);
  }

  // Multiplications are cheaper than the units of kWorkOfAThread: about 16 a unit.
  static int64_t grain_of_product(int64_t multiplications, int64_t range) {
    return std::max<int64_t>(1, 16 * kWorkOfAThread / std::max<int64_t>(1, multiplications / range));
  }

  // The kernel of a shape, made on first use.
  template <class Shape, class Make>
  uint32_t own_kernel(std::vector<std::pair<Shape, uint32_t>>& known_shapes, const Shape& shape, const char* name,
                      Make&& make) {
    for (auto& [s, kernel] : known_shapes)
      if (s == shape) return kernel;
    KernelSource source;
    source.name = cat(name, "_", known_shapes.size());
    make(source);
    uint32_t kernel = add_source(std::move(source));
    known_shapes.emplace_back(shape, kernel);
    return kernel;
  }

  void add_own_step(uint32_t kernel, BufferId a, BufferId b, std::optional<BufferId> bias, BufferId out) {
    runtime::KernelStep step{kernel, {a.index, b.index}};
    if (bias) step.buffers.push_back(bias->index);
    step.buffers.push_back(out.index);
    plan().steps.emplace_back(std::move(step));
  }

  // Elements between a view and the first element of its base, which is what a kernel gets.
  int64_t view_offset(BufferId b) const {
    const Buffer& buffer = program_.buffers[b];
    return buffer.kind == Buffer::Kind::View ? known(buffer.type.offset) : 0;
  }

  void add_results() {
    for (const ir::OutputSpec& spec : graph_.outputs) {
      runtime::PlanOutput o;
      o.kind = spec.kind;
      o.index = spec.index;
      if (spec.kind == ir::OutputSpec::Kind::Value) {
        const ir::Type& type = graph_.value(spec.value).type;
        if (type.kind == ir::Type::Kind::Int) o.number = known(type.expr);
        else o.buffer = buffer_of(spec.value).index;
      } else if (spec.kind != ir::OutputSpec::Kind::None && spec.kind != ir::OutputSpec::Kind::Input) {
        o.meta = runtime::meta_of(spec.type);
      }
      plan().outputs.push_back(std::move(o));
    }
    for (const ir::Mutation& m : graph_.mutations) {
      if (m.metadata) throw Unsupported("an input whose shape or strides change in place");
      bool in_place = std::any_of(schedule_.in_place.begin(), schedule_.in_place.end(),
                                  [&](const auto& p) { return p.first == m.input; });
      plan().mutations.push_back({m.input, buffer_of(m.value).index, in_place});
    }
  }

  const ir::Graph& graph_;
  const schedule::Schedule& schedule_;
  const loops::Program& program_;
  const codegen::cpp::Target& target_;
  Assembly out_;
  std::vector<std::pair<codegen::cpp::Matmul, uint32_t>> products_;
  std::vector<std::pair<codegen::cpp::Conv2d, uint32_t>> convolutions_;
};

}  // namespace

Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule, const codegen::cpp::Target& target) {
  return Assembler(graph, schedule, target).run();
}

}  // namespace oxy::pipeline
