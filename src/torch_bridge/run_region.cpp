// Runs the branch that the condition chooses, the body for as long as it holds, or the blocks of
// attention.
#include <ATen/ops/clone.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>

#include "torch_bridge/execute.h"

namespace oxy::bridge {
namespace {

constexpr std::chrono::milliseconds kBetweenPolls{10};
InterruptPoll host_poll = nullptr;

// Asks the host whether the run is to stop, at most every ten milliseconds.
class InterruptClock {
 public:
  void tick() {
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

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

bool shares_memory(const at::Tensor& t, std::span<const at::Tensor> others) {
  return std::ranges::any_of(others, [&](const at::Tensor& o) { return o.is_alias_of(t); });
}

}  // namespace

void set_interrupt_poll(InterruptPoll poll) { host_poll = poll; }

BoundRegion::BoundRegion(const runtime::Plan& plan, const runtime::RegionStep& step,
                         const runtime::CodeTable& code, const Executable::Options& options)
    : step_(step) {
  for (size_t i = 0; i < plans_.size(); i++)
    plans_[i] = std::make_unique<Executable>(plan.regions.at(step.plans.at(i)), code, options);
}

std::vector<at::Tensor> BoundRegion::run(const std::vector<at::Tensor>& tensors, Slots slots) {
  std::vector<at::Tensor> given;
  for (uint32_t b : step_.operands) given.push_back(tensors[b]);
  Outputs out;
  using Kind = runtime::RegionStep::Kind;
  if (step_.kind == Kind::Cond)
    run_plan(given[0].is_nonzero() ? 0 : 1, std::span(given).subspan(1), slots, out);
  else if (step_.kind == Kind::Loop)
    run_loop(given, slots, out);
  else
    run_blocks(given, slots, out);
  std::vector<at::Tensor> results;
  for (at::Tensor& t : out) {
    if (shares_memory(t, given) || shares_memory(t, results)) t = t.clone();
    results.push_back(std::move(t));
  }
  return results;
}

void BoundRegion::run_loop(std::vector<at::Tensor> now, Slots slots, Outputs& out) {
  InterruptClock clock;
  for (;;) {
    Outputs condition, next;
    run_plan(0, now, slots, condition);
    if (!condition[0].is_nonzero()) break;
    run_plan(1, now, slots, next);
    std::move(next.begin(), next.end(), now.begin());
    clock.tick();
  }
  out.assign(now.begin(), now.begin() + static_cast<ptrdiff_t>(step_.results.size()));
}

namespace {

// For each block of rows how many blocks of columns it meets, and which ones: (batch or 1, heads or
// 1, row blocks) and (..., column blocks) of i32.
class BlockLists {
 public:
  BlockLists(const at::Tensor& counts, const at::Tensor& indices)
      : counts_(counts.contiguous()), indices_(indices.contiguous()) {
    OXY_CHECK(counts_.scalar_type() == at::kInt && indices_.scalar_type() == at::kInt &&
                  counts_.dim() == 3 && indices_.dim() == 4 &&
                  counts_.sizes() == indices_.sizes().slice(0, 3),
              "lists of blocks in another form");
  }
  bool has_heads() const { return counts_.size(1) > 1; }
  int64_t rows() const { return counts_.size(2); }
  std::span<const int32_t> of(int64_t batch, int64_t head, int64_t row) const {
    const int64_t list =
        ((counts_.size(0) > 1 ? batch : 0) * counts_.size(1) + (counts_.size(1) > 1 ? head : 0)) *
            counts_.size(2) +
        row;
    const int32_t count = counts_.const_data_ptr<int32_t>()[list];
    TORCH_CHECK_INDEX(count >= 0 && count <= indices_.size(3), "a block mask lists ", count, " of ",
                      indices_.size(3), " blocks");
    return {indices_.const_data_ptr<int32_t>() + list * indices_.size(3),
            static_cast<size_t>(count)};
  }

