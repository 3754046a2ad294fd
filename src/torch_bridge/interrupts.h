// How a long run hears that its program is to stop (Ctrl-C), without knowing who says so.
#pragma once

#include <chrono>
#include <exception>

namespace oxy::bridge {

// Leaves a run that was interrupted. No std::exception: nobody takes it for a failure after which
// eager runs.
struct Interrupted {
  std::exception_ptr why;  // what the host's function threw
};

// The host's function, which throws where the program is to stop. Set once, while the library is
// loaded.
using InterruptPoll = void (*)();
void set_interrupt_poll(InterruptPoll poll);

// Asks the host, but not more often than every few milliseconds: it may have to wait for a lock.
class InterruptClock {
 public:
  void tick();  // throws Interrupted

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace oxy::bridge
