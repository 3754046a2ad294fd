// What the steps of a Plan need of the device that they run on: memory, a queue for the work,
// launches and their status, the state of its random generator. One object a device; any thread may
// call it.
//
// Work of one call goes to one queue and happens in the order in which it was given. A device may
// do it later: what launches report is complete when finish() has returned. The CPU does it at
// once.
#pragma once

#include <memory>

#include "runtime/sized_plan.h"

namespace oxy::runtime {

// Memory of a device, which goes back when nobody holds it any more.
struct Memory {
  char* data = nullptr;
  std::shared_ptr<void> owner;
};

class DeviceApi {
 public:
  using Queue = void*;
  using GeneratorState = std::shared_ptr<const void>;

  DeviceApi() = default;
  DeviceApi(const DeviceApi&) = delete;
  DeviceApi& operator=(const DeviceApi&) = delete;
  virtual ~DeviceApi() = default;

  // The one that the calling thread's work goes to now.
  virtual Queue queue() const = 0;
  // Working memory, aligned to 64 bytes.
  virtual Memory allocate(int64_t bytes, Queue queue) const = 0;
  // It is used a second time: what only pays in the long run may happen to it.
  virtual void keep(const Memory&) const {}
  // Of scratch memory that a launch of any kernel of the plan needs here.
  virtual int64_t scratch_bytes(const SizedPlan& p) const = 0;
  // `arguments` in the kernel's order. The status, as far as it is known: 0, or what a kernel
  // reported.
  virtual int launch(const SizedKernel& kernel, void* const* arguments, char* scratch,
                     Queue queue) const = 0;
  // When all work has been done: its status.
  virtual int finish(Queue queue) const = 0;
  // Of the default generator, so that a call that fails leaves no trace in it.
  virtual GeneratorState generator_state() const = 0;
  virtual void restore_generator(const GeneratorState& state) const = 0;
};

// The CPU with the threads and the maths of a host, and no generator: kernels draw no numbers.
class CpuDevice : public DeviceApi {
 public:
  explicit CpuDevice(const Host& host) : host_(host) {}

  Queue queue() const final { return nullptr; }
  Memory allocate(int64_t bytes, Queue) const final;
  void keep(const Memory& memory) const final;
  int64_t scratch_bytes(const SizedPlan& p) const final {
    return p.scratch_bytes > 0 ? p.scratch_bytes * host_.thread_count() : 0;
  }
  int launch(const SizedKernel& kernel, void* const* arguments, char* scratch, Queue) const final;
  int finish(Queue) const final { return 0; }
  GeneratorState generator_state() const override { return nullptr; }
  void restore_generator(const GeneratorState&) const override {}

 private:
  const Host& host_;
};

}  // namespace oxy::runtime
