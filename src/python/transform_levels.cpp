// Looks into torch.func's wrappers, and undoes what its transforms switch.
#include "python/transform_levels.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "python/cpython/handles.h"

namespace oxy::python {
namespace {

using at::SavedTensorDefaultHooks;

thread_local bool in_forward_ad = false;  // by captured code

}  // namespace

at::Tensor innermost(at::Tensor t) {
  const py::object& unwrapped = member_of<"torch._C._functorch", "get_unwrapped">();
  while (is_wrapped(t)) {
    const py::object inside = unwrapped(owned(THPVariable_Wrap(t)));
    t = THPVariable_Unpack(inside.ptr());
  }
  return t;
}

bool in_jvp() { return in_forward_ad; }

void note_forward_ad(bool entered) { in_forward_ad = entered; }

TransformsGuard::TransformsGuard()
    : hooks_disabled_(SavedTensorDefaultHooks::get_disabled_error_message()) {}

TransformsGuard::~TransformsGuard() {
  try {
    if (is_transformed())
      member_of<"torch._C._functorch", "pop_dynamic_layer_stack_and_undo_to_depth">()(0);
    if (at::functorch::functorchTLSAccessor() != nullptr)
      member_of<"torch._C._functorch", "set_inplace_requires_grad_allowed">()(false);
  } catch (py::error_already_set& e) {
    e.discard_as_unraisable("the end of a capture");
  }
  if (std::exchange(in_forward_ad, false)) torch::autograd::ForwardADLevel::release_idx(0);
  if (hooks_disabled_ == SavedTensorDefaultHooks::get_disabled_error_message()) return;
  if (hooks_disabled_)
    SavedTensorDefaultHooks::disable(*hooks_disabled_, /*fail_if_non_empty=*/false);
  else
    SavedTensorDefaultHooks::enable();
}

}  // namespace oxy::python
