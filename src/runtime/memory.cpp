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
constexpr size_t kSegment = 64 << 20;
constexpr size_t kMaxParts = 2;
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

// Sixteen sizes an octave, so that near sizes share blocks.
size_t block_size(size_t bytes) {
  return round_up(bytes, std::bit_floor(std::max(bytes, BlockPool::kMinBlock)) / 16);
}

// The whole pages in a range.
std::span<char> pages_in(char* data, size_t bytes, size_t page) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = round_up(begin, page), last = (begin + bytes) / page * page;
  return {data + (first - begin), last > first ? last - first : 0};
}

// Of `bytes`, aligned to huge pages; it has no memory before it is written to.
std::shared_ptr<const std::span<char>> new_segment(size_t bytes) {
  const size_t mapped = bytes + kHugePage;
  void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<char*>(at);
  const std::span<char> segment(pages_in(start, mapped, kHugePage).data(), bytes);
  return {new std::span<char>(segment), [start, mapped](const std::span<char>* s) {
            munmap(start, mapped);
            delete s;
          }};
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

BlockPool::Lease BlockPool::acquire(size_t bytes) {
  const size_t size = block_size(bytes);
  Segments evicted;
  std::unique_lock lock(mutex_);
  Block* block = best_fit(warm_, size);
  const bool warm = block != nullptr;
  if (!warm) block = best_fit(cold_, size);
  if (block == nullptr) {
    auto segment = new_segment(size < kSegment / 2 ? kSegment : round_up(size, kHugePage));
    block = new Block{
        .pool = this, .data = segment->data(), .size = segment->size(), .segment = segment};
  } else {
    leave(block);
  }
  if (block->size >= size + kMinBlock) split(block, size);
  ++(warm ? stats_.hits : stats_.misses);
  stats_.live_bytes += block->size;
  most_ = std::max(most_, stats_.live_bytes);
  evict(Clock::now(), evicted);
  lock.unlock();
  const std::span<char> pages = pages_in(block->data, block->size, kHugePage);
  if (!warm) {
    block->has_small_pages =
        block->size >= kHugeFrom && advise_huge_pages(pages.data(), pages.size());
  } else if (std::exchange(block->has_small_pages, false)) {
    advise(pages.data(), pages.size(), MADV_HUGEPAGE);
  }
  return Lease(block);
}

// The smallest block that will do, whole or split. Of a segment for one large request a small part
// is not taken: it might live on for long.
BlockPool::Block* BlockPool::best_fit(const Free& free, size_t size) {
  for (auto it = free.lower_bound(size); it != free.end(); ++it) {
    Block* block = *it;
    if (block->segment->size() == kSegment || block->size <= kMaxParts * size) return block;
  }
  return nullptr;
}

void BlockPool::release(Block* block) {
  Segments evicted;
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  stats_.live_bytes -= block->size;
  block->is_warm = true;
  block->since = now;
  enter(joined(block));
  evict(now, evicted);
}

// What is behind `size` becomes a free block of its own.
void BlockPool::split(Block* block, size_t size) {
  auto* rest = new Block(*block);
  rest->data += size;
  rest->size -= size;
  rest->before = block;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  block->size = size;
  enter(rest);
}

// One block of this one and the free neighbours that are warm or cold as it is.
BlockPool::Block* BlockPool::joined(Block* block) {
  const auto is_alike = [&](const Block* b) {
    return b != nullptr && b->is_free && b->is_warm == block->is_warm;
  };
  const auto take_next = [&](Block* first) {
    const std::unique_ptr<Block> next(first->after);
    first->size += next->size;
    first->has_small_pages |= next->has_small_pages;
    first->since = std::max(first->since, next->since);
    first->after = next->after;
    if (first->after != nullptr) first->after->before = first;
    return first;
  };
  if (is_alike(block->after)) {
    leave(block->after);
    take_next(block);
  }
  if (!is_alike(block->before)) return block;
  leave(block->before);
  return take_next(block->before);
}

void BlockPool::enter(Block* block) {
  block->is_free = true;
  (block->is_warm ? warm_ : cold_).insert(block);
  if (!block->is_warm) return;
  warm_by_age_.insert(block);
  stats_.cached_bytes += block->size;
}

void BlockPool::leave(Block* block) {
  block->is_free = false;
  (block->is_warm ? warm_ : cold_).erase(block);
  if (!block->is_warm) return;
  warm_by_age_.erase(block);
  stats_.cached_bytes -= block->size;
}

// What was not needed for kIdle is cooled, at the first use after it.
void BlockPool::evict(Clock::time_point now, Segments& out) {
  size_t kept = kMaxCached;
  if (const auto passed = now - turn_; passed > kIdle) {
    const size_t most = std::exchange(most_, stats_.live_bytes);
    turn_ = now;
    kept = passed > 2 * kIdle ? 0 : std::min(kept, most - stats_.live_bytes);
  }
  if (stats_.cached_bytes > kept) cool(stats_.cached_bytes - kept, out);
}

// Gives the pages of so many bytes back to the system, of those that were used last before others,
// and segments that are cold as a whole.
void BlockPool::cool(size_t bytes, Segments& out) {
  while (bytes > 0 && !warm_by_age_.empty()) {
    Block* block = *warm_by_age_.begin();
    leave(block);
    if (block->size > bytes + kMinBlock) split(block, round_up(bytes, kSmallPage));
    bytes -= std::min(bytes, block->size);
    block->is_warm = false;
    const std::span<char> pages = pages_in(block->data, block->size, kSmallPage);
    block = joined(block);
    if (block->before != nullptr || block->after != nullptr) {
      advise(pages.data(), pages.size(), MADV_DONTNEED);
      enter(block);
    } else {
      out.push_back(std::move(block->segment));
      delete block;
    }
  }
}

void BlockPool::trim() {
  Segments dropped;
  std::lock_guard lock(mutex_);
  cool(stats_.cached_bytes, dropped);
}

BlockPool::Stats BlockPool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace oxy::runtime
