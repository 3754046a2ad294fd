// Weighs repeated work against saved memory traffic, and substitutes producers.
#include "schedule/inline_loops.h"

#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "schedule/nest.h"
#include "schedule/uses.h"
#include "support/tuning.h"

namespace oxy::schedule {

using loops::Axis;
using loops::Body;
using loops::BodyWriter;
using loops::Index;
using loops::Inst;
using loops::Loop;
using loops::LoopOp;
using loops::Program;
using sym::Expr;

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// What is known of a loop that may be inlined, and where it ends up.
struct Candidate {
  bool simple = false;  // elementwise, one store, at its own axes
  bool inlined = false;
  std::vector<uint32_t> roots;  // loops that it ends up in; itself, where it stays
  int repeats = 1;              // how often its value is computed in a root
  int extra = 0;                // cost that is computed in more than one place
  int64_t iterations = 0;       // of the largest root
  bool hoistable = true;        // its value does not change along the innermost axes of the root
  size_t body = 0;              // instructions in the root, about
  int loads = 0;
  int cost = 0;
};

// One load of a producer's buffer: what the consumer does with the index.
struct Access {
  bool plain = true;      // each index is an axis or 0
  bool hoistable = true;  // the axes used come before those that are not
};

Access access_of(const Loop& consumer, const Inst& load) {
  Access a;
  std::vector<Expr> used;
  for (Expr e : load.index) {
    bool axis = std::any_of(consumer.axes.begin(), consumer.axes.end(),
                            [&](const Axis& x) { return x.var == e; });
    a.plain &= axis || e.is_const(0);
    sym::collect_symbols(e, used);
  }
  bool ended = false;
  for (const Axis& x : consumer.axes) {
    bool uses = std::find(used.begin(), used.end(), x.var) != used.end();
    if (uses && ended) a.hoistable = false;
    ended |= !uses;
  }
  return a;
}

class Inliner {
 public:
  explicit Inliner(Program& p) : program_(p), uses_(buffer_uses(p)), candidates_(p.steps.size()) {}

  void run() {
    for (uint32_t s = 0; s < program_.steps.size(); ++s) describe(s);
    for (uint32_t s = program_.steps.size(); s-- > 0;) decide(s);
    rewrite();
  }

 private:
  const Loop* loop(uint32_t s) const { return std::get_if<Loop>(&program_.steps[s]); }
  void describe(uint32_t s);
  void decide(uint32_t s);
  bool gather_readers(uint32_t s, Candidate& c);
  bool worth_inlining(uint32_t s, const Candidate& c) const;
  void rewrite();

