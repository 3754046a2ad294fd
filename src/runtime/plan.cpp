// Questions about plans.
#include "runtime/plan.h"

namespace oxy::runtime {

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
