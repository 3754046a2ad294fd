// Rewrites a reduction as two loops with a buffer of partial results between them, one of a few
// elements as a loop without a reduction.
#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "schedule/pass_list.h"

namespace oxy::schedule {

namespace {

// Near the wanted number: equal pieces, of rows that are unrolled without a rest where there are
// such.
int64_t parts_for(int64_t size, int64_t wanted) {
  wanted = std::min(wanted, size);
  int64_t equal = 0;
  for (int64_t q = wanted; q >= std::max<int64_t>(wanted / 4, 2); --q) {
    if (size % q != 0) continue;
    if (size / q % tuning::unroll == 0) return q;
    equal = std::max(equal, q);
  }
  return equal > 0 ? equal : wanted;
}

struct Cut {
  size_t axis = 0;
  int64_t parts = 0;
  Expr piece = 0;
};

// The axes that are folded, those first that take the longest steps through memory: a part is then
// one piece of it.
std::vector<size_t> folded_axes(const Nest& n) {
  auto step = [&](size_t i) {
    int64_t longest = 0;
    for (const Inst& load : n.body) {
      if (load.op != LoopOp::Load) continue;
      const auto c = coefficient(load.index[0], n.axes[i].var);
      longest = std::max(longest, c ? hinted(*c).value_or(0) : 0);
    }
    return longest;
  };
  std::vector<size_t> out;
  for (size_t i = 0; i < n.axes.size(); ++i)
    if (n.axes[i].reduction) out.push_back(i);
  std::ranges::stable_sort(out, std::greater<>(), step);
  return out;
}

std::optional<Cut> choose_cut(const Nest& n) {
  int64_t results = 1, folded = 1;
  for (const Axis& a : n.axes) {
    const std::optional<int64_t> size = hinted(a.size);
    if (!size) return std::nullopt;
    (a.reduction ? folded : results) *= *size;
  }
  if (results * folded < tuning::split_small) return std::nullopt;
  int64_t iterations = results;
  const size_t inner = place_of(n.axes, contiguous_axis(n));
  if (inner < n.axes.size() && !n.axes[inner].reduction) {
    const int64_t columns = *hinted(n.axes[inner].size);
    iterations =
        results / columns * ((columns + tuning::split_columns - 1) / tuning::split_columns);
  }
  if (iterations >= tuning::split_enough_iterations) return std::nullopt;
  int64_t wanted = std::min((tuning::split_wanted_iterations + iterations - 1) / iterations,
                            results * folded / (tuning::split_piece * iterations));
  for (size_t i : folded_axes(n)) {
    int64_t size = *hinted(n.axes[i].size);
    if (wanted < 2 || size < std::min<int64_t>(wanted, 8)) continue;
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

// The axes that are not folded in the order in which their results stand in the store: results keep
// it in the partial buffer.
std::vector<Axis> kept_axes(const Nest& n) {
  std::vector<Axis> kept = n.axes;
  std::erase_if(kept, [](const Axis& a) { return a.reduction; });
  Expr at = 0;
  for (const Inst& i : n.body) {
    if (i.op == LoopOp::Store) at = i.index[0];
  }
  std::ranges::stable_sort(kept, std::greater<>(), [&](const Axis& a) {
    auto c = coefficient(at, a.var);
    return c ? hinted(*c).value_or(0) : 0;
  });
  return kept;
}

// The two loops, or nothing where the reduction stays whole. Adds the buffer of the partial results
// to the program.
std::optional<std::pair<Nest, Nest>> split_reduction(loops::Program& p, const Nest& n) {
  const Inst* reduce = find_inst(n, LoopOp::Reduce);
  if (!reduce || gives_position(reduce->reduce)) return std::nullopt;
  auto cut = choose_cut(n);
  if (!cut) return std::nullopt;
  const Axis whole = n.axes[cut->axis];
  loops::VariableScope scope(*p.variables);
  for (const Axis& a : n.axes) scope.take(a.var);
  Expr part = scope.get('p', cut->parts);
  Expr piece_size = cut->piece;
  if (cut->piece * cut->parts != whole.size) {
    piece_size = sym::min(cut->piece, whole.size - part * cut->piece);
    if (!whole.size.is_const()) piece_size = sym::max(0, piece_size);  // few elements: empty parts
  }
  Expr inner = scope.get('r', piece_size);

  Buffer partial;
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

// How many elements each result of the nest folds, where these are few and its results many.
std::optional<int64_t> few_elements(const Nest& n, const Inst& reduce) {
  int64_t folded = 1, results = 1;
  for (const Axis& a : n.axes) {
    if (a.reduction && !a.size.is_const()) return std::nullopt;
    (a.reduction ? folded : results) *= a.size.is_const() ? a.size.value() : count_of(a.size);
  }
  const bool simple = !gives_position(reduce.reduce) && reduce.reduce != ReduceKind::LogSumExp &&
                      !ir::is_reduced_float(reduce.dtype) && !find_inst(n, LoopOp::StoreAdd) &&
                      !find_inst(n, LoopOp::Symbol) && !find_inst(n, LoopOp::Check);
  if (!simple || folded < 2 || folded > tuning::short_axis ||
      n.body.size() > tuning::unrolled_body || results < tuning::chunk / tuning::short_axis)
    return std::nullopt;
  return folded;
}

// Each result computed of its elements, so that vectors run along the results. Where they do so
// anyway, a loop that reads the results would be another kernel for nothing.
std::optional<Nest> unroll_reduction(const Nest& n, bool is_read) {
  const Inst* reduce = find_inst(n, LoopOp::Reduce);
  const auto folded = reduce ? few_elements(n, *reduce) : std::nullopt;
  const Expr inner = contiguous_axis(n);
  if (!folded || (is_read && !inner.is_const() && !is_reduction_axis(n, inner)))
    return std::nullopt;
  Nest out = n;
  out.body.clear();
  std::erase_if(out.axes, [](const Axis& a) { return a.reduction; });
  const auto at = static_cast<size_t>(reduce - n.body.data());
  const auto add = [&](Inst i) {
    out.body.push_back(std::move(i));
    return static_cast<uint32_t>(out.body.size() - 1);
  };
  std::vector<uint32_t> values;
  if (reduce->reduce == ReduceKind::Sum && ir::is_floating(reduce->dtype))  // of -0.0 it is 0.0
    values.push_back(add({.op = LoopOp::Const, .dtype = reduce->dtype}));
  std::vector<uint32_t> made(n.body.size());
  for (int64_t k = 0; k < *folded; ++k) {
    Substitution place;
    int64_t rest = k;
    for (size_t i = n.axes.size(); i-- > 0;) {
      if (!n.axes[i].reduction) continue;
      place.emplace_back(n.axes[i].var, rest % n.axes[i].size.value());
      rest /= n.axes[i].size.value();
    }
    for (size_t i = 0; i < at; ++i) {
      Inst copy = n.body[i];
      for (uint32_t& a : copy.args) a = made[a];
      for (Expr& e : copy.index) e = replace(e, place);
      made[i] = add(std::move(copy));
    }
    const uint32_t v = made[reduce->args[0]];
    values.push_back(out.body[v].dtype == reduce->dtype
                         ? v
                         : add({.op = LoopOp::Cast, .dtype = reduce->dtype, .args = {v}}));
  }
  for (; values.size() > 1; values.erase(values.begin() + 1))
    values[0] = add({.op = fold_of(reduce->reduce, reduce->dtype),
                     .dtype = reduce->dtype,
                     .args = {values[0], values[1]}});
  made[at] = values[0];
  for (size_t i = at + 1; i < n.body.size(); ++i) {
    Inst copy = n.body[i];
    for (uint32_t& a : copy.args) a = made[a];
    made[i] = add(std::move(copy));
  }
  loops::remove_dead(out.body);
  return out;
}

}  // namespace

void split_reductions(Draft& d) {
  std::vector<ScheduledUnit> out;
  std::vector<bool> read(d.schedule.program.buffers.size());
  for (const ScheduledUnit& u : d.units)
    for (const Group& g : u.group)
      for (const Inst& i : instructions(g.nests))
        if (i.op == LoopOp::Load) read[i.buffer.index] = true;
  const auto is_read = [&](const Nest& n) {
    return std::ranges::any_of(
        n.body, [&](const Inst& i) { return i.op == LoopOp::Store && read[i.buffer.index]; });
  };
  for (ScheduledUnit& u : d.units) {
    const Nest* nest = u.group.empty() ? nullptr : &u.group[0].nests[0];
    if (auto unrolled = nest ? unroll_reduction(*nest, is_read(*nest)) : std::nullopt) {
      out.push_back({{group_of(std::move(*unrolled))}, {}});
      continue;
    }
    auto parts =
        u.group.empty() ? std::nullopt : split_reduction(d.schedule.program, u.group[0].nests[0]);
    if (parts) {
      out.push_back({{group_of(std::move(parts->first))}, {}});
      out.push_back({{group_of(std::move(parts->second))}, {}});
    } else {
      out.push_back(std::move(u));
    }
  }
  d.units = std::move(out);
}

}  // namespace oxy::schedule
