// Places each statement of an arrangement in its loop.
#include <algorithm>
#include <map>
#include <set>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/arrange_loops.h"
#include "schedule/cpu/nest_writer.h"
#include "schedule/kernel_access.h"
#include "support/check.h"

namespace oxy::schedule {

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// One instruction of a phase: where it goes.
struct Item {
  uint32_t nest = 0, inst = 0;
  uint32_t level = 0;  // 0: at the parallel iteration; k: inside the k-th loop of the phase
  bool after = false;  // after the loop inside its level: it needs the result of a reduction
};

class KernelEmitter {
 public:
  KernelEmitter(const loops::Program& p, const Arrangement& a, const std::vector<bool>& needed)
      : program_(p), arrangement_(a), needed_(needed) {}

  Kernel run(std::string name) {
    kernel_.name = std::move(name);
    collect_traffic();
    Block body;
    scopes_.emplace_back();
    for (phase_ = 0; phase_ < arrangement_.phases.size(); ++phase_) emit_phase(body);
    kernel_.body = wrap(ForKind::Parallel, arrangement_.parallel, std::move(body));
    kernel_.value_count = next_value_;
    kernel_.acc_count = next_acc_;
    tidy(kernel_);
    return std::move(kernel_);
  }

 private:
  using Key = std::pair<Inst, size_t>;  // with the phase
  struct KeyHash {
    size_t operator()(const Key& k) const { return loops::hash_of(k.first) + k.second; }
  };
  struct Scope {
    std::unordered_map<Key, uint32_t, KeyHash> known;
    std::map<std::pair<BufferId, uint64_t>, uint32_t> stored;
  };
  struct Reduction {
    uint32_t nest, inst, acc, level;
  };

  const Phase& phase() const { return arrangement_.phases[phase_]; }
  const Inst& inst(const Item& i) const { return phase().nests[i.nest].body[i.inst]; }
  void collect_traffic();
  void emit_phase(Block& out);
  void place_nest(uint32_t n);
  uint32_t level_of(const Inst& i, uint32_t nest) const;
  uint32_t sure_level(uint32_t limit) const;
  void emit_level(uint32_t level, Block& out);
  void emit_item(const Item& item, Block& out);
  void emit_load(Inst i, const Item& item, Block& out);
  void emit_value(Inst i, size_t phase, bool again, const Item& item, Block& out);
  void emit_store(const Inst& i, Block& out);
  void add_compute(Inst i, uint32_t value, Block& out);
  uint32_t buffer_entry(BufferId b);
  // Set by one nest and updated by another one.
  bool is_accumulator(BufferId b) const {
    auto it = writers_.find(b);
    return it != writers_.end() && it->second > 1;
  }

  const loops::Program& program_;
  const Arrangement& arrangement_;
  const std::vector<bool>& needed_;
  Kernel kernel_;
  size_t phase_ = 0;
  std::vector<Scope> scopes_;
  std::map<BufferId, uint32_t> writers_;  // how many nests store it
  std::map<BufferId, uint32_t> entry_;
  std::set<BufferId> unforwarded_;  // some load must find it in memory
  uint32_t next_value_ = 0, next_acc_ = 0;