  Program& program_;
  BufferUses uses_;
  std::vector<Candidate> candidates_;
};

const Inst& store_of(const Loop& l) {
  return *std::find_if(l.body.begin(), l.body.end(),
                       [](const Inst& i) { return i.op == LoopOp::Store; });
}

bool stores_at_own_axes(const Loop& l, const Inst& store) {
  size_t axis = 0;
  for (Expr e : store.index) {
    if (e.is_const(0)) continue;
    if (axis == l.axes.size() || !(l.axes[axis].var == e)) return false;
    ++axis;
  }
  return axis == l.axes.size();
}

void Inliner::describe(uint32_t s) {
  const Loop* l = loop(s);
  Candidate& c = candidates_[s];
  if (!l) return;
  c.cost = cost_of(l->body);
  c.body = l->body.size();
  int stores = 0;
  bool elementwise = !l->has_reduction();
  for (const Inst& i : l->body) {
    stores += i.op == LoopOp::Store;
    elementwise &= i.op != LoopOp::StoreAdd && i.op != LoopOp::Scan;
    c.loads += i.op == LoopOp::Load;
  }
  c.simple = elementwise && stores == 1 && stores_at_own_axes(*l, store_of(*l)) &&
             !uses_.updated[memory_of(program_, store_of(*l).buffer).index];
}

// Joins what the readers of the loop's buffer say; false where there are none.
bool Inliner::gather_readers(uint32_t s, Candidate& c) {
  BufferId buffer = memory_of(program_, store_of(*loop(s)).buffer);
  int repeats = 0;
  bool plain = true;
  c.roots.clear();
  for (uint32_t r : uses_.readers[buffer.index]) {
    const Candidate& reader = candidates_[r];
    for (uint32_t root : reader.roots) {
      if (std::find(c.roots.begin(), c.roots.end(), root) == c.roots.end()) c.roots.push_back(root);
    }
    c.extra = std::max(c.extra, reader.extra);
    c.iterations = std::max(c.iterations, reader.iterations);
    c.body = std::max(c.body, reader.body);
    for (const Inst& i : loop(r)->body) {
      if (i.op != LoopOp::Load || memory_of(program_, i.buffer) != buffer) continue;
      if (i.buffer != buffer) return false;  // through a view's own index space
      Access a = access_of(*loop(r), i);
      plain &= a.plain && reader.repeats == 1;
      c.hoistable &= a.hoistable && (!reader.inlined || reader.hoistable);
      repeats += reader.repeats;
    }
  }
  c.repeats = plain ? 1 : std::max(repeats, 1);
  c.body += loop(s)->body.size() * c.repeats;
  return !c.roots.empty();
}

bool Inliner::worth_inlining(uint32_t s, const Candidate& c) const {
  if (c.body > tuning::inline_largest_body) return false;
  if (c.loads == 0 && c.cost <= tuning::inline_cheap) return true;
  int64_t own = iterations(loop(s)->axes);
  bool broadcast = c.iterations > own * 3 / 2;
  int bearable = c.iterations <= own * 2 ? tuning::inline_twice : tuning::inline_cheap;
  if (broadcast && !c.hoistable && c.cost > bearable) return false;
  // What is computed beyond once an element: windows overlap, and there may be fewer of them than
  // elements.
  const int64_t again = c.repeats * std::min(c.iterations, own) - own;
  if (c.repeats > 1 && c.cost * again > 2 * tuning::inline_cheap * own) return false;
  if (c.roots.size() == 1) return true;
  return c.loads <= 1 && c.roots.size() <= 8 && c.extra + c.cost <= tuning::inline_cheap;
}

void Inliner::decide(uint32_t s) {
  Candidate& c = candidates_[s];
  const Loop* l = loop(s);
  if (!l) return;
  Candidate at_readers = c;
  at_readers.body = 0;
  if (c.simple && gather_readers(s, at_readers)) {
    BufferId buffer = memory_of(program_, store_of(*l).buffer);
    bool constant = c.loads == 0 && c.cost == 0;
    if ((constant || !uses_.pinned[buffer.index]) && worth_inlining(s, at_readers)) {
      bool several = at_readers.roots.size() > 1;
      c = at_readers;
      c.inlined = true;
      if (several) c.extra += c.cost;
      return;
    }
  }
  c.roots = {s};
  c.iterations = iterations(l->axes);
}

// Writes one loop anew with its producers' bodies in place of their loads.
class Splicer {
 public:
  Splicer(Program& p, const BufferUses& uses, const std::vector<Candidate>& candidates)
      : program_(p), uses_(uses), candidates_(candidates) {}

  void run(Loop& l) {
    out_.clear();
    BodyWriter writer(out_);
    writer_ = &writer;
    memo_.clear();
    origins_.clear();
    scope_.emplace(*program_.variables);
    for (const Axis& a : l.axes) scope_->take(a.var);
    copy(l, {}, std::nullopt);
    loops::remove_dead(out_);
    l.body = std::move(out_);
    l.origins.insert(l.origins.begin(), origins_.begin(), origins_.end());
    std::sort(l.origins.begin(), l.origins.end());
    l.origins.erase(std::unique(l.origins.begin(), l.origins.end()), l.origins.end());
  }

 private:
  struct Mask {
    uint32_t holds, otherwise;
  };
  struct Key {
    BufferId buffer;
    Index index;
    uint32_t mask;               // all that must hold
    uint32_t chosen, otherwise;  // the load's own mask, which the value has been chosen by
    bool operator<(const Key& o) const {
      auto bits = [](const Index& x) {
        std::vector<uint64_t> v;
        for (Expr e : x) v.push_back(e.bits());
        return v;
      };
      if (buffer != o.buffer) return buffer < o.buffer;
      if (mask != o.mask) return mask < o.mask;
      if (chosen != o.chosen) return chosen < o.chosen;
      if (otherwise != o.otherwise) return otherwise < o.otherwise;
      return bits(index) < bits(o.index);
    }
  };

  // Copies a body under a substitution of its variables; with a mask, nothing is read or checked
  // where it does not hold. Returns the stored value when the store itself is left out.
  uint32_t copy(const Loop& l, Substitution subst, std::optional<Mask> mask);
  uint32_t load(Inst i, std::optional<Mask> mask);
  Expr fresh_symbol(Expr old);

