// Questions about plans, and what must hold of one before anybody runs or prints it: every number
// names something that is there, and every name is of one thing.
#include <map>
#include <set>

#include "runtime/plan.h"
#include "runtime/sized_plan.h"
#include "support/check.h"
#include "support/lexer.h"

namespace oxy::runtime {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw UserError(cat("not a plan: ", what));
}

class Verifier {
 public:
  explicit Verifier(const Plan& p) : p_(p) {
    for (const PlanBuffer& b : p.buffers) there_.push_back(b.kind != PlanBuffer::Kind::Extern);
  }

  void run() {
    check_sizes();
    known_from_ = known_from(p_);
    for (const TensorSlots& t : p_.inputs) check(t, true);
    check_buffers();
    check_kernels();
    for (const Plan& r : p_.regions) verify(r);
    for (const PlanStep& s : p_.steps) {
      std::visit([&](const auto& step) { check(step); }, s);
      check_known(s);
    }
    for (const PlanOutput& o : p_.outputs) check(o);
    for (const PlanMutation& m : p_.mutations) check(m);
    for (uint32_t i : p_.frozen) require(is_tensor(i), "a frozen input that is none");
    for (const PlanPacking& k : p_.packings) check(k);
    check(p_.arena_bytes);
    check_numbers();
  }

 private:
  void check(Slot s) const { require(s.index < p_.sizes.instructions.size(), "a slot"); }
  void check(const std::vector<Slot>& list) const {
    for (Slot s : list) check(s);
  }
  void check_buffer(uint32_t b) const { require(b < p_.buffers.size(), "a buffer's number"); }
  // One that is read.
  void check_there(uint32_t b) const {
    check_buffer(b);
    require(there_[b] && there_[memory_of(p_, b)], "a buffer that no step has made");
  }
  void check_there(const std::vector<uint32_t>& list) const {
    for (uint32_t b : list) check_there(b);
  }
  // Of steps: what they make is memory of its own.
  void check_results(const std::vector<int64_t>& list) {
    for (int64_t b : list) {
      require(b >= -1 && b < static_cast<int64_t>(p_.buffers.size()), "a result's number");
      const bool made =
          b < 0 || p_.buffers[static_cast<size_t>(b)].kind == PlanBuffer::Kind::Extern;
      require(made, "a result that is in memory of the plan");
      if (b >= 0) there_[static_cast<size_t>(b)] = true;
    }
  }
  void check(DType d) const { require(is_dtype(static_cast<int8_t>(d)), "a dtype"); }
  static void check_name(const std::string& name, std::set<std::string_view>& seen) {
    require(is_identifier(name) && seen.insert(name).second, "a name");
  }
  bool is_tensor(uint32_t input) const {
    return input < p_.inputs.size() && p_.inputs[input].dtype != DType::None;
  }

  void check_sizes() const {
    const auto& list = p_.sizes.instructions;
    for (size_t i = 0; i < list.size(); i++) {
      const auto& [op, a, b] = list[i];
      require(op <= SizeOp::NotEqual, "an operation on sizes");
      if (op == SizeOp::Constant) continue;
      const auto end = static_cast<int64_t>(reads_slots(op)    ? i
                                            : reads_buffer(op) ? p_.buffers.size()
                                                               : p_.inputs.size());
      require(a >= 0 && a < end, "an operand of a size");
      if (reads_slots(op)) require(b >= 0 && b < end, "an operand of a size");
      if (op == SizeOp::BufferSize) {
        const auto& sizes = p_.buffers[static_cast<size_t>(a)].meta.sizes;
        require(b >= 0 && b < static_cast<int64_t>(sizes.size()), "a dimension of a buffer");
      }
      if (op == SizeOp::BufferNumber) {
        const TensorSlots& m = p_.buffers[static_cast<size_t>(a)].meta;
        require(m.sizes.empty() && is_integral(m.dtype, false), "a buffer with a number");
      }
      if (op == SizeOp::InputSize || op == SizeOp::InputStride) {
        const auto& sizes = p_.inputs[static_cast<size_t>(a)].sizes;
        require(b >= 0 && b < static_cast<int64_t>(sizes.size()), "a dimension of an input");
      }
    }
  }

  void check(const TensorSlots& t, bool may_be_number = false) const {
    if (!may_be_number || t.dtype != DType::None) check(t.dtype);
    require(t.dtype != DType::None || t.sizes.empty(), "a number with sizes");
    require(t.sizes.size() == t.strides.size(), "a tensor's strides");
    check(t.sizes);
    check(t.strides);
    check(t.offset);
  }

