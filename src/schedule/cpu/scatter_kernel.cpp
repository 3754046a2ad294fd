// Proves which axes never meet, and writes the loops around the others.
#include <algorithm>

#include "schedule/cost.h"
#include "schedule/cpu/nest_writer.h"
#include "support/tuning.h"

namespace oxy::schedule {

namespace {

// A variable of the place: its coefficient, and by how much it moves the place at most.
struct Term {
  Expr var;
  Expr step;
  std::optional<Expr> reach;  // nothing of a loaded index whose bound is a symbol
};

// The place as a sum of terms with positive steps; nothing where it is something else.
std::optional<std::vector<Term>> terms_of(Expr place, const std::vector<Axis>& axes) {
  std::vector<Term> terms;
  Expr rest = place;
  for (Expr s : symbols_of(place)) {
    if (loops::is_size(s)) continue;
    const auto split = sym::linear_in(rest, s);
    if (!split || !std::ranges::all_of(symbols_of(split->first), loops::is_size) ||
        sym::known_less(split->first, 0) != false)
      return std::nullopt;
    const size_t at = place_of(axes, s);
    const sym::Range range = sym::range_of(s);
    if (range.lo < 0) return std::nullopt;
    rest = split->second;
    Term& t = terms.emplace_back(s, split->first);
    if (at < axes.size())
      t.reach = t.step * (axes[at].size - Expr(1));
    else if (range.hi != INT64_MAX)
      t.reach = t.step * Expr(range.hi);
  }
  return terms;
}

// Whether iterations with different values of the variable never meet: it is a digit of the place,
// since the smaller terms together do not reach its step and the larger ones step over all of its
// values.
bool is_digit(const std::vector<Term>& terms, const Axis& axis) {
  const auto own = std::ranges::find(terms, axis.var, &Term::var);
  if (own == terms.end()) return false;
  Expr below = 0;
  for (const Term& t : terms) {
    if (&t == &*own || sym::known_equal(sym::mod(t.step, own->step * axis.size), 0) == true)
      continue;
    if (!t.reach) return false;
    below += *t.reach;
  }
  return sym::known_less(below, own->step) == true;
}

class ScatterKernel : NestWriter {
 public:
  ScatterKernel(const loops::Program& p, const Nest& n, std::string name)
      : NestWriter(p, n, std::move(name)), update_(find_inst(n, LoopOp::StoreAdd)) {
    const auto terms = terms_of(update_->index[0], n.axes);
    for (const Axis& a : n.axes) (terms && is_digit(*terms, a) ? free_ : ordered_).push_back(a);
  }

  Kernel run() {
    Block body = iterations();
    return finish(free_, std::move(body));
  }

 private:
  // What one parallel iteration does. A free axis along which places are neighbours becomes lanes.
  Block iterations() {
    const auto lane = std::ranges::find_if(free_, [&](const Axis& a) {
      auto step = coefficient(update_->index[0], a.var);
      return step && step->is_const(1) && count_of(a.size) >= tuning::scatter_fewest_lanes;
    });
    if (lane == free_.end()) return wrap(ForKind::Serial, ordered_, statements({}));
    const Axis whole = *lane;
    const int64_t block = block_of(whole);
    if (count_of(whole.size) <= block) {
      free_.erase(lane);
      return wrap(ForKind::Serial, ordered_, wrap(ForKind::Vector, {whole}, statements({})));
    }
    const Pieces pieces = cut_axis(scope_, whole.size, block);
    *lane = pieces.outer;
    return wrap(ForKind::Serial, ordered_,
                wrap(ForKind::Vector, {pieces.inner}, statements({{whole.var, pieces.place}})));
  }

  // Lanes of one iteration: fewer where the other free axes do not keep the threads busy.
  int64_t block_of(const Axis& lane) const {
    int64_t others = 1;
    for (const Axis& a : free_) {
      if (a.var != lane.var) others *= count_of(a.size);
    }
    if (others >= tuning::scatter_wanted_blocks)
      return std::max(tuning::scatter_widest, count_of(lane.size));
    const int64_t narrow = tuning::scatter_narrow / ir::byte_size(update_->dtype);
    const int64_t share = count_of(lane.size) / tuning::scatter_wanted_blocks;
    return std::clamp(share / narrow * narrow, narrow, tuning::scatter_widest);
  }

  Block statements(const Substitution& subst) {
    Block out;
    std::vector<uint32_t> value(nest_.body.size());
    for (size_t k = 0; k < nest_.body.size(); ++k) {
      const Inst& i = nest_.body[k];
      Compute c = compute_of(i, value, subst);
      if (&i == update_)
        update(out, std::move(c));
      else if (sets_value(i.op))
        value[k] = add(out, std::move(c));
      else
        out.push_back(Stmt{std::move(c)});
    }
    return out;
  }

  // fp16 and bf16 are folded in f32 and rounded each time.
  void update(Block& out, Compute store) {
    store.op = LoopOp::Store;
    // What is not replaced has been written before: the buffer is never only written.
    store.buffer = entry(update_->buffer, KernelBuffer::Kind::ReadWrite);
    if (update_->reduce != ReduceKind::Last) {
      const uint32_t old = add(
          out,
          {.op = LoopOp::Load, .dtype = store.dtype, .buffer = store.buffer, .index = store.index});
      store.args[0] = folded(out, old, store.args[0], store.dtype);
    }
    out.push_back(Stmt{std::move(store)});
  }

  uint32_t folded(Block& out, uint32_t old, uint32_t value, DType d) {
    const DType wide = ir::is_reduced_float(d) ? DType::F32 : d;
    const auto cast = [&](uint32_t v, DType to) {
      return wide == d ? v : add(out, {.op = LoopOp::Cast, .dtype = to, .args = {v}});
    };
    const uint32_t a = cast(old, wide), b = cast(value, wide);
    const LoopOp fold = fold_of(update_->reduce, wide);
    return cast(add(out, {.op = fold, .dtype = wide, .args = {a, b}}), d);
  }

  const Inst* const update_;
  std::vector<Axis> free_, ordered_;
};

}  // namespace

Kernel scatter_kernel(const loops::Program& p, const Nest& n, std::string name) {
  return ScatterKernel(p, n, std::move(name)).run();
}

}  // namespace oxy::schedule
