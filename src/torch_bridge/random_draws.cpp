// bernoulli with one probability, the op in dropout.
#include "torch_bridge/random_draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>

#include "runtime/mersenne_twister.h"

namespace oxy::bridge {
namespace {

using runtime::MersenneTwister;

// Fills a row-major tensor.
bool fill_bernoulli(const at::Generator& generator, double p, const at::Tensor& out) {
  auto* impl = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard lock(impl->mutex_);
  at::mt19937_data_pod data = impl->engine().data();
  // ATen counts what is left from the next number on, and makes a state when it is at one.
  MersenneTwister twister{data.state_, data.left_ == 1 ? MersenneTwister::kWords : data.next_};
  if (!runtime::draw_bernoulli(twister, p, static_cast<DType>(out.scalar_type()),
                               out.mutable_data_ptr(), static_cast<size_t>(out.numel())))
    return false;
  data.state_ = twister.state;
  data.next_ = twister.used;
  data.left_ = static_cast<int>(MersenneTwister::kWords - twister.used + 1);
  at::mt19937 engine;
  engine.set_data(data);
  impl->set_engine(engine);
  return true;
}

bool bernoulli(torch::jit::Stack& stack) {
  const c10::IValue *self = &stack[0], *p = &stack[1], *generator = &stack[2];
  if (!self->isTensor() || !p->isDouble() || !generator->isNone()) return false;
  const at::Tensor& like = self->toTensor();
  const double probability = p->toDouble();
  if (!like.is_cpu() || like.layout() != c10::kStrided || !(probability >= 0 && probability <= 1))
    return false;
  at::Tensor out = at::empty_like(like, at::MemoryFormat::Contiguous);
  if (!fill_bernoulli(at::detail::getDefaultCPUGenerator(), probability, out)) return false;
  stack.clear();
  stack.emplace_back(std::move(out));
  return true;
}

// Numbers from the middle of a state to the middle of the next one, and what follows them.
bool draws_as_torch() {
  const at::Tensor like = at::empty({401}, at::kFloat);
  at::Generator theirs = at::make_generator<at::CPUGeneratorImpl>(7),
                ours = at::make_generator<at::CPUGeneratorImpl>(7);
  for (const double p : {0.9, 0.3}) {
    const at::Tensor out = at::empty_like(like);
    if (!fill_bernoulli(ours, p, out) || !out.equal(at::bernoulli(like, p, theirs))) return false;
  }
  return at::check_generator<at::CPUGeneratorImpl>(theirs)->random64() ==
         at::check_generator<at::CPUGeneratorImpl>(ours)->random64();
}

}  // namespace

OwnDraw own_draw_of(std::string_view op) {
  if (op != "aten.bernoulli.p") return nullptr;
  static const bool as_torch = draws_as_torch();
  return as_torch ? &bernoulli : nullptr;
}

}  // namespace oxy::bridge
