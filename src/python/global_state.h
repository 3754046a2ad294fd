// The state of torch that no argument shows and that compiled code depends on.
#pragma once

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <map>
#include <string>

#include "python/torch_modes.h"

namespace oxy::python {

// Settings of torch that the recording may have read; a plan holds for one state of them.
struct GlobalState {
  TorchModes modes;
#define OXY_STATE(type, field, words, read) type field = read;
#include "python/torch_state.def"
  friend bool operator==(const GlobalState&, const GlobalState&) = default;
};

// What is not as it was: "grad mode is on, was off"; "" where all is.
std::string difference(const GlobalState& now, const GlobalState& before);

// What keeps the answer of a function that capture takes for a constant: torch_state.def.
enum class Folded : uint8_t { Compared, OfDevice, Asked, Fixed };
const std::map<std::string_view, Folded>& folded_functions();

// Something listens to every op or transforms it: only the ops themselves can tell it what happens.
inline bool is_observed() {
  constexpr c10::DispatchKeySet transforms(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Functionalize,
       c10::DispatchKey::PreDispatch, c10::DispatchKey::PythonDispatcher,
       c10::DispatchKey::Tracer});
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         at::impl::torch_function_mode_enabled() ||
         !(c10::impl::tls_local_dispatch_key_set().included_ & transforms).empty();
}

// Recordings take float32 for what new tensors are made of (Recorder).
inline bool is_recordable() { return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>(); }

}  // namespace oxy::python
