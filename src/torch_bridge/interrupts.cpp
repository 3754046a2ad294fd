// Asks the host, at most every ten milliseconds.
#include "torch_bridge/interrupts.h"

#include <cxxabi.h>

namespace oxy::bridge {
namespace {

constexpr std::chrono::milliseconds kBetweenPolls{10};
InterruptPoll host_poll = nullptr;

}  // namespace

void set_interrupt_poll(InterruptPoll poll) { host_poll = poll; }

void InterruptClock::tick() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetweenPolls || host_poll == nullptr) return;
  last_ = now;
  try {
    host_poll();
  } catch (const abi::__forced_unwind&) {  // the end of a daemon thread
    throw;
  } catch (...) {
    throw Interrupted{std::current_exception()};
  }
}

}  // namespace oxy::bridge
