// Questions about plans.
#include "runtime/plan.h"

namespace oxy::runtime {

uint32_t memory_of(const Plan& p, uint32_t buffer) {
  while (p.buffers[buffer].kind == PlanBuffer::Kind::View) buffer = p.buffers[buffer].source;
  return buffer;
}

std::vector<uint32_t> buffers_of(const PlanStep& step) {
  std::vector<uint32_t> out;
  auto take = [&](const LaunchStep& l) {
    out.insert(out.end(), l.buffers.begin(), l.buffers.end());
  };
  if (const auto* l = std::get_if<LaunchStep>(&step)) take(*l);
  if (const auto* p = std::get_if<ProductStep>(&step)) {
    take(p->product);
    if (p->epilogue) take(*p->epilogue);
  }
  if (const auto* e = std::get_if<ExternStep>(&step))
    for (const PlanArg& a : e->args) for_each_buffer(a, [&](uint32_t b) { out.push_back(b); });
  if (const auto* r = std::get_if<RegionStep>(&step)) out = r->operands;
  return out;
}

int64_t moved_bytes(const Plan& p, const PlanStep& step) {
  if (const auto* l = std::get_if<LaunchStep>(&step)) return p.kernels[l->kernel].moved_bytes;
  const auto* product = std::get_if<ProductStep>(&step);
  if (!product) return 0;
  return p.kernels[product->product.kernel].moved_bytes +
         (product->epilogue ? p.kernels[product->epilogue->kernel].moved_bytes : 0);
}

}  // namespace oxy::runtime
