// The modes of torch that code switches on and off as it goes: `with torch.no_grad()`, `with
// torch.autocast(...)`.
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
  InAutocast& operator=(const InAutocast&) = delete;

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
  TorchModesGuard& operator=(const TorchModesGuard&) = delete;

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

}  // namespace oxy::python
