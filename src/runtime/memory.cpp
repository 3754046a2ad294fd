// Aligned blocks in huge pages, and the pool that keeps freed ones for a while.
#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

namespace oxy::runtime {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kHugeFrom = 4 << 20;
constexpr size_t kMaxCached = 1ull << 30;
constexpr auto kIdle = std::chrono::seconds(10);

constexpr size_t kSmallPage = 4 << 10;
constexpr size_t kProbedPages = 64;

void advise(char* at, size_t bytes, int how) {
  madvise(at, bytes, how);  // a wish: its failure changes nothing
}

// Seconds of the first writes to so many pages.
double seconds_of_touching(char* at, size_t pages) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < pages; ++i) *static_cast<volatile char*>(at + i * kSmallPage) = 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Until when huge pages are known to be slow.
std::atomic<BlockPool::Clock::time_point> slow_until;

// Asks for huge pages, unless they cost more at the first write than small ones do: on a virtual
// machine that gives what is free back to its host (free page reporting) a fresh huge page is
// memory that the host has to find, while small pages come from what was in use a moment ago. Both
// are timed, here at the ends of the block, unless huge pages were slow a moment ago: to find that
// out takes as long as a thousand small ones. Whether small pages were taken.
bool advise_huge_pages(char* data, size_t bytes) {
  const size_t whole = bytes / kHugePage * kHugePage;
  const auto now = BlockPool::Clock::now();
  if (now < slow_until.load(std::memory_order_relaxed)) {
    advise(data, whole, MADV_NOHUGEPAGE);
    return true;
  }
  char* const last = data + whole - kHugePage;
  advise(last, kHugePage, MADV_NOHUGEPAGE);
  const double small = seconds_of_touching(last, kProbedPages);
  advise(last, kHugePage, MADV_DONTNEED);  // its first write comes again
  advise(data, whole, MADV_HUGEPAGE);
  const double huge = seconds_of_touching(data, 1);
  if (huge * kProbedPages * kSmallPage <= small * kHugePage) return false;
  slow_until.store(now + kIdle, std::memory_order_relaxed);
  advise(data + kHugePage, whole - kHugePage, MADV_NOHUGEPAGE);
  return true;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Four sizes an octave, so that near sizes share blocks: gradients, activations of the next step.
// What is never touched behind the requested bytes takes no memory.
size_t block_size(size_t bytes) {
  return round_up(bytes, std::bit_floor(std::max(bytes, BlockPool::kMinBlock)) / 4);
}

}  // namespace

AlignedBlock::AlignedBlock(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  bool huge = bytes >= kHugeFrom;
  size_t alignment = huge ? kHugePage : kAlignment;
  data_.reset(static_cast<char*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
  if (!data_) throw std::bad_alloc();
  if (huge) has_small_pages_ = advise_huge_pages(data(), bytes);
}

void AlignedBlock::stays() {
  if (std::exchange(has_small_pages_, false))
    advise(data(), size_ / kHugePage * kHugePage, MADV_HUGEPAGE);
}

AlignedBlock BlockPool::acquire(size_t bytes) {
  size_t size = block_size(bytes);
  std::vector<AlignedBlock> evicted;  // freed after the lock is
  {
    std::lock_guard lock(mutex_);
    stats_.live_bytes += size;
    auto it = cached_.lower_bound(size);
    // A block more than an eighth too large stays for whom it fits.
    if (it != cached_.end() && it->first <= size + size / 8) {
      AlignedBlock block = std::move(it->second.block);
      stats_.live_bytes += block.size() - size;
      stats_.cached_bytes -= block.size();
      stats_.hits++;
      cached_.erase(it);
      evict(Clock::now(), evicted);
      block.stays();
      return block;
    }
    stats_.misses++;
    evict(Clock::now(), evicted);
  }
  evicted.clear();
  return AlignedBlock(size);
}

void BlockPool::release(AlignedBlock block) {
  std::vector<AlignedBlock> evicted;
  std::lock_guard lock(mutex_);
  stats_.live_bytes -= block.size();
  stats_.cached_bytes += block.size();
  auto now = Clock::now();
  size_t size = block.size();
  cached_.emplace(size, Cached{std::move(block), now});
  evict(now, evicted);
}

void BlockPool::evict(Clock::time_point now, std::vector<AlignedBlock>& out) {
  auto take = [&](auto it) {
    stats_.cached_bytes -= it->first;
    out.push_back(std::move(it->second.block));
    return cached_.erase(it);
  };
  for (auto it = cached_.begin(); it != cached_.end();)
    it = now - it->second.since > kIdle ? take(it) : std::next(it);
  while (stats_.cached_bytes > kMaxCached)
    take(std::ranges::min_element(cached_, {}, [](const auto& c) { return c.second.since; }));
}

void BlockPool::trim() {
  std::multimap<size_t, Cached> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(cached_);
  stats_.cached_bytes = 0;
}

BlockPool::Stats BlockPool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace oxy::runtime
