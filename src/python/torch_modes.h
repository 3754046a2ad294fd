// The modes of torch that code switches on and off as it goes: `with torch.no_grad()`, `with torch.autocast(...)`.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <functional>

namespace oxy::python {

// Of this thread, autocast on the CPU.
struct TorchModes {
#define OXY_MODE(type, field, words, read, write) type field = read;
#include "python/torch_state.def"
  friend bool operator==(const TorchModes&, const TorchModes&) = default;

  void set() const {
#define OXY_MODE(type, field, words, read, write) write(field);
#include "python/torch_state.def"
  }
};

// In how many autocast contexts the thread stands; torch drops its cache of casts at the last one's end.
inline int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

inline void change_autocast_nesting(int by) {
  for (; by > 0; by--) at::autocast::increment_nesting();
  for (; by < 0; by++) at::autocast::decrement_nesting();
}

// Puts the modes back.
class TorchModesGuard {
 public:
  TorchModesGuard() = default;
  ~TorchModesGuard() {
    before_.set();
    change_autocast_nesting(nesting_ - autocast_nesting());
  }
  TorchModesGuard(const TorchModesGuard&) = delete;
  TorchModesGuard& operator=(const TorchModesGuard&) = delete;

 private:
  const TorchModes before_;
  const int nesting_ = autocast_nesting();
};

// The modes of torch that captured code leaves behind.
struct ModesAfter {
  TorchModes modes;
  int autocast_nesting = 0;  // by which it has changed

  void set() const {
    modes.set();
    change_autocast_nesting(autocast_nesting);
  }
};

}  // namespace oxy::python