  void check_buffers() const {
    using Kind = PlanBuffer::Kind;
    std::set<std::string_view> seen;
    for (size_t i = 0; i < p_.buffers.size(); i++) {
      const PlanBuffer& b = p_.buffers[i];
      check_name(b.name, seen);
      require(b.kind <= Kind::View, "a buffer's kind");
      require(b.kind != Kind::Input || is_tensor(b.source), "an input's buffer");
      if (b.kind == Kind::View) {
        check_buffer(b.source);
        require(p_.buffers[b.source].kind != Kind::View, "a view of a view");
      }
      check(b.meta);
      check(b.arena_offset);
      check(b.bytes);
    }
  }

  void check_kernels() const {
    std::set<std::string_view> seen;
    for (const PlanKernel& k : p_.kernels) {
      check_name(k.name, seen);
      check({k.range, k.grain, k.scratch_bytes});
      check(k.parameters);
    }
  }

  void check(const LaunchStep& s) const {
    require(s.kernel < p_.kernels.size(), "a kernel's number");
    check_there(s.buffers);
  }
  void check(const GemmStep& s) const {
    check(s.gemm);
    if (s.epilogue) check(*s.epilogue);
  }
  void check(const ExternStep& s) {
    for (const PlanArg& a : s.args) check(a);
    for (int32_t n : s.returns) require(n >= -1, "the length of a list");
    check_results(s.outputs);
  }
  void check(const PlanArg& a) const {
    if (auto* b = std::get_if<BufferArg>(&a.v)) check_there(b->buffer);
    if (auto* s = std::get_if<Slot>(&a.v)) check(*s);
    if (auto* d = std::get_if<DType>(&a.v)) check(*d);
    if (auto* l = std::get_if<PlanArg::List>(&a.v))
      for (const PlanArg& x : *l) check(x);
  }
  void check(const RegionStep& s) {
    using Kind = RegionStep::Kind;
    require(s.kind <= Kind::Blocks, "a region's kind");
    require(s.plans.size() == 2, "a region has two plans");
    for (uint32_t r : s.plans) require(r < p_.regions.size(), "a region's plan");
    check_there(s.operands);
    check_results(s.results);
    const size_t front = RegionStep::front(s.kind);
    require(s.operands.size() >= front + (s.kind == Kind::Blocks ? 7 : 0),
            "a region whose operands are missing");
    require(s.kind != Kind::Blocks || s.results.size() == 3, "the state of blocks");
    const bool condition = s.kind == Kind::Loop;
    require(!condition || s.results.size() <= s.operands.size(), "a loop's operands");
    check(s.numbers);
    const size_t inputs = s.operands.size() - front + s.numbers.size();
    for (size_t i = 0; i < 2; i++) {
      const Plan& r = p_.regions[s.plans[i]];
      const size_t outputs = condition && i == 0 ? 1 : s.results.size();
      require(r.inputs.size() == inputs && r.outputs.size() == outputs, "a region's form");
      for (size_t k = inputs - s.numbers.size(); k < inputs; k++)
        require(r.inputs[k].dtype == DType::None, "a region's numbers");
    }
  }
  void check(const FreeStep& s) {
    check_there(s.buffer);
    const PlanBuffer::Kind kind = p_.buffers[s.buffer].kind;
    require(kind == PlanBuffer::Kind::Extern || kind == PlanBuffer::Kind::Output, "what is freed");
    there_[s.buffer] = false;
  }
  void check(const SizeStep& s) {
    check(s.reads);
    for (const Slot r : s.reads) {
      const SizeInstruction& i = p_.sizes.instructions[r.index];
      require(reads_buffer(i.op), "what a step reads of sizes");
      check_there(static_cast<uint32_t>(i.a));
    }
    known_++;
    for (const PlanCheck& c : s.checks) {
      check(c.holds);
      require(known_from_[c.holds.index] <= known_, "a size that is not known yet");
    }
  }
  // Sizes are known when they are wanted.
  void check_known(const PlanStep& s) {
    for (const uint32_t b : buffers_of(s))
      require(known_from(p_, known_from_, b) <= known_, "a buffer whose sizes are not known yet");
  }

