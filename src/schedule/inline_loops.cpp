// Weighs repeated work against saved memory traffic, and substitutes producers.
#include <algorithm>
#include <set>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"

namespace oxy::schedule {

using loops::BodyWriter;
using loops::Loop;
using loops::Program;

namespace {

// What a loop reads is counted up to here: what is read several times doubles at each producer.
constexpr int64_t kManyLoads = 1000;

// What is known of a loop that may be inlined, and where it ends up.
struct Candidate {
  bool simple = false;  // elementwise, one store, at its own axes
  bool inlined = false;
  std::vector<uint32_t> roots;  // loops that it ends up in; itself, where it stays
  int repeats = 1;              // how often its value is computed in a root
  int reads = 0;                // loads of it in all roots
  int extra = 0;                // cost that is computed in more than one place
  int64_t iterations = 0;       // of the largest root
  bool along_rows = true;       // readers walk the last dimension of its value innermost
  bool hoistable = true;        // its value does not change along the innermost axes of the root
  bool masked = false;          // a reader wants a part of its iterations only
  size_t body = 0;              // instructions in the root, about
  int loads = 0;
  int64_t all_loads = 0;  // with those of producers that may be inlined, and theirs
  int full_loads = 0;     // those that are no broadcasts of something much smaller; of gathers all
  int cost = 0;
};

// One load of a producer's buffer: what the consumer does with the index.
struct IndexUse {
  bool plain = true;  // each index is an axis or 0
  // The axes used come before those that are not, and name no element of the producer, which has
  // `own`, several times: loaded places and windows do.
  bool hoistable = true;
};

IndexUse index_use_of(const Loop& consumer, const Inst& load, int64_t own) {
  IndexUse a;
  std::vector<Expr> used;
  for (Expr e : load.index) {
    a.plain &= has_axis(consumer.axes, e) || e.is_const(0);
    sym::collect_symbols(e, used);
  }
  const auto is_used = [&](const Axis& x) { return std::ranges::find(used, x.var) != used.end(); };
  std::vector<Axis> axes = consumer.axes;
  std::erase_if(axes, [&](const Axis& x) { return !is_used(x); });
  const bool loaded = std::ranges::any_of(
      used, [&](Expr s) { return !has_axis(consumer.axes, s) && !loops::is_size(s); });
  a.hoistable = std::ranges::is_partitioned(consumer.axes, is_used) && !loaded &&
                2 * iterations(axes) <= 3 * own;
  return a;
}

// Whether what lies side by side in the result is apart in what the loop reads: more than two
// elements, which vectors take apart at no cost.
bool transposes(const Program& p, const Loop& l, const Inst& store) {
  const Expr row = store.index.empty() ? Expr(0) : store.index.back();
  const size_t at = place_of(l.axes, row);
  return at < l.axes.size() && count_of(l.axes[at].size) > tuning::short_axis &&
         std::ranges::any_of(l.body, [&](const Inst& i) {
           if (i.op != LoopOp::Load) return false;
           const auto step = coefficient(flat_offset(p.buffers[i.buffer], i.index), row);
           return step && !step->is_const(0) && !step->is_const(1) && !step->is_const(2);
         });
}

// Whether a loop loads about as many elements there as it has iterations.
bool is_full(const Loop& l, const Inst& load) {
  std::vector<Expr> used;
  for (Expr e : load.index) sym::collect_symbols(e, used);
  std::vector<Axis> axes = l.axes;
  std::erase_if(axes, [&](const Axis& a) { return std::ranges::find(used, a.var) == used.end(); });
  return 2 * iterations(axes) > iterations(l.axes);
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
  bool gathers_what_changes(const Loop& l, uint32_t reader) const;
  void rewrite();

  Program& program_;
  BufferUses uses_;
  std::vector<Candidate> candidates_;
};

const Inst& store_of(const Loop& l) { return *std::ranges::find(l.body, LoopOp::Store, &Inst::op); }

bool stores_at_own_axes(const Loop& l, const Inst& store) {
  std::vector<Expr> places = store.index;
  std::erase_if(places, [](Expr e) { return e.is_const(0); });
  return std::ranges::equal(places, l.axes, {}, {}, &Axis::var);
}

void Inliner::describe(uint32_t s) {
  const Loop* l = loop(s);
  Candidate& c = candidates_[s];
  if (!l) return;
  c.cost = cost_of(l->body);
  c.body = l->body.size();
  int stores = 0;
  bool elementwise = !l->has_reduction(), gathers = false;
  for (const Inst& i : l->body) {
    stores += i.op == LoopOp::Store;
    elementwise &= !is_any(i.op, LoopOp::StoreAdd, LoopOp::Scan);
    gathers |= i.op == LoopOp::Symbol;
    if (i.op != LoopOp::Load) continue;
    ++c.loads;
    const int32_t w = uses_.writer[memory_of(program_, i.buffer).index];
    const bool inside = w >= 0 && candidates_[w].simple;
    c.all_loads = std::min(c.all_loads + (inside ? candidates_[w].all_loads : 1), kManyLoads);
    c.full_loads += is_full(*l, i);
  }
  if (gathers) c.full_loads = c.loads;
  c.simple = elementwise && stores == 1 && stores_at_own_axes(*l, store_of(*l)) &&
             !uses_.updated[memory_of(program_, store_of(*l).buffer).index];
}

// Joins what the readers of the loop's buffer say; false where there are none.
bool Inliner::gather_readers(uint32_t s, Candidate& c) {
  BufferId buffer = memory_of(program_, store_of(*loop(s)).buffer);
  int repeats = 0;
  bool plain = true, across_rows = false, any_along = false;
  for (uint32_t r : uses_.readers[buffer.index]) {
    const Candidate& reader = candidates_[r];
    for (uint32_t root : reader.roots) {
      if (std::ranges::find(c.roots, root) == c.roots.end()) c.roots.push_back(root);
    }
    c.extra = std::max(c.extra, reader.extra);
    c.iterations = std::max(c.iterations, reader.iterations);
    c.body = std::max(c.body, reader.body);
    for (const Inst& i : loop(r)->body) {
      if (i.op != LoopOp::Load || memory_of(program_, i.buffer) != buffer) continue;
      if (i.buffer != buffer) return false;  // through a view's own index space
      IndexUse a = index_use_of(*loop(r), i, iterations(loop(s)->axes));
      plain &= a.plain && reader.repeats == 1;
      const bool along = reader.along_rows && !i.index.empty() && !loop(r)->axes.empty() &&
                         i.index.back() == loop(r)->axes.back().var;
      (along ? any_along : across_rows) = true;
      c.hoistable &= a.hoistable && (!reader.inlined || reader.hoistable);
      c.masked |= !i.args.empty() || (reader.inlined && reader.masked);
      repeats += reader.repeats;
    }
  }
  c.reads = repeats;
  c.along_rows = !across_rows;
  const int transposed = any_along && across_rows ? 2 : 1;  // x + x.T
  c.repeats = plain ? transposed : std::max(repeats, 1);
  c.body += loop(s)->body.size() * c.repeats;
  return !c.roots.empty();
}

bool has_symbol(const Loop& l) {
  return std::ranges::find(l.body, LoopOp::Symbol, &Inst::op) != l.body.end();
}

// Whether a loop loads, at loaded indices, of the memory that the reader stores to a copy of, at
// such ones: apart from each other the copy may be the memory itself (W[i] += 1).
bool Inliner::gathers_what_changes(const Loop& l, uint32_t reader) const {
  const Loop* scatter = loop(reader);
  if (!scatter || !has_symbol(l) || !has_symbol(*scatter)) return false;
  const auto store = std::ranges::find_if(
      scatter->body, [](const Inst& i) { return is_any(i.op, LoopOp::Store, LoopOp::StoreAdd); });
  if (store == scatter->body.end()) return false;
  const BufferId changed = memory_of(program_, store->buffer);
  const auto gathers = [&](BufferId b) {
    return std::ranges::any_of(l.body, [&](const Inst& i) {
      return i.op == LoopOp::Load && memory_of(program_, i.buffer) == b;
    });
  };
  for (uint32_t s = 0; s < reader; ++s) {
    const Loop* copy = loop(s);
    if (!copy || copy->body.size() != 2 || copy->body[0].op != LoopOp::Load ||
        copy->body[1].op != LoopOp::Store)
      continue;
    const BufferId from = memory_of(program_, copy->body[0].buffer);
    if (memory_of(program_, copy->body[1].buffer) == changed && gathers(from) &&
        program_.buffers[from].kind == Buffer::Kind::Input)
      return true;
  }
  return false;
}

bool Inliner::worth_inlining(uint32_t s, const Candidate& c) const {
  if (std::ranges::any_of(c.roots, [&](uint32_t r) { return gathers_what_changes(*loop(s), r); }))
    return false;
  if (c.body > tuning::inline_largest_body) return false;
  if (c.loads == 0 && c.cost <= tuning::inline_cheap) return true;
  int64_t own = iterations(loop(s)->axes);
  bool broadcast = c.iterations > own * 3 / 2;
  int bearable = c.iterations <= own * 2 ? tuning::inline_twice : tuning::inline_cheap;
  if (broadcast && !c.hoistable && c.cost > bearable) return false;
  // A sum of products, such as one of several pieces of a whole, is computed under a mask too.
  const bool many_products = c.all_loads > 2 * tuning::gemm_few_products;
  if (broadcast && c.masked && many_products) return false;
  // Nor again at the transposed place, for which it loads columns.
  if (c.repeats > 1 && !c.along_rows && many_products) return false;
  // Laid out once, rows are read as vectors each time.
  if (c.along_rows && c.reads * (c.iterations / tuning::inline_transposed) >= own &&
      transposes(program_, *loop(s), store_of(*loop(s))))
    return false;
  // What is computed beyond once an element: windows overlap, and there may be fewer of them than
  // elements.
  const int64_t again = c.repeats * std::min(c.iterations, own) - own;
  if (c.repeats > 1 && c.cost * again > 2 * tuning::inline_cheap * own) return false;
  if (c.roots.size() == 1) return true;
  return c.full_loads <= 1 && c.roots.size() <= 8 && c.extra + c.cost <= tuning::inline_cheap;
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
      c = std::move(at_readers);
      c.inlined = true;
      if (c.roots.size() > 1) c.extra += c.cost;
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
      : program_(p), uses_(uses), candidates_(candidates), scope_(*p.variables) {}

  void run(Loop& l) {
    for (const Axis& a : l.axes) scope_.take(a.var);
    origins_.insert(l.origins.begin(), l.origins.end());
    copy(l, {}, std::nullopt, true);
    loops::remove_dead(out_);
    l.body = std::move(out_);
    l.origins.assign(origins_.begin(), origins_.end());
  }

 private:
  // Copies a body under a substitution of its variables; with a mask, nothing is read or checked
  // where it does not hold. Returns the stored value when the store itself is left out.
  uint32_t copy(const Loop& l, Substitution subst, std::optional<uint32_t> mask, bool keep_store);
  uint32_t load(Inst i, std::optional<uint32_t> mask);

  Program& program_;
  const BufferUses& uses_;
  const std::vector<Candidate>& candidates_;
  Body out_;
  BodyWriter writer_{out_};
  // Of a load: the buffer, its index, all that must hold, and its own mask with what the value is
  // elsewhere.
  using Key =
      std::tuple<BufferId, std::vector<uint64_t>, std::optional<uint32_t>, std::vector<uint32_t>>;
  std::map<Key, uint32_t> memo_;
  loops::VariableScope scope_;
  std::set<ir::NodeId> origins_;
};

uint32_t Splicer::load(Inst i, std::optional<uint32_t> mask) {
  const bool own = !i.args.empty();
  std::optional<uint32_t> holds = own ? i.args[0] : mask;
  if (own && mask)
    holds = writer_.emit({.op = LoopOp::And, .dtype = DType::B8, .args = {*mask, i.args[0]}});
  const int32_t w = uses_.writer[memory_of(program_, i.buffer).index];
  if (w < 0 || !candidates_[w].inlined) {
    if (own)
      i.args[0] = *holds;
    else if (mask)
      i.args = {*mask, writer_.emit_const(0, i.dtype)};
    return writer_.emit(std::move(i));
  }
  std::vector<uint64_t> place;
  for (Expr e : i.index) place.push_back(e.bits());
  Key key(i.buffer, std::move(place), holds, i.args);
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  const Loop& producer = std::get<Loop>(program_.steps[w]);
  Substitution subst;
  const Inst& store = store_of(producer);
  for (size_t d = 0; d < store.index.size(); ++d) {
    if (!store.index[d].is_const()) subst.emplace_back(store.index[d], i.index[d]);
  }
  origins_.insert(producer.origins.begin(), producer.origins.end());
  uint32_t v = copy(producer, std::move(subst), holds, false);
  if (own) {
    Inst chosen = writer_.inst(v);
    if (chosen.op == LoopOp::Load && chosen.args.size() == 2 && chosen.args[0] == *holds && !mask)
      chosen.args[1] = i.args[1];
    else
      chosen = {.op = LoopOp::Where, .dtype = i.dtype, .args = {i.args[0], v, i.args[1]}};
    v = writer_.emit(std::move(chosen));
  }
  memo_.emplace(std::move(key), v);
  return v;
}

uint32_t Splicer::copy(const Loop& l, Substitution subst, std::optional<uint32_t> mask,
                       bool keep_store) {
  std::vector<uint32_t> at(l.body.size());
  uint32_t stored = 0;
  for (uint32_t k = 0; k < l.body.size(); ++k) {
    Inst i = l.body[k];
    for (uint32_t& a : i.args) a = at[a];
    if (i.op == LoopOp::Symbol) {
      const Expr old = i.index[0];
      if (!scope_.take(old)) subst.emplace_back(old, i.index[0] = another_index(scope_, old));
    } else {
      for (Expr& e : i.index) e = replace(e, subst);
    }
    if (i.op == LoopOp::Store && !keep_store) {
      stored = i.args[0];
      continue;
    }
    if (mask && is_any(i.op, LoopOp::Check, LoopOp::Symbol)) {
      const uint32_t zero = writer_.emit_const(0, DType::I64);
      i.args[0] = writer_.emit(
          {.op = LoopOp::Where, .dtype = DType::I64, .args = {*mask, i.args[0], zero}});
    }
    if (i.op == LoopOp::Index && i.index[0].is_const()) {
      i.op = LoopOp::Const;
      i.integer = i.index[0].value();
      i.index.clear();
    }
    at[k] = i.op == LoopOp::Load ? load(std::move(i), mask) : writer_.emit(std::move(i));
  }
  return stored;
}

void Inliner::rewrite() {
  for (uint32_t s = program_.steps.size(); s-- > 0;) {
    auto* l = std::get_if<Loop>(&program_.steps[s]);
    if (l && !candidates_[s].inlined) Splicer(program_, uses_, candidates_).run(*l);
  }
  remove_dead_loops(program_);
}

}  // namespace

void inline_loops(Program& p) { Inliner(p).run(); }

}  // namespace oxy::schedule
