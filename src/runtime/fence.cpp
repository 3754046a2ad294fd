// Maps guarded pages around copies of a kernel's buffers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>

#include "runtime/launch.h"

namespace oxy::runtime {
namespace {

constexpr int64_t kPieces = 3;
constexpr int64_t kAligned = 64;  // as kernels may rely on it of their scratch memory
constexpr int kPoison = 0xFE;     // neither zeros nor a small number: what nobody wrote is seen

// Memory of exactly so many bytes that may be touched.
class FencedBlock {
 public:
  FencedBlock(int64_t bytes, Fence fence) : bytes_(static_cast<size_t>(bytes)) {
    if (fence == Fence::Heap) {
      data_ = static_cast<char*>(std::malloc(bytes_));
      if (data_ == nullptr && bytes_ > 0) throw std::bad_alloc();
      return;
    }
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes_ + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    void* p = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    map_ = static_cast<char*>(p);
    if (inside > 0 && mprotect(map_ + page, inside, PROT_READ | PROT_WRITE) != 0) {
      munmap(map_, mapped_);
      throw std::bad_alloc();
    }
    data_ = map_ + page + (fence == Fence::End ? inside - bytes_ : 0);
  }
  ~FencedBlock() {
    if (map_ != nullptr)
      munmap(map_, mapped_);
    else
      std::free(data_);
  }
  FencedBlock(const FencedBlock&) = delete;
  FencedBlock& operator=(const FencedBlock&) = delete;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  char* data_ = nullptr;
  char* map_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;
};

struct FencedCopy {
  FencedCopy(const FencedBuffer& b, Fence fence) : original(b), block(b.bytes, fence) {
    if (there()) std::memcpy(block.data(), b.address, block.size());
  }
  bool there() const { return original.address != nullptr && block.size() > 0; }
  bool changed() const {
    return there() && std::memcmp(original.address, block.data(), block.size()) != 0;
  }

  FencedBuffer original;
  FencedBlock block;
};

}  // namespace

Fence fence_of(std::string_view setting) {
  if (setting == "start") return Fence::Start;
  if (setting == "end") return Fence::End;
  return setting == "heap" ? Fence::Heap : Fence::Off;
}

int launch_fenced(const SizedKernel& kernel, std::span<const FencedBuffer> buffers, Fence fence,
                  const Host& host, const SizedKernel* epilogue, size_t of_kernel) {
  if (kernel.range <= 0) return 0;
  std::deque<FencedCopy> copies;
  std::vector<void*> arguments;
  if (!kernel.parameters.empty())
    arguments.push_back(const_cast<int64_t*>(kernel.parameters.data()));
  for (const FencedBuffer& b : buffers) {
    auto it = std::ranges::find(copies, b.address,
                                [](const FencedCopy& c) { return c.original.address; });
    const bool known = b.address != nullptr && it != copies.end();
    arguments.push_back((known ? *it : copies.emplace_back(b, fence)).block.data());
  }
  Epilogue last{};
  if (epilogue) {
    auto at = arguments.end() - static_cast<std::ptrdiff_t>(buffers.size() - of_kernel);
    if (!epilogue->parameters.empty())
      at = arguments.insert(at, const_cast<int64_t*>(epilogue->parameters.data()));
    const auto first = arguments.insert(at, &last) + 1;
    last = {epilogue->entry, &*first};
  }
  int status = 0;
  const int64_t pieces = std::min(kernel.range, kPieces);
  for (int64_t i = 0; i < pieces; i++) {
    const FencedBlock scratch((kernel.scratch_bytes + kAligned - 1) / kAligned * kAligned,
                              fence == Fence::Heap ? Fence::End : fence);
    if (scratch.size() > 0) std::memset(scratch.data(), kPoison, scratch.size());
    const int s = kernel.entry(arguments.data(), kernel.range * i / pieces,
                               kernel.range * (i + 1) / pieces, scratch.data(), host.math);
    if (s != 0) status = s;
  }
  // A buffer that was only read may lie in memory that another one is written to.
  std::vector<const FencedCopy*> changed;
  for (const FencedCopy& c : copies)
    if (c.changed()) changed.push_back(&c);
  for (const FencedCopy* c : changed)
    std::memcpy(c->original.address, c->block.data(), c->block.size());
  return status;
}

}  // namespace oxy::runtime
