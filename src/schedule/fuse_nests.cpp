// Tries to merge each group with its producers and with readers of the same memory.
#include <algorithm>
#include <numeric>
#include <queue>
#include <unordered_set>

#include "ops/op_table.h"
#include "schedule/cost.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"
#include "support/check.h"

namespace oxy::schedule {

namespace {

// Which way the nests that have axes of their own walk memory: along their own axes (rows) or along
// a parallel axis (columns).
struct Walk {
  enum class Way : uint8_t { Any, Rows, Columns, Mixed };
  Way way = Way::Any;
  Expr column = 0;  // the parallel axis
};

Walk join(const Walk& a, const Walk& b) {
  if (a.way == Walk::Way::Any) return b;
  if (b.way == Walk::Way::Any || (a.way == b.way && a.column == b.column)) return a;
  return {Walk::Way::Mixed};
}

Walk walk_of(const Group& g, const std::vector<Axis>& parallel) {
  Walk w;
  for (const Nest& n : g.nests) {
    bool own =
        std::ranges::any_of(n.axes, [&](const Axis& a) { return !has_axis(parallel, a.var); });
    Expr inner = contiguous_axis(n);
    if (!own || inner.is_const()) continue;
    w = join(w,
             has_axis(parallel, inner) ? Walk{Walk::Way::Columns, inner} : Walk{Walk::Way::Rows});
  }
  return w;
}

bool all_parallel(const Group& g, const std::vector<Axis>& parallel) {
  return std::ranges::all_of(g.nests,
                             [&](const Nest& n) { return n.axes.size() == parallel.size(); });
}

bool has_any(const Group& g, std::same_as<LoopOp> auto... ops) {
  return std::ranges::any_of(instructions(g.nests),
                             [&](const Inst& i) { return is_any(i.op, ops...); });
}

int64_t work_of(const Group& g) {
  int64_t most = 0;
  for (const Nest& n : g.nests) most = std::max(most, iterations(n.axes));
  return most;
}

// How many iterations threads can share. Of columns that lie side by side one takes many, and those
// that are walked again, as a column of few rows is, are still in the first-level cache.
int64_t shared_iterations(const std::vector<Axis>& parallel, const Group& a, const Group& b,
                          int64_t work) {
  int64_t columns = 1;
  for (const Group* g : {&a, &b})
    for (const Nest& n : g->nests) {
      const size_t at = place_of(parallel, contiguous_axis(n));
      if (n.axes.size() > parallel.size() && at < parallel.size())
        columns = std::max(columns, count_of(parallel[at].size));
    }
  const int64_t all = iterations(parallel), rows = work / std::max<int64_t>(all, 1);
  const int64_t tile = rows * tuning::fewest_columns <= tuning::split_piece ? tuning::fewest_columns
                                                                            : tuning::split_columns;
  return all / columns * ((columns + tile - 1) / tile);
}

// One folds what all iterations of the other one write.
bool folds_parts(const Group& a, const Group& b) {
  return std::ranges::any_of(a.nests, [&](const Nest& n) {
    return n.partial.valid() &&
           std::ranges::find(b.nests, n.partial, &Nest::partial) != b.nests.end();
  });
}

struct Unit {
  ScheduledUnit unit;
  uint32_t position = 0;                    // of its last nest or step
  std::vector<uint32_t> positions = {};     // of each nest
  std::vector<uint64_t> ancestors = {};     // bit set of units
  std::vector<uint32_t> predecessors = {};  // direct; ids as they were, see find()
  bool is_group() const { return !unit.group.empty(); }
  Group& group() { return unit.group[0]; }
  const Group& group() const { return unit.group[0]; }
};

class Fuser {
 public:
  Fuser(loops::Program& p, std::vector<ScheduledUnit> units, std::vector<FusionNote>& notes)
      : program_(p), notes_(notes) {
    for (ScheduledUnit& u : units) {
      const auto position = static_cast<uint32_t>(units_.size());
      units_.push_back({std::move(u), position, {position}});
    }
    words_ = (units_.size() + 63) / 64;
    owner_.resize(units_.size());
    std::iota(owner_.begin(), owner_.end(), 0);
    note_users();
    writer_.assign(program_.buffers.size(), -1);
    readers_.resize(program_.buffers.size());
  }

  std::vector<ScheduledUnit> run() {
    for (uint32_t id = 0; id < units_.size(); ++id) {
      connect(id);
      if (units_[id].is_group()) fuse(id);
    }
    return in_order();
  }