  Program& program_;
  const BufferUses& uses_;
  const std::vector<Candidate>& candidates_;
  Body out_;
  BodyWriter* writer_ = nullptr;
  std::map<Key, uint32_t> memo_;
  std::optional<loops::VariableScope> scope_;
  std::vector<ir::NodeId> origins_;
  int depth_ = 0;
};

Expr Splicer::fresh_symbol(Expr old) {
  if (scope_->take(old)) return old;
  sym::Range range = sym::range_of(old);
  Expr size = range.hi == INT64_MAX ? old : Expr(range.hi + 1);
  return scope_->get('i', size);
}

uint32_t Splicer::load(Inst i, std::optional<Mask> mask) {
  std::optional<Mask> own;
  if (!i.args.empty()) own = Mask{i.args[0], i.args[1]};
  int32_t w = uses_.writer[memory_of(program_, i.buffer).index];
  bool inlined = w >= 0 && candidates_[w].inlined;
  if (!inlined) {
    if (mask && !own) {
      i.args = {mask->holds, writer_->emit_const(0, i.dtype)};
    } else if (mask) {
      Inst both{.op = LoopOp::And, .dtype = ops::DType::B8, .args = {mask->holds, own->holds}};
      i.args[0] = writer_->emit(std::move(both));
    }
    return writer_->emit(std::move(i));
  }
  std::optional<Mask> inner = own ? own : mask;
  if (mask && own) {
    Inst both{.op = LoopOp::And, .dtype = ops::DType::B8, .args = {mask->holds, own->holds}};
    inner->holds = writer_->emit(std::move(both));
  }
  Key key{i.buffer, i.index, inner ? inner->holds : kNone, own ? own->holds : kNone,
          own ? own->otherwise : kNone};
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  const Loop& producer = std::get<Loop>(program_.steps[w]);
  Substitution subst;
  const Inst& store = store_of(producer);
  for (size_t d = 0; d < store.index.size(); ++d) {
    if (!store.index[d].is_const()) subst.emplace_back(store.index[d], i.index[d]);
  }
  origins_.insert(origins_.end(), producer.origins.begin(), producer.origins.end());
  ++depth_;
  uint32_t v = copy(producer, std::move(subst), inner);
  --depth_;
  if (own) {
    Inst chosen{.op = LoopOp::Where, .dtype = i.dtype, .args = {own->holds, v, own->otherwise}};
    const Inst last = writer_->inst(v);
    if (last.op == LoopOp::Load && last.args.size() == 2 && last.args[0] == inner->holds && !mask) {
      chosen = last;
      chosen.args[1] = own->otherwise;
    }
    v = writer_->emit(std::move(chosen));
  }
  memo_.emplace(std::move(key), v);
  return v;
}

uint32_t Splicer::copy(const Loop& l, Substitution subst, std::optional<Mask> mask) {
  std::vector<uint32_t> at(l.body.size());
  bool keep_store = depth_ == 0;
  uint32_t stored = 0;
  for (uint32_t k = 0; k < l.body.size(); ++k) {
    Inst i = l.body[k];
    for (uint32_t& a : i.args) a = at[a];
    if (i.op == LoopOp::Symbol) {
      Expr fresh = fresh_symbol(i.index[0]);
      if (!(fresh == i.index[0])) subst.emplace_back(i.index[0], fresh);
      i.index[0] = fresh;
    } else {
      for (Expr& e : i.index) e = replace(e, subst);
    }
    if (i.op == LoopOp::Store && !keep_store) {
      stored = i.args[0];
      continue;
    }
    if ((i.op == LoopOp::Check || i.op == LoopOp::Symbol) && mask) {
      Inst zero{.op = LoopOp::Const, .dtype = ops::DType::I64};
      uint32_t none = writer_->emit(std::move(zero));
      Inst safe{
          .op = LoopOp::Where, .dtype = ops::DType::I64, .args = {mask->holds, i.args[0], none}};
      i.args[0] = writer_->emit(std::move(safe));
    }
    if (i.op == LoopOp::Index && i.index[0].is_const()) {
      i.op = LoopOp::Const;
      i.integer = i.index[0].value();
      i.index.clear();
    }
    at[k] = i.op == LoopOp::Load ? load(std::move(i), mask) : writer_->emit(std::move(i));
  }
  return stored;
}

void Inliner::rewrite() {
  Splicer splicer(program_, uses_, candidates_);
  for (uint32_t s = program_.steps.size(); s-- > 0;) {
    auto* l = std::get_if<Loop>(&program_.steps[s]);
    if (l && !candidates_[s].inlined) splicer.run(*l);
  }
  remove_dead_loops(program_);
}

}  // namespace

void inline_loops(Program& p) { Inliner(p).run(); }

}  // namespace oxy::schedule