  void check(const PlanOutput& o) const {
    using Kind = PlanOutput::Kind;
    require(o.kind <= Kind::None, "a result's kind");
    require(o.buffer >= -1 && o.buffer < static_cast<int64_t>(p_.buffers.size()), "a result");
    require(o.kind != Kind::Value || (o.buffer < 0) == o.number.has_value(), "a result's value");
    require(o.kind == Kind::Value || (o.buffer < 0 && !o.number), "a result's value");
    if (o.buffer >= 0) check_there(static_cast<uint32_t>(o.buffer));
    if (o.number) check(*o.number);
    const bool view = o.kind == Kind::ViewOfInput || o.kind == Kind::ViewOfOutput;
    require(view == o.meta.has_value(), "a view's layout");
    if (o.meta) check(*o.meta);
    require(o.kind != Kind::Input || o.index < p_.inputs.size(), "an input's number");
    require(o.kind != Kind::ViewOfInput || is_tensor(o.index), "a view of a number");
    if (o.kind != Kind::ViewOfOutput) return;
    require(o.index < p_.outputs.size() && p_.outputs[o.index].buffer >= 0, "a view's base");
  }

  void check(const PlanMutation& m) const {
    require(is_tensor(m.input), "a mutated input");
    check_there(m.buffer);
    if (m.layout) check(*m.layout);
  }

  void check(const PlanPacking& k) const {
    check_buffer(k.from);
    check_buffer(k.to);
    require(p_.buffers[k.to].kind == PlanBuffer::Kind::Attribute, "what is packed");
    require(k.width > 0 && k.batch >= 0 && k.k >= 0 && k.n >= 0, "the sizes of what is packed");
    require(k.batch_stride >= 0 && k.k_stride >= 0 && k.n_stride >= 0 && k.offset >= 0,
            "the strides of what is packed");
  }

  // Those that are known before a call.
  void check_numbers() const {
    if (!p_.sizes.is_static()) return;
    try {
      at_sizes(p_, std::vector<KernelFn>(p_.kernels.size()), evaluate(p_.sizes));
    } catch (const InternalError& e) {
      throw UserError(cat("not a plan: ", e.what()));
    }
  }

  const Plan& p_;
  std::vector<bool> there_;  // by buffer: whether it has memory at this step
  std::vector<uint32_t> known_from_;
  uint32_t known_ = 0;  // size steps so far
};

}  // namespace

void verify(const Plan& p) { Verifier(p).run(); }

std::vector<uint32_t> known_from(const Plan& p) {
  std::map<uint32_t, uint32_t> read_by;
  uint32_t steps = 0;
  for (const PlanStep& step : p.steps) {
    const auto* s = std::get_if<SizeStep>(&step);
    if (s == nullptr) continue;
    steps++;
    for (const Slot r : s->reads)
      require(read_by.emplace(r.index, steps).second, "a size that is read twice");
  }
  return steps_of_slots(p.sizes, [&](Slot s) {
    const auto it = read_by.find(s.index);
    require(it != read_by.end(), "a size that no step reads");
    return it->second;
  });
}

uint32_t known_from(const Plan& p, const std::vector<uint32_t>& slots, uint32_t buffer) {
  const PlanBuffer& b = p.buffers[buffer];
  uint32_t out =
      std::max({slots[b.meta.offset.index], slots[b.arena_offset.index], slots[b.bytes.index]});
  for (const auto* list : {&b.meta.sizes, &b.meta.strides})
    for (const Slot s : *list) out = std::max(out, slots[s.index]);
  return b.kind == PlanBuffer::Kind::View ? std::max(out, known_from(p, slots, b.source)) : out;
}

uint32_t memory_of(const Plan& p, uint32_t buffer) {
  const PlanBuffer& b = p.buffers[buffer];
  return b.kind == PlanBuffer::Kind::View ? b.source : buffer;
}

std::vector<uint32_t> buffers_of(const PlanStep& step) {
  std::vector<uint32_t> out;
  auto take = [&](const LaunchStep& l) {
    out.insert(out.end(), l.buffers.begin(), l.buffers.end());
  };
  if (const auto* l = std::get_if<LaunchStep>(&step)) take(*l);
  if (const auto* p = std::get_if<GemmStep>(&step)) {
    take(p->gemm);
    if (p->epilogue) take(*p->epilogue);
  }
  if (const auto* e = std::get_if<ExternStep>(&step))
    for (const PlanArg& a : e->args) for_each_buffer(a, [&](uint32_t b) { out.push_back(b); });
  if (const auto* r = std::get_if<RegionStep>(&step)) out = r->operands;
  return out;
}

int64_t moved_bytes(const Plan& p, const PlanStep& step) {
  if (const auto* l = std::get_if<LaunchStep>(&step)) return p.kernels[l->kernel].moved_bytes;
  const auto* gemm = std::get_if<GemmStep>(&step);
  if (!gemm) return 0;
  return p.kernels[gemm->gemm.kernel].moved_bytes +
         (gemm->epilogue ? p.kernels[gemm->epilogue->kernel].moved_bytes : 0);
}

}  // namespace oxy::runtime
