// A Plan at the sizes of a call: its slots as numbers, laid out as the steps read them. Of a static
// plan it is made once.
#pragma once

#include "runtime/host.h"
#include "runtime/plan.h"

namespace oxy::runtime {

// A tensor's metadata with all sizes known.
struct TensorMeta {
  DType dtype = DType::F32;
  Device device;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};
// Bytes from the start of the storage to the end of the last element. InternalError where they
// cannot be counted, or an element lies in front of it.
int64_t span_bytes(const TensorMeta& m);

struct SizedBuffer {
  TensorMeta meta;
  int64_t arena_offset = 0, bytes = 0;
};

struct SizedKernel {
  KernelFn entry = nullptr;
  int64_t range = 1, grain = 1, scratch_bytes = 0;
  std::vector<int64_t> parameters;
};

struct SizedPlan {
  std::vector<int64_t> slots;
  std::vector<TensorMeta> inputs;
  std::vector<SizedBuffer> buffers;
  std::vector<SizedKernel> kernels;
  std::vector<TensorMeta> outputs;  // of views
  std::vector<TensorMeta> layouts;  // by mutation; of those that have one
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  // of the kernel that takes most, a thread
};

// A plan whose sizes vary, laid out again and again in the same place: only what depends on the
// inputs is written and checked again, and nothing is allocated. Or, of a size step (by its
// number): what is known from there on.
class SizeChanges {
 public:
  explicit SizeChanges(const Plan& p, uint32_t step = 0);

  // Of a sized plan whose slots are new. InternalError as of at_sizes, and it is of no use then.
  void apply(SizedPlan& sized) const;
  const std::vector<uint32_t>& buffers() const { return buffers_; }  // that change

 private:
  const Plan& plan_;
  std::vector<uint32_t> inputs_, buffers_, checked_, placed_, kernels_, outputs_, layouts_;
};

// `entries`: the code, by kernel. Throws InternalError where buffers leave their memory. What late
// slots say is not there yet: its lists have their lengths.
SizedPlan at_sizes(const Plan& p, std::span<const KernelFn> entries, std::vector<int64_t> slots);

}  // namespace oxy::runtime
