// The levels of torch.func on this thread: while a transform runs, tensors are wrapped once for
// each level, and an op goes through all of them before the keys of a recording see it. torch's
// headers for them need a library that it does not bring along, so its Python functions are asked.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>

namespace oxy::python {

inline bool is_transformed() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

inline bool is_wrapped(const at::Tensor& t) {
  constexpr c10::DispatchKeySet wrappers(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return t.defined() && t.key_set().has_any(wrappers);
}

// The tensor that no wrapper is around.
at::Tensor innermost(at::Tensor t);

// Whether a level of forward AD is there.
bool in_jvp();

// Captured code enters the level of forward AD, which the process has once, or leaves it.
void note_forward_ad(bool entered);

// What transforms switch on this thread is on destruction as it was: levels (there are none in
// front), forward AD, whether saved tensors may have hooks.
class TransformsGuard {
 public:
  TransformsGuard();
  ~TransformsGuard();
  TransformsGuard(const TransformsGuard&) = delete;
  TransformsGuard& operator=(const TransformsGuard&) = delete;

 private:
  const std::optional<std::string> hooks_disabled_;
};

}  // namespace oxy::python
