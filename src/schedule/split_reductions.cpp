// Rewrites a reduction as two loops with a buffer of partial results between them.
#include "schedule/split_reductions.h"

#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "support/tuning.h"

namespace oxy::schedule {

namespace {

bool is_arg(ops::ReduceKind k) {
  return k == ops::ReduceKind::ArgMax || k == ops::ReduceKind::ArgMin;
}

int64_t parts_for(int64_t size, int64_t wanted) {
  wanted = std::min(wanted, size);
  for (int64_t q = wanted; q >= std::max<int64_t>(wanted / 4, 2); --q) {
    if (size % q == 0) return q;
  }
  return wanted;
}

struct Cut {
  size_t axis = 0;
  int64_t parts = 0;
  Expr piece = 0;
};

std::optional<Cut> choose_cut(const Nest& n) {
  int64_t results = 1, folded = 1;
  for (const Axis& a : n.axes) {
    const std::optional<int64_t> size = hinted(a.size);
    if (!size) return std::nullopt;
    (a.reduction ? folded : results) *= *size;
  }
  if (results * folded < tuning::split_small) return std::nullopt;
  Expr inner = contiguous_axis(n);
  bool column = !inner.is_const() && !is_reduction_axis(n, inner);
  int64_t iterations = results;
  for (const Axis& a : n.axes) {
    if (column && a.var == inner)
      iterations = results / *hinted(a.size) *
                   ((*hinted(a.size) + tuning::split_columns - 1) / tuning::split_columns);
  }
  if (iterations >= tuning::split_enough_iterations) return std::nullopt;
  int64_t wanted = std::min((tuning::split_wanted_iterations + iterations - 1) / iterations,
                            results * folded / (tuning::split_piece * iterations));
  for (size_t i = 0; i < n.axes.size(); ++i) {
    int64_t size = *hinted(n.axes[i].size);
    if (!n.axes[i].reduction || wanted < 2 || size < std::min<int64_t>(wanted, 8)) continue;
    Cut c{i, parts_for(size, wanted), 0};
    if (c.parts < 2) continue;
    const int64_t piece = (size + c.parts - 1) / c.parts;
    c.parts = (size + piece - 1) / piece;
    // The number of parts is that of the hint, so that equal calls add up in one order; other sizes
    // have other pieces.
    c.piece = sym::ceildiv(n.axes[i].size, c.parts);
    return c;
  }
  return std::nullopt;
}

Expr fresh_var(loops::Program& p, const Nest& n, char prefix, Expr size) {
  loops::VariableScope scope(*p.variables);
  for (const Axis& a : n.axes) scope.take(a.var);
  return scope.get(prefix, size);
}

// Where the result of each kept axis stands in the store: results keep that order in the partial
// buffer.
std::vector<Axis> kept_axes(const Nest& n) {
  std::vector<Axis> kept;
  Expr at = 0;
  for (const Inst& i : n.body) {
    if (i.op == LoopOp::Store) at = i.index[0];
  }
  for (const Axis& a : n.axes) {
    if (!a.reduction) kept.push_back(a);
  }
  auto stride = [&](const Axis& a) {
    auto c = coefficient(at, a.var);
    return c ? hinted(*c).value_or(0) : int64_t{0};
  };
  std::stable_sort(kept.begin(), kept.end(),
                   [&](const Axis& a, const Axis& b) { return stride(a) > stride(b); });
  return kept;
}

}  // namespace

const Inst* find_reduce(const Nest& n) {
  for (const Inst& i : n.body) {
    if (i.op == LoopOp::Reduce) return &i;
  }
  return nullptr;
}

bool is_reduction_axis(const Nest& n, Expr var) {
  return std::any_of(n.axes.begin(), n.axes.end(),
                     [&](const Axis& a) { return a.var == var && a.reduction; });
}

// Whether an index depends on the axis, also through indices that are loaded.
static bool depends(const Nest& n, Expr index, Expr axis) {
  if (sym::contains(index, axis)) return true;
  auto loaded = [&](const Inst& symbol) {
    std::vector<uint32_t> open = symbol.args;
    while (!open.empty()) {
      const Inst& i = n.body[open.back()];
      open.pop_back();
      open.insert(open.end(), i.args.begin(), i.args.end());
      for (Expr e : i.index)
        if (depends(n, e, axis)) return true;
    }
    return false;
  };
  return std::any_of(n.body.begin(), n.body.end(), [&](const Inst& i) {
    return i.op == LoopOp::Symbol && sym::contains(index, i.index[0]) && loaded(i);
  });
}

Expr contiguous_axis(const Nest& n) {
  constexpr int64_t kMostVotes = int64_t{1} << 31;
  bool reduces = find_reduce(n) != nullptr;
  Expr best = 0;
  int64_t most = 0;
  for (const Axis& a : n.axes) {
    int64_t votes = 0;
    for (const Inst& i : n.body) {
      if (i.op != (reduces ? LoopOp::Load : LoopOp::Store)) continue;
      auto c = coefficient(i.index[0], a.var);
      if (!c || !c->is_const(1)) continue;
      // As many votes as elements, so that small operands do not decide; a size that is not known
      // counts as 1024.
      int64_t elements = 1;
      for (const Axis& b : n.axes)
        if (elements < kMostVotes && depends(n, i.index[0], b.var))
          elements *= hinted(b.size).value_or(1024);
      votes += std::min(elements, kMostVotes);
    }
    if (votes > most) {
      most = votes;
      best = a.var;
    }
  }
  return best;
}

std::optional<std::pair<Nest, Nest>> split_reduction(loops::Program& p, const Nest& n) {
  const Inst* reduce = find_reduce(n);
  if (!reduce || is_arg(reduce->reduce)) return std::nullopt;
  auto cut = choose_cut(n);
  if (!cut) return std::nullopt;
  const Axis whole = n.axes[cut->axis];
  Expr part = fresh_var(p, n, 'p', cut->parts);
  Expr piece_size = cut->piece;
  if (cut->piece * cut->parts != whole.size) {
    piece_size = sym::min(cut->piece, whole.size - part * cut->piece);
    if (!whole.size.is_const()) piece_size = sym::max(0, piece_size);  // few elements: empty parts
  }
  Expr inner = fresh_var(p, n, 'r', piece_size);

  loops::Buffer partial;
  partial.name = cat("part", p.buffers.size());
  partial.type.dtype = reduce->dtype;
  partial.type.sizes = {cut->parts};
  std::vector<Axis> kept = kept_axes(n);
  Expr offset = 0, stride = 1;
  for (size_t k = kept.size(); k-- > 0;) {
    offset = offset + kept[k].var * stride;
    stride = stride * kept[k].size;
  }
  for (const Axis& a : kept) partial.type.sizes.push_back(a.size);
  partial.type.strides = ir::contiguous_strides(partial.type.sizes);
  offset = offset + part * stride;
  BufferId buffer = p.buffers.add(std::move(partial));

  std::pair<Nest, Nest> out{n, n};
  Nest &first = out.first, &second = out.second;
  first.name = n.name + "_parts";
  first.partial = second.partial = buffer;
  size_t at = static_cast<size_t>(reduce - n.body.data());
  first.body.resize(at + 1);
  first.body.push_back(Inst{.op = LoopOp::Store,
                            .dtype = reduce->dtype,
                            .args = {static_cast<uint32_t>(at)},
                            .buffer = buffer,
                            .index = {offset}});
  first.axes[cut->axis] = {inner, piece_size, true};
  first.axes.insert(first.axes.begin(), {part, cut->parts, false});
  replace(first, {{whole.var, part * cut->piece + inner}});
  loops::remove_dead(first.body);

  // The fold of the partial results takes the place of the value that was folded.
  Inst load{.op = LoopOp::Load, .dtype = reduce->dtype, .buffer = buffer, .index = {offset}};
  second.axes = kept;
  second.axes.push_back({part, cut->parts, true});
  second.body.insert(second.body.begin() + at, load);
  for (size_t k = at + 1; k < second.body.size(); ++k) {
    for (uint32_t& a : second.body[k].args) a += a >= at;
  }
  second.body[at + 1].args = {static_cast<uint32_t>(at)};
  loops::remove_checks(second.body, at);
  loops::remove_dead(second.body);
  return out;
}

}  // namespace oxy::schedule