 private:
  at::Tensor counts_, indices_;
};

// The block of this number, `size` long, as it lies in `length`: the last one ends where that does.
int64_t begin_of(int64_t block, int64_t size, int64_t length) {
  return std::min(block * size, length - size);
}

}  // namespace

void BoundRegion::run_blocks(std::span<const at::Tensor> given, Slots slots, Outputs& out) {
  const BlockLists lists[] = {{given[0], given[1]}, {given[2], given[3]}};
  const at::Tensor &query = given[4], &key = given[5];
  constexpr size_t kTiles = runtime::RegionStep::front(runtime::RegionStep::Kind::Blocks),
                   kPlaces = kTiles + 3, kState = kPlaces + 1;
  std::vector<at::Tensor> now(given.begin() + kTiles, given.end());
  const std::span<at::Tensor> tiles = std::span(now).first(3),
                              state = std::span(now).subspan(kState - kTiles, 3);
  const at::Tensor places = at::empty({5}, at::kInt);
  now[kPlaces - kTiles] = places;
  const int64_t heads = tiles[0].size(1), rows = tiles[0].size(2), columns = tiles[1].size(2),
                key_heads = tiles[1].size(1), repeats = query.size(1) / key.size(1);
  OXY_CHECK(lists[0].rows() * rows >= query.size(2) && lists[1].rows() * rows >= query.size(2) &&
                (heads == 1 || !(lists[0].has_heads() || lists[1].has_heads())),
            "lists for other blocks");
  for (size_t i = 0; i < 3; ++i)
    out.push_back(at::empty({query.size(0), query.size(1), query.size(2), state[i].size(3)},
                            state[i].options()));
  InterruptClock clock;
  Outputs next;
  const auto meet = [&](bool full, int64_t block) {
    TORCH_CHECK_INDEX(block >= 0, "a block mask lists block ", block);
    if (block * columns >= key.size(2)) return;  // a long block of the mask is cut into several
    auto* place = places.mutable_data_ptr<int32_t>();
    place[4] = static_cast<int32_t>(block * columns);
    place[3] = static_cast<int32_t>(begin_of(block, columns, key.size(2)));
    for (size_t i : {1, 2})
      tiles[i] = given[4 + i]
                     .narrow(0, key.size(0) > 1 ? place[0] : 0, 1)
                     .narrow(1, place[1] / repeats, key_heads)
                     .narrow(2, place[3], columns);
    next.clear();
    run_plan(full && place[3] == place[4] ? 1 : 0, now, slots, next);
    std::ranges::move(next, state.begin());
  };
  for (int64_t batch = 0; batch < query.size(0); ++batch)
    for (int64_t head = 0; head < query.size(1); head += heads)
      for (int64_t row = 0; row * rows < query.size(2); ++row) {
        auto* place = places.mutable_data_ptr<int32_t>();
        place[0] = static_cast<int32_t>(batch);
        place[1] = static_cast<int32_t>(head);
        place[2] = static_cast<int32_t>(begin_of(row, rows, query.size(2)));
        const auto part = [&](const at::Tensor& t) {
          return t.narrow(0, batch, 1).narrow(1, head, heads).narrow(2, place[2], rows);
        };
        tiles[0] = part(query);
        std::copy_n(given.begin() + kState, 3, state.begin());
        for (int full : {0, 1})
          for (int32_t block : lists[full].of(batch, head, row)) meet(full == 1, block);
        const int64_t again = row * rows - place[2];  // rows of the block before
        for (size_t i = 0; i < 3; ++i) part(out[i]).slice(2, again).copy_(state[i].slice(2, again));
        clock.tick();
      }
}

void BoundRegion::run_plan(size_t which, std::span<const at::Tensor> given, Slots slots,
                           Outputs& out) {
  c10::SmallVector<Input, 16> inputs;
  for (const at::Tensor& t : given) inputs.push_back({&t, 0});
  for (const runtime::Slot s : step_.numbers) inputs.push_back({nullptr, slots[s.index]});
  OXY_CHECK(plans_[which]->has_layouts({inputs.data(), inputs.size()}),
            "a region is given other tensors than its plan is for");
  std::string reason;
  if (!plans_[which]->run({inputs.data(), inputs.size()}, out, reason)) OXY_FAIL(reason);
}

std::vector<std::string> BoundRegion::take_notes() {
  std::vector<std::string> out;
  for (const auto& plan : plans_) {
    if (!plan->has_notes()) continue;
    for (std::string& note : plan->take_notes()) out.push_back(std::move(note));
  }
  return out;
}

}  // namespace oxy::bridge
