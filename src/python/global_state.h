// The state of torch that no argument shows and that compiled code depends on; the modes among it
// that code switches on and off as it goes: `with torch.no_grad()`, `with torch.autocast(...)`.
#pragma once

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <functional>
#include <map>
#include <string>

#include "python/torch_functions.h"
#include "torch_bridge/compat.h"

namespace oxy::python {

// How many contexts of the CPU as the default device captured code has entered, less those that it
// has left: none where nothing is captured.
int default_devices();
// Of a capture, which enters none for real; behind its graph so many more are entered, or left.
void set_default_devices(int number);

// Of this thread, autocast on the CPU; what attention may take is the process's.
struct TorchModes {
#define OXY_MODE(type, field, words, read, write) type field = read;
#include "python/torch_state.def"
  friend bool operator==(const TorchModes&, const TorchModes&) = default;

  void set() const {
#define OXY_MODE(type, field, words, read, write) \
  if (field != (read)) write(field);
#include "python/torch_state.def"
  }
};

// In how many autocast contexts the thread stands; torch drops its cache of casts at the last one's
// end.
inline int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

inline void change_autocast_nesting(int by) {
  for (; by > 0; by--) at::autocast::increment_nesting();
  for (; by < 0; by++) at::autocast::decrement_nesting();
}

// Stands in more contexts of autocast for a while: those that a graph ends in its own way go on
// behind it.
class InAutocast {
 public:
  explicit InAutocast(int contexts) : contexts_(contexts) { change_autocast_nesting(contexts_); }
  ~InAutocast() { change_autocast_nesting(-contexts_); }
  InAutocast(const InAutocast&) = delete;

 private:
  const int contexts_;
};

// Puts the modes back.
class TorchModesGuard {
 public:
  TorchModesGuard() = default;
  ~TorchModesGuard() {
    before_.set();
    change_autocast_nesting(nesting_ - autocast_nesting());
  }
  TorchModesGuard(const TorchModesGuard&) = delete;

 private:
  const TorchModes before_;
  const int nesting_ = autocast_nesting();
};

// The modes of torch that captured code leaves behind.
struct ModesAfter {
  TorchModes modes;
  int autocast_nesting = 0;  // by which it has changed
  bool clear_casts = false;  // the outermost context of autocast has ended

  void set() const {
    modes.set();
    change_autocast_nesting(autocast_nesting);
    if (clear_casts) at::autocast::clear_cache();
  }
};

// The CPU as a torch.device that has no index; tensors are made there without it as well.
bool is_plain_cpu(py::handle device);

// A function mode is on that changes no op on the CPU: torch.set_default_device("cpu"), or `with
// torch.device("cpu")`.
bool default_device_is_cpu();

// Captures and compiles without that mode, which would only slow it down. GlobalState still has it.
class WithoutDefaultDevice {
 public:
  WithoutDefaultDevice();
  ~WithoutDefaultDevice();
  WithoutDefaultDevice(const WithoutDefaultDevice&) = delete;

  // Whether there is a default device, also where it is left out for now.
  static bool is_set();

 private:
  struct LeftOut {
    bool captures = false, set = false;
    int entered = 0;
  };
  static thread_local LeftOut left_out_;
  friend int default_devices();
  friend void set_default_devices(int number);

  const at::impl::PythonTorchFunctionTLS modes_;
  const LeftOut before_;
};

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

// Something listens to every op or to its node in autograd's graph, or transforms it: only the ops
// themselves can tell it what happens.
inline bool is_observed() {
  constexpr c10::DispatchKeySet transforms(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Functionalize,
       c10::DispatchKey::PreDispatch, c10::DispatchKey::PythonDispatcher,
       c10::DispatchKey::Tracer});
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         (at::impl::torch_function_mode_enabled() && !default_device_is_cpu()) ||
         bridge::has_node_creation_hooks() || torch::autograd::AnomalyMode::is_enabled() ||
         !(c10::impl::tls_local_dispatch_key_set().included_ & transforms).empty();
}

// Whether hooks of saved tensors may give back something else than they are given: where they do, a
// gradient is eager's only of what eager's ops save. True of all but torch's own that keep values,
// and those that say so (oxyfuel.keeps_values).
bool saved_values_may_change();

}  // namespace oxy::python