 private:
  uint32_t find(uint32_t id) const {
    while (owner_[id] != id) id = owner_[id];
    return id;
  }
  bool ancestor(uint32_t of, uint32_t id) const {
    return units_[of].ancestors[id / 64] >> (id % 64) & 1;
  }
  void note_users();
  void connect(uint32_t id);
  void add_predecessor(uint32_t id, uint32_t pred);
  void fuse(uint32_t id);
  bool try_merge(uint32_t a, uint32_t b, bool siblings);
  bool is_alive(uint32_t id) const { return owner_[id] == id; }
  bool path_between(uint32_t a, uint32_t b) const;
  // Whether only these two touch it: a kernel of both has it in registers.
  bool is_within(BufferId buffer, uint32_t a, uint32_t b) const;
  // Why a kernel of both is no gain; empty where it is one.
  std::string loss(const Group& a, const Group& b, const std::vector<Axis>& parallel,
                   bool siblings) const;
  void merge(uint32_t a, uint32_t b, Group ga, Group gb, std::vector<Axis> parallel);
  std::vector<ScheduledUnit> in_order();

  loops::Program& program_;
  std::vector<FusionNote>& notes_;
  std::vector<Unit> units_;
  std::vector<uint32_t> owner_;  // by unit: the unit that it was merged into, itself while alive
  std::vector<int32_t> writer_;  // by buffer
  std::vector<std::vector<uint32_t>> readers_;
  // By buffer: the units, as they were, that touch its memory; none where it outlives the steps.
  std::vector<std::vector<uint32_t>> users_;
  std::unordered_map<Expr, uint32_t> known_by_;  // symbols: the call that makes them known
  int32_t last_effect_ = -1;
  size_t words_ = 0;
};

void Fuser::note_users() {
  users_.resize(program_.buffers.size());
  const auto note = [&](BufferId b, uint32_t id) {
    if (b.valid()) users_[memory_of(program_, b).index].push_back(id);
  };
  for (uint32_t id = 0; id < units_.size(); ++id) {
    for (const Group& g : units_[id].unit.group)
      for (const Inst& i : instructions(g.nests)) note(i.buffer, id);
    for (const ScheduledStep& s : units_[id].unit.call) {
      for (BufferId b : call_of(s)->reads) note(b, id);
      for (BufferId b : call_of(s)->writes) note(b, id);
    }
  }
  const std::set<BufferId> escapes = escaping(program_);
  for (uint32_t b = 0; b < users_.size(); ++b)
    if (program_.buffers[BufferId(b)].kind != Buffer::Kind::Temp || escapes.contains(BufferId(b)))
      users_[b].clear();
}

bool Fuser::is_within(BufferId buffer, uint32_t a, uint32_t b) const {
  const std::vector<uint32_t>& users = users_[buffer.index];
  return !users.empty() &&
         std::ranges::all_of(users, [&](uint32_t u) { return find(u) == a || find(u) == b; });
}

void Fuser::add_predecessor(uint32_t id, uint32_t pred) {
  pred = find(pred);
  if (pred == id) return;
  Unit& u = units_[id];
  if (std::ranges::find(u.predecessors, pred) != u.predecessors.end()) return;
  u.predecessors.push_back(pred);
  for (size_t w = 0; w < words_; ++w) u.ancestors[w] |= units_[pred].ancestors[w];
  u.ancestors[pred / 64] |= uint64_t{1} << (pred % 64);
}

void Fuser::connect(uint32_t id) {
  Unit& u = units_[id];
  u.ancestors.assign(words_, 0);
  auto needs = [&](Expr e) {
    if (sym::origin_of(e) != sym::Origin::Data) return;
    for (Expr s : symbols_of(e))
      if (auto it = known_by_.find(s); it != known_by_.end()) add_predecessor(id, it->second);
  };
  auto reads = [&](BufferId b) {
    uint32_t m = memory_of(program_, b).index;
    if (writer_[m] >= 0) add_predecessor(id, static_cast<uint32_t>(writer_[m]));
    if (readers_[m].empty() || readers_[m].back() != id) readers_[m].push_back(id);
  };
  if (!u.is_group()) {
    const loops::Call& e = *call_of(u.unit.call[0]);
    for (BufferId b : e.reads) reads(b);
    for (BufferId b : e.writes) {
      if (b.valid()) writer_[b.index] = static_cast<int32_t>(id);
    }
    for (Expr s : symbols_needed(program_, e)) needs(s);
    for (Expr s : symbols_given(program_, e)) known_by_.emplace(s, id);
    const ops::OpInfo* info =
        program_.graph && e.node.valid() ? ops::find(program_.graph->node(e.node)) : nullptr;
    if (info && !info->has(ops::Random) && !info->has(ops::Effect)) return;
    // Random numbers and effects keep their order.
    if (last_effect_ >= 0) add_predecessor(id, static_cast<uint32_t>(last_effect_));
    last_effect_ = static_cast<int32_t>(id);
    return;
  }
  for (const Axis& a : u.group().nests[0].axes) needs(a.size);
  for (const Inst& i : u.group().nests[0].body) {
    if (is_any(i.op, LoopOp::Load, LoopOp::StoreAdd)) reads(i.buffer);
    for (Expr e : i.index) needs(e);
  }
  for (const Inst& i : u.group().nests[0].body) {
    if (is_any(i.op, LoopOp::Store, LoopOp::StoreAdd))
      writer_[i.buffer.index] = static_cast<int32_t>(id);
  }
}

void Fuser::fuse(uint32_t id) {
  std::vector<uint32_t> producers, siblings;
  auto add = [&](std::vector<uint32_t>& list, uint32_t u) {
    if (u != id && units_[u].is_group() && std::ranges::find(list, u) == list.end())
      list.push_back(u);
  };
  for (uint32_t p : units_[id].predecessors) add(producers, find(p));
  for (const Inst& i : units_[id].group().nests[0].body) {
    if (i.op != LoopOp::Load) continue;
    const auto& readers = readers_[i.buffer.index];
    size_t first =
        readers.size() > tuning::fuse_siblings ? readers.size() - tuning::fuse_siblings : 0;
    for (size_t k = readers.size(); k-- > first;) add(siblings, find(readers[k]));
  }
  std::ranges::sort(producers, std::greater<>(), [&](uint32_t u) { return units_[u].position; });
  uint32_t self = id;
  for (uint32_t p : producers) {
    p = find(p);
    if (p != self && try_merge(p, self, false)) self = find(self);
  }
  for (uint32_t s : siblings) {
    s = find(s);
    bool related = s == self || ancestor(self, s) || ancestor(s, self);
    if (!related && try_merge(s, self, true)) self = find(self);
  }
}

// Whether something outside must run after one and before the other.
bool Fuser::path_between(uint32_t a, uint32_t b) const {
  auto through = [&](uint32_t from, uint32_t to) {
    return std::ranges::any_of(units_[to].predecessors, [&](uint32_t p) {
      p = find(p);
      return p != from && p != to && ancestor(p, from);
    });
  };
  return through(a, b) || through(b, a);
}

std::string Fuser::loss(const Group& a, const Group& b, const std::vector<Axis>& parallel,
                        bool siblings) const {
  bool elementwise = !has_any(a, LoopOp::Reduce) && !has_any(b, LoopOp::Reduce);
  bool same_space = all_parallel(a, parallel) && all_parallel(b, parallel);
  bool keeps_space = parallel.size() == a.parallel.size() && parallel.size() == b.parallel.size();
  if (elementwise && !same_space && !keeps_space) return "different iteration spaces";
  if (siblings && (!share_reads(a, b) || !keeps_space))
    return "they read the same memory at different iterations";
  int64_t work = std::max(work_of(a), work_of(b));
  const int64_t left = shared_iterations(parallel, a, b, work);
  const Walk walk = join(walk_of(a, parallel), walk_of(b, parallel));
  // As they are now, and as they would be: columns that are no longer parallel are walked one after
  // the other.
  const Walk before = join(walk_of(a, a.parallel), walk_of(b, b.parallel));
  const bool mixed = walk.way == Walk::Way::Mixed || before.way == Walk::Way::Mixed;
  if (mixed && work > tuning::fuse_small_walk) return "they walk memory in different directions";
  if (elementwise && !same_space && walk.way == Walk::Way::Columns)
    return "one repeats the other's elements along an outer axis";
  auto loses = [&](const Group& g) {
    return left < iterations(g.parallel) && work_of(g) > tuning::fuse_small_work;
  };
  if (left < tuning::fuse_fewest_iterations && (loses(a) || loses(b)))
    return cat("only ", left, " parallel iterations would remain");
  return "";
}

bool Fuser::try_merge(uint32_t a, uint32_t b, bool siblings) {
  const Group &of_a = units_[a].group(), &of_b = units_[b].group();
  auto refuse = [&](std::string why, bool noted = true) {
    if (noted) notes_.push_back({of_a.nests.back().name, of_b.nests.front().name, std::move(why)});
    return false;
  };
  if (path_between(a, b)) return refuse("another step must run between them", !siblings);
  if (folds_parts(of_a, of_b)) return refuse("partial results are folded when all are there");
  // Adds to memory at places of its own, or walks an axis in order.
  auto is_sequential = [](const Group& g) { return has_any(g, LoopOp::StoreAdd, LoopOp::Scan); };
  if (is_sequential(of_a) || is_sequential(of_b))
    return refuse("one of them is a scatter or a scan");
  size_t count = 0;
  std::unordered_set<BufferId> touched;
  for (const Group* g : {&of_a, &of_b}) {
    for (const Inst& i : instructions(g->nests)) {
      ++count;
      if (i.buffer.valid()) touched.insert(i.buffer);
    }
  }
  if (count > tuning::fuse_largest_kernel) return refuse("the kernel would be too large");
  if (touched.size() > tuning::fuse_most_buffers &&
      std::cmp_greater(
          std::ranges::count_if(touched, [&](BufferId t) { return !is_within(t, a, b); }),
          tuning::fuse_most_buffers))
    return refuse("the kernel would have too many buffers");
  Group ga = of_a, gb = of_b;
  align_groups(program_, ga, gb);
  auto parallel = common_parallel_axes(ga, gb);
  if (!parallel)
    return refuse("an element is read at another iteration than where it is written", !siblings);
  if (std::string why = loss(ga, gb, *parallel, siblings); !why.empty())
    return refuse(std::move(why), !siblings);
  merge(a, b, std::move(ga), std::move(gb), std::move(*parallel));
  return true;
}

void Fuser::merge(uint32_t a, uint32_t b, Group ga, Group gb, std::vector<Axis> parallel) {
  Unit &into = units_[a], &from = units_[b];
  Group merged;
  merged.parallel = std::move(parallel);
  std::vector<uint32_t> positions;
  size_t i = 0, j = 0;
  while (i < ga.nests.size() || j < gb.nests.size()) {
    bool first =
        j == gb.nests.size() || (i < ga.nests.size() && into.positions[i] < from.positions[j]);
    positions.push_back(first ? into.positions[i] : from.positions[j]);
    merged.nests.push_back(std::move(first ? ga.nests[i++] : gb.nests[j++]));
  }
  into.group() = std::move(merged);
  into.positions = std::move(positions);
  into.position = std::max(into.position, from.position);
  owner_[b] = a;
  std::vector<uint32_t> predecessors;
  for (const Unit* u : {&into, &from}) {
    for (uint32_t p : u->predecessors) {
      p = find(p);
      if (p != a && std::ranges::find(predecessors, p) == predecessors.end())
        predecessors.push_back(p);
    }
  }
  into.predecessors = std::move(predecessors);
  for (size_t w = 0; w < words_; ++w) into.ancestors[w] |= from.ancestors[w];
  for (uint32_t bit : {a, b}) into.ancestors[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  for (uint32_t u = 0; u < units_.size() && !units_[u].ancestors.empty(); ++u) {
    if (u == a || (!ancestor(u, a) && !ancestor(u, b))) continue;
    for (size_t w = 0; w < words_; ++w) units_[u].ancestors[w] |= into.ancestors[w];
    units_[u].ancestors[a / 64] |= uint64_t{1} << (a % 64);
  }
}

// Dependences first; among what may run, what came first in the program.
std::vector<ScheduledUnit> Fuser::in_order() {
  std::vector<std::vector<uint32_t>> successors(units_.size());
  std::vector<uint32_t> waiting(units_.size(), 0);
  for (uint32_t id = 0; id < units_.size(); ++id) {
    if (!is_alive(id)) continue;
    std::unordered_set<uint32_t> seen;
    for (uint32_t p : units_[id].predecessors) {
      p = find(p);
      if (p == id || !seen.insert(p).second) continue;
      successors[p].push_back(id);
      ++waiting[id];
    }
  }
  using Entry = std::pair<uint32_t, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (uint32_t id = 0; id < units_.size(); ++id) {
    if (is_alive(id) && waiting[id] == 0) ready.emplace(units_[id].position, id);
  }
  std::vector<ScheduledUnit> out;
  while (!ready.empty()) {
    uint32_t id = ready.top().second;
    ready.pop();
    out.push_back(std::move(units_[id].unit));
    for (uint32_t s : successors[id]) {
      if (--waiting[s] == 0) ready.emplace(units_[s].position, s);
    }
  }
  size_t alive = 0;
  for (uint32_t id = 0; id < units_.size(); ++id) alive += is_alive(id);
  OXY_CHECK(out.size() == alive, "fusion made a cycle");
  return out;
}

}  // namespace

void fuse_nests(Draft& d) {
  d.units = Fuser(d.schedule.program, std::move(d.units), d.schedule.notes).run();
}

}  // namespace oxy::schedule