  // Of the phase being emitted.
  std::vector<std::vector<Item>> before_, after_;  // by level
  std::vector<std::vector<uint32_t>> level_, value_;
  std::vector<std::vector<bool>> is_after_;
  std::vector<Reduction> reductions_;
  std::map<Expr, uint32_t> symbol_level_;
};

// Which buffers the kernel writes, and of those, which some load does not get as a value.
void KernelEmitter::collect_traffic() {
  struct Write {
    size_t phase = 0;
    Expr index = 0;
    bool in_no_loop = false;
  };
  std::map<BufferId, Write> last;
  const std::vector<Phase>& phases = arrangement_.phases;
  for (size_t k = 0; k < phases.size(); ++k) {
    for (const Nest& n : phases[k].nests) {
      for (const Inst& i : n.body) {
        if (!is_any(i.op, LoopOp::Store, LoopOp::StoreAdd)) continue;
        ++writers_[i.buffer];
        last[i.buffer] = {k, i.index[0], in_no_loop(n, arrangement_.parallel)};
      }
    }
  }
  for (size_t k = 0; k < phases.size(); ++k) {
    for (const Inst& i : instructions(phases[k].nests)) {
      if (i.op != LoopOp::Load || !writers_.contains(i.buffer)) continue;
      const Write& w = last[i.buffer];
      bool same =
          w.index == i.index[0] && writers_[i.buffer] == 1 && (w.phase == k || w.in_no_loop);
      if (!same) unforwarded_.insert(i.buffer);
    }
  }
}

uint32_t KernelEmitter::level_of(const Inst& i, uint32_t nest) const {
  uint32_t level = 0;
  for (uint32_t a : i.args) level = std::max(level, level_[nest][a]);
  if (i.op == LoopOp::Check || i.op == LoopOp::Symbol) return level;
  std::vector<Expr> symbols;
  for (Expr e : i.index) sym::collect_symbols(e, symbols);
  for (Expr s : symbols) {
    for (uint32_t k = 0; k < phase().axes.size(); ++k) {
      if (phase().axes[k].var == s) level = std::max(level, k + 1);
    }
    if (auto it = symbol_level_.find(s); it != symbol_level_.end())
      level = std::max(level, it->second);
  }
  return level;
}

// Values that do not depend on the nest's fold, but that something behind it takes.
std::vector<bool> used_outside(const Nest& nest) {
  std::vector<bool> after(nest.body.size()), outside(nest.body.size());
  for (size_t id = 0; id < nest.body.size(); ++id) {
    const Inst& i = nest.body[id];
    after[id] =
        i.op == LoopOp::Reduce || std::ranges::any_of(i.args, [&](uint32_t a) { return after[a]; });
  }
  for (size_t id = nest.body.size(); id-- > 0;) {
    if (nest.body[id].op == LoopOp::Reduce || (!after[id] && !outside[id])) continue;
    for (uint32_t a : nest.body[id].args) outside[a] = outside[a] || !after[a];
  }
  return outside;
}

// The level inside of all loops, of the first `limit`, that may be empty.
uint32_t KernelEmitter::sure_level(uint32_t limit) const {
  while (limit > 0 && !may_be_empty(phase().axes[limit - 1].size)) --limit;
  return limit;
}

void KernelEmitter::place_nest(uint32_t n) {
  const Nest& nest = phase().nests[n];
  uint32_t depth = phase().axes.size(), kept = depth;
  for (uint32_t k = depth; k-- > 0;) {
    if (is_reduction_axis(nest, phase().axes[k].var)) kept = k;
  }
  const bool reduces = find_inst(nest, LoopOp::Reduce);
  const std::vector<bool> outside = used_outside(nest);
  for (uint32_t id = 0; id < nest.body.size(); ++id) {
    const Inst& i = nest.body[id];
    Item item{n, id, level_of(i, n), false};
    item.after = std::ranges::any_of(i.args, [&](uint32_t a) { return is_after_[n][a]; });
    // An accumulator changes with every iteration of the nest that updates it.
    bool accumulator = i.op == LoopOp::Load && is_accumulator(i.buffer);
    if (accumulator) item.level = depth;
    if (is_any(i.op, LoopOp::Load, LoopOp::Index))
      item.level = std::max(item.level, sure_level(outside[id] ? kept : depth));
    if (i.op == LoopOp::Reduce) {
      reductions_.push_back({n, id, next_acc_++, kept});
      item.level = kept;
      item.after = true;
    } else if (is_any(i.op, LoopOp::Store, LoopOp::StoreAdd)) {
      item.level = reduces ? kept : depth;
    }
    if (item.after) item.level = std::max(item.level, kept);
    if (i.op == LoopOp::Symbol) symbol_level_[i.index[0]] = item.level;
    level_[n].push_back(item.level);
    is_after_[n].push_back(item.after);
    (item.after ? after_ : before_)[item.level].push_back(item);
  }
}

void KernelEmitter::emit_phase(Block& out) {
  size_t levels = phase().axes.size() + 1, nests = phase().nests.size();
  before_.assign(levels, {});
  after_.assign(levels, {});
  level_.assign(nests, {});
  is_after_.assign(nests, {});
  value_.assign(nests, {});
  reductions_.clear();
  symbol_level_.clear();
  for (uint32_t n = 0; n < nests; ++n) {
    value_[n].assign(phase().nests[n].body.size(), kNone);
    place_nest(n);
  }
  emit_level(0, out);
}

void KernelEmitter::emit_level(uint32_t level, Block& out) {
  for (const Item& i : before_[level]) emit_item(i, out);
  for (const Reduction& r : reductions_) {
    if (r.level != level) continue;
    const Body& body = phase().nests[r.nest].body;
    const Inst& i = body[r.inst];
    out.push_back(Stmt{Init{r.acc, i.reduce, body[i.args[0]].dtype}});
  }
  if (level < phase().axes.size()) {
    const PhaseAxis& a = phase().axes[level];
    For loop{a.kind, a.var, a.size, {}, {}};
    if (a.tiled) loop.annotations.set(kTiled);
    scopes_.emplace_back();
    emit_level(level + 1, loop.body);
    scopes_.pop_back();
    out.push_back(Stmt{std::move(loop)});
  } else {
    for (const Reduction& r : reductions_) {
      const Inst& i = phase().nests[r.nest].body[r.inst];
      out.push_back(Stmt{
          Accumulate{r.acc, value_[r.nest][i.args[0]], i.index.empty() ? Expr(0) : i.index[0]}});
    }
  }
  for (const Item& i : after_[level]) emit_item(i, out);
}

uint32_t KernelEmitter::buffer_entry(BufferId b) {
  auto [it, fresh] = entry_.try_emplace(b, static_cast<uint32_t>(kernel_.buffers.size()));
  if (!fresh) return it->second;
  KernelBuffer& k = kernel_.buffers.emplace_back(make_entry(program_, b, KernelBuffer::Kind::Read));
  if (auto local = arrangement_.locals.find(b); local != arrangement_.locals.end()) {
    k.kind = KernelBuffer::Kind::Local;
    k.elements = local->second;
    k.buffer = BufferId();
  }
  return it->second;
}

void KernelEmitter::add_compute(Inst i, uint32_t value, Block& out) {
  Compute c{.value = value,
            .op = i.op,
            .dtype = i.dtype,
            .args = std::move(i.args),
            .number = i.number,
            .integer = i.integer};
  if (!i.index.empty()) c.index = i.index[0];
  if (i.buffer.valid()) c.buffer = buffer_entry(i.buffer);
  out.push_back(Stmt{std::move(c)});
}

void KernelEmitter::emit_load(Inst i, const Item& item, Block& out) {
  if (writers_.contains(i.buffer) && writers_[i.buffer] == 1) {
    std::pair<BufferId, uint64_t> element{i.buffer, i.index[0].bits()};
    for (size_t k = scopes_.size(); k-- > 0;) {
      auto it = scopes_[k].stored.find(element);
      if (it == scopes_[k].stored.end()) continue;
      value_[item.nest][item.inst] = it->second;
      if (i.args.empty()) return;
      Inst where{.op = LoopOp::Where, .dtype = i.dtype, .args = {i.args[0], it->second, i.args[1]}};
      value_[item.nest][item.inst] = next_value_;
      return add_compute(std::move(where), next_value_++, out);
    }
  }
  // A buffer that this kernel writes holds other values in another phase.
  const size_t phase = writers_.contains(i.buffer) ? phase_ + 1 : 0;
  const bool again = !is_accumulator(i.buffer);
  emit_value(std::move(i), phase, again, item, out);
}

// The value that an equal instruction has given in this phase, where it may be used `again`, else a
// new one.
void KernelEmitter::emit_value(Inst i, size_t phase, bool again, const Item& item, Block& out) {
  Key key{i, phase};
  for (size_t k = scopes_.size(); k-- > 0 && again;) {
    if (auto it = scopes_[k].known.find(key); it != scopes_[k].known.end()) {
      value_[item.nest][item.inst] = it->second;
      return;
    }
  }
  value_[item.nest][item.inst] = next_value_;
  scopes_.back().known.emplace(std::move(key), next_value_);
  add_compute(std::move(i), next_value_++, out);
}

void KernelEmitter::emit_store(const Inst& i, Block& out) {
  if (writers_[i.buffer] == 1 && i.op == LoopOp::Store) {
    scopes_.back().stored[{i.buffer, i.index[0].bits()}] = i.args[0];
  }
  bool local = arrangement_.locals.contains(i.buffer);
  bool dead = !local && !needed_[i.buffer.index] && !unforwarded_.contains(i.buffer) &&
              i.op == LoopOp::Store;
  if (!dead) add_compute(i, kNone, out);
}

void KernelEmitter::emit_item(const Item& item, Block& out) {
  Inst i = inst(item);
  if (i.op == LoopOp::Reduce) {
    uint32_t acc = kNone;
    for (const Reduction& r : reductions_) {
      if (r.nest == item.nest && r.inst == item.inst) acc = r.acc;
    }
    value_[item.nest][item.inst] = next_value_;
    out.push_back(Stmt{Result{next_value_++, acc}});
    return;
  }
  for (uint32_t& a : i.args) {
    a = value_[item.nest][a];
    OXY_CHECK(a != kNone, "no value for an operand in ", phase().nests[item.nest].name);
  }
  switch (i.op) {
    case LoopOp::Store:
    case LoopOp::StoreAdd:
      return emit_store(i, out);
    case LoopOp::Check:
      return add_compute(std::move(i), kNone, out);
    case LoopOp::Load:
      return emit_load(std::move(i), item, out);
    default:
      return emit_value(std::move(i), 0, true, item, out);
  }
}

}  // namespace

Kernel emit_kernel(const loops::Program& p, const Arrangement& a, const std::vector<bool>& needed,
                   std::string name) {
  Kernel k = KernelEmitter(p, a, needed).run(std::move(name));
  std::set<ir::NodeId> origins;
  for (const Phase& ph : a.phases)
    for (const Nest& n : ph.nests) origins.insert(n.origins.begin(), n.origins.end());
  k.origins.assign(origins.begin(), origins.end());
  return k;
}

}  // namespace oxy::schedule
