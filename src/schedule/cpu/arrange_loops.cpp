// Orders axes by how memory is walked, cuts them into tiles and lanes, and joins phases.
#include "schedule/cpu/arrange_loops.h"

#include <algorithm>
#include <unordered_set>

#include "loops/body_writer.h"
#include "schedule/cost.h"
#include "schedule/cpu/local_buffers.h"
#include "schedule/cpu/phases.h"
#include "schedule/fold.h"
#include "schedule/merge_axes.h"
#include "schedule/split_reductions.h"
#include "support/tuning.h"

namespace oxy::schedule {

namespace {

class Arranger {
 public:
  Arranger(loops::Program& p, Group g, const std::vector<bool>& needed,
           const ScheduleOptions& options)
      : program_(p),
        group_(std::move(g)),
        needed_(needed),
        options_(options),
        scope_(*p.variables) {
    for (const Nest& n : group_.nests) {
      for (const Axis& a : n.axes) scope_.take(a.var);
    }
  }

  Arrangement run() {
    bool elementwise = std::all_of(group_.nests.begin(), group_.nests.end(), [&](const Nest& n) {
      return n.axes.size() == group_.parallel.size();
    });
    sort_by_stride(group_.parallel, nests());
    merge_parallel(0);
    if (elementwise)
      arrange_elementwise();
    else
      cut_columns();
    return arranged();
  }

  std::optional<PanelArrangement> run(const Panels& panels) {
    const std::optional<uint32_t> panel_loops = cut_panels(panels);
    if (!panel_loops) return std::nullopt;
    return PanelArrangement{arranged(), *panel_loops};
  }

 private:
  Arrangement arranged() {
    std::vector<Nest> list = std::move(group_.nests);
    Arrangement out;
    out.parallel = std::move(group_.parallel);
    for (Nest& n : list) add_nest(std::move(n), out);
    for (const auto& [b, elements] : accumulators_) out.locals.emplace(b, elements);
    out.phases = make_phases(std::move(expanded_), out.parallel);
    localise_buffers(program_, out, needed_, tuning::local_bytes(options_.machine));
    for (Phase& ph : out.phases) order_axes(ph, out.parallel);
    return out;
  }

  std::vector<Nest*> nests() {
    std::vector<Nest*> out;
    for (Nest& n : group_.nests) out.push_back(&n);
    return out;
  }
  // `apart`: an axis that is not merged with the one before it.
  void merge_parallel(size_t apart);
  void arrange_elementwise();
  bool tile_transposed();
  void make_serial(size_t axis);
  void cut_columns();
  // Cuts a parallel axis into pieces: the pieces stay parallel, what is inside belongs to the
  // nests, and is returned.
  Axis cut(size_t axis, int64_t piece);
  std::optional<uint32_t> cut_panels(const Panels& panels);  // parallel loops over panels
  bool sort_along(BufferId matrix);
  std::optional<size_t> first_column(int64_t columns);
  void add_nest(Nest n, const Arrangement& out);
  bool walks_columns(const Nest& n, const Arrangement& out) const;
  void expand_columns(Nest n, const std::vector<Axis>& parallel);
  void order_axes(Phase& ph, const std::vector<Axis>& parallel);
  void set_kinds(Phase& ph, const std::vector<Axis>& order, size_t kept);

  loops::Program& program_;
  Group group_;
  const std::vector<bool>& needed_;
  const ScheduleOptions& options_;
  loops::VariableScope scope_;
  std::vector<Nest> expanded_;
  std::unordered_map<BufferId, Expr> accumulators_;
  Expr tiled_ = 0;      // the Vector axis of a tile
  Expr innermost_ = 0;  // the axis that must be walked innermost, where that has been decided
};

void Arranger::merge_parallel(size_t apart) {
  std::vector<Axis>& axes = group_.parallel;
  for (size_t k = axes.size(); k-- > 1;) {
    if (k == apart) continue;
    const Axis outer = axes[k - 1], inner = axes[k];
    if (!mergeable(nests(), outer.var, inner.var, inner.size)) continue;
    Expr size = outer.size * inner.size;
    Expr merged = scope_.get('p', size);
    merge_axes(nests(), outer.var, inner.var, merged);
    axes[k - 1] = {merged, size, false};
    axes.erase(axes.begin() + k);
  }
}

Axis Arranger::cut(size_t axis, int64_t piece) {
  Axis old = group_.parallel[axis];
  Expr count = sym::ceildiv(old.size, piece);
  bool even = sym::divisible(old.size, piece);
  Expr outer = scope_.get('p', count);
  Expr size = even ? Expr(piece) : sym::min(piece, old.size - outer * piece);
  Expr inner = scope_.get('p', even ? Expr(piece) : size);
  for (Nest& n : group_.nests) {
    replace(n, {{old.var, outer * piece + inner}});
    for (Axis& a : n.axes) {
      if (!(a.var == old.var)) continue;
      a = {inner, size, false};
      break;
    }
    n.axes.insert(n.axes.begin(), {outer, count, false});
  }
  group_.parallel[axis] = {outer, count, false};
  return {inner, size, false};
}

// A chunk that divides the axis and is whole vectors, where there is one near tuning::chunk.
// Nothing divides all sizes of a symbol.
int64_t chunk_of(Expr size) {
  if (!size.is_const()) return tuning::chunk;
  for (int64_t c = 2 * tuning::chunk; c >= tuning::chunk / 2; c -= tuning::whole_vectors) {
    if (size.value() % c == 0) return c;
  }
  return tuning::chunk;
}

// The axis is no longer parallel: each nest walks it.
void Arranger::make_serial(size_t axis) { group_.parallel.erase(group_.parallel.begin() + axis); }

// The contiguous axis that most of the nests agree on.
Expr common_contiguous(const std::vector<Nest>& nests, const std::vector<Axis>& among) {
  Expr best = 0;
  int most = 0;
  for (const Axis& a : among) {
    int votes = 0;
    for (const Nest& n : nests) votes += contiguous_axis(n) == a.var;
    if (votes > most) {
      most = votes;
      best = a.var;
    }
  }
  return best;
}

// Where the contiguous axis is shorter than a vector (pixels that are repeated or interleaved), the
// long axis that steps over it; else the contiguous one.
Expr axis_of_lanes(const std::vector<Nest>& nests, const std::vector<Axis>& axes, Expr contiguous) {
  auto at =
      std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.var == contiguous; });
  if (at == axes.end() || hinted(at->size).value_or(INT64_MAX) > tuning::short_axis)
    return contiguous;
  for (const Axis& a : axes) {
    if (count_of(a.size) < tuning::least_tile_axis) continue;
    bool steps = std::all_of(nests.begin(), nests.end(), [&](const Nest& n) {
      return std::all_of(n.body.begin(), n.body.end(), [&](const Inst& i) {
        std::optional<Expr> c = Expr(0);
        if (i.op == LoopOp::Store) c = coefficient(i.index[0], a.var);
        return i.op != LoopOp::Store || (c && *c == at->size);
      });
    });
    if (steps) return a.var;
  }
  return contiguous;
}

// A load contiguous along another axis than the one that is stored along: both axes in tiles.
bool Arranger::tile_transposed() {
  std::vector<Axis>& axes = group_.parallel;
  Expr vector = innermost_;
  auto at = [&](Expr var) {
    return static_cast<size_t>(
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.var == var; }) -
        axes.begin());
  };
  if (at(vector) == axes.size()) return false;
  for (const Nest& n : group_.nests) {
    for (const Inst& i : n.body) {
      if (i.op != LoopOp::Load) continue;
      auto along = coefficient(i.index[0], vector);
      if (!along || along->is_const(0) || along->is_const(1)) continue;
      for (size_t other = 0; other < axes.size(); ++other) {
        auto c = coefficient(i.index[0], axes[other].var);
        if (axes[other].var == vector || !c || !c->is_const(1)) continue;
        size_t v = at(vector);
        if (count_of(axes[other].size) < tuning::least_tile_axis ||
            count_of(axes[v].size) < tuning::least_tile_axis)
          continue;
        auto inside = [&](size_t axis) {
          if (count_of(axes[axis].size) <= tuning::tile) {
            Expr var = axes[axis].var;
            make_serial(axis);
            return var;
          }
          return cut(axis, tuning::tile).var;
        };
        Expr other_var = axes[other].var;
        innermost_ = inside(v);
        inside(at(other_var));
        tiled_ = innermost_;
        return true;
      }
    }
  }
  return false;
}

void Arranger::arrange_elementwise() {
  std::vector<Axis>& axes = group_.parallel;
  if (axes.empty()) return;
  innermost_ = common_contiguous(group_.nests, axes);
  if (innermost_.is_const()) innermost_ = axes.back().var;
  innermost_ = axis_of_lanes(group_.nests, axes, innermost_);
  if (tile_transposed()) return;
  auto at =
      std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.var == innermost_; });
  std::rotate(at, at + 1, axes.end());
  const Axis vector = axes.back();
  int64_t length = std::max<int64_t>(count_of(vector.size), 1);
  if (length > (axes.size() == 1 ? tuning::chunk : tuning::long_axis)) {
    innermost_ = cut(axes.size() - 1, chunk_of(vector.size)).var;
    return;
  }
  make_serial(axes.size() - 1);
  // Short rows: several of them make one iteration.
  while (!axes.empty() && length < tuning::chunk / 2) {
    int64_t size = count_of(axes.back().size);
    if (size * length <= tuning::chunk) {
      make_serial(axes.size() - 1);
      length *= size;
      continue;
    }
    int64_t rows = std::max<int64_t>(tuning::chunk / length, 1);
    if (rows > 1) cut(axes.size() - 1, rows);
    break;
  }
}

// Where the group walks along a parallel axis, a tile of it belongs to each iteration.
void Arranger::cut_columns() {
  std::vector<Axis>& axes = group_.parallel;
  Expr column = common_contiguous(group_.nests, axes);
  if (column.is_const()) return;
  int rows = 0, columns = 0;
  for (const Nest& n : group_.nests) {
    bool own = n.axes.size() > axes.size();
    Expr inner = contiguous_axis(n);
    if (!own || inner.is_const()) continue;
    (inner == column ? columns : rows) += 1;
  }
  if (rows >= columns) return;
  size_t at = 0;
  while (!(axes[at].var == column)) ++at;
  int64_t size = count_of(axes[at].size), others = iterations(axes) / std::max<int64_t>(size, 1);
  int64_t tile = tuning::most_columns;
  while (tile > tuning::fewest_columns &&
         others * ((size + tile - 1) / tile) < tuning::wanted_iterations)
    tile /= 2;
  if (size <= tile) {
    innermost_ = column;
    return make_serial(at);
  }
  innermost_ = cut(at, tile).var;
}

// Sorts the axes by their strides in the matrix, the largest first. False where they do not walk it
// element by element. Our own gemms have constant sizes (ops/contraction.h).
bool Arranger::sort_along(BufferId matrix) {
  Expr place = 0;
  for (const Nest& n : group_.nests) {
    for (const Inst& i : n.body) {
      if (i.op == LoopOp::Load && i.buffer == matrix) place = i.index[0];
    }
  }
  std::vector<std::pair<int64_t, Axis>> order;
  for (const Axis& a : group_.parallel) {
    const auto stride = coefficient(place, a.var);
    if (!stride || !stride->is_const() || !a.size.is_const()) return false;
    order.emplace_back(stride->value(), a);
  }
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& x) { return x.first; });
  int64_t reach = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const auto& [stride, axis] = order[k];
    if (stride != reach) return false;
    place = place - axis.var * stride;
    reach *= axis.size.value();
    group_.parallel[k] = axis;
  }
  const ir::TensorType& type = program_.buffers[matrix].type;
  return place.is_const(0) && loops::byte_extent(type).is_const(reach * ir::byte_size(type.dtype));
}

// The first of the innermost axes that come to so many columns. One that goes on behind them is
// cut.
std::optional<size_t> Arranger::first_column(int64_t columns) {
  std::vector<Axis>& axes = group_.parallel;
  size_t first = axes.size();
  for (int64_t reach = 1; reach < columns && first > 0;) {
    const int64_t size = axes[--first].size.value();
    if (columns % reach != 0) return std::nullopt;
    const int64_t left = columns / reach;
    if (size > left) {
      if (size % left != 0) return std::nullopt;
      axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(first) + 1, cut(first, left));
      return first + 1;
    }
    reach *= size;
  }
  return first;
}

// Columns and rows become axes of their own; columns come first, in panels.
std::optional<uint32_t> Arranger::cut_panels(const Panels& panels) {
  std::vector<Axis>& axes = group_.parallel;
  if (!sort_along(panels.matrix)) return std::nullopt;
  std::optional<size_t> first = first_column(panels.columns);
  if (!first || *first == 0 || *first == axes.size()) return std::nullopt;
  merge_parallel(*first);
  first = first_column(panels.columns);
  const int64_t inner = axes.back().size.value();
  if (axes.size() - *first > 1 && inner % panels.width != 0) return std::nullopt;
  innermost_ = axes.back().var;
  if (inner > panels.width)
    innermost_ = cut(axes.size() - 1, panels.width).var;
  else
    make_serial(axes.size() - 1);
  const auto panel_loops = static_cast<uint32_t>(axes.size() - *first);
  std::rotate(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(*first), axes.end());
  for (const Nest& n : group_.nests) {
    for (const Inst& i : n.body) {
      if (!touches_memory(i.op)) continue;
      const auto along = coefficient(i.index[0], innermost_);
      const bool same = along && along->is_const(0) && i.op == LoopOp::Load;
      if (!same && !(along && along->is_const(1))) return std::nullopt;
    }
  }
  return panel_loops;
}

bool Arranger::walks_columns(const Nest& n, const Arrangement& out) const {
  const Inst* reduce = find_reduce(n);
  if (!reduce || reduce->reduce == ops::ReduceKind::ArgMax ||
      reduce->reduce == ops::ReduceKind::ArgMin)
    return false;
  if (innermost_.is_const() || is_reduction_axis(n, innermost_)) return false;
  const bool own = has_axis(n.axes, innermost_), parallel = has_axis(out.parallel, innermost_);
  bool reduces =
      std::any_of(n.axes.begin(), n.axes.end(), [](const Axis& a) { return a.reduction; });
  return own && !parallel && reduces;
}

void Arranger::add_nest(Nest n, const Arrangement& out) {
  if (walks_columns(n, out))
    expand_columns(std::move(n), out.parallel);
  else
    expanded_.push_back(std::move(n));
}

// Copies `from`'s first `count` instructions under a substitution; returns where each went.
std::vector<uint32_t> append_copy(Body& to, const Body& from, size_t count,
                                  const Substitution& subst) {
  std::vector<uint32_t> at(count);
  for (size_t k = 0; k < count; ++k) {
    Inst i = from[k];
    for (uint32_t& a : i.args) a = at[a];
    for (Expr& e : i.index) e = replace(e, subst);
    at[k] = to.size();
    to.push_back(std::move(i));
  }
  return at;
}

// One reduction becomes three nests: accumulators set, rows folded in, the result used.
void Arranger::expand_columns(Nest n, const std::vector<Axis>& parallel) {
  size_t at = static_cast<size_t>(find_reduce(n) - n.body.data());
  const Inst reduce = n.body[at];
  LoopOp fold = fold_of(reduce.reduce, reduce.dtype);
  std::vector<Axis> kept, folded;
  for (const Axis& a : n.axes) {
    const bool common = has_axis(parallel, a.var);
    if (a.reduction)
      folded.push_back(a);
    else if (!common)
      kept.push_back(a);
  }
  // The tile's axis innermost.
  std::stable_partition(kept.begin(), kept.end(),
                        [&](const Axis& a) { return !(a.var == innermost_); });
  Expr offset = 0, stride = 1;
  for (size_t k = kept.size(); k-- > 0;) {
    offset = offset + kept[k].var * stride;
    sym::Range r = sym::range_of(kept[k].size);
    stride = stride * (r.hi == INT64_MAX ? kept[k].size : Expr(r.hi));
  }
  // Rows follow each other by the thousand: what four of them come to is added up in f64.
  const bool wide = reduce.reduce == ops::ReduceKind::Sum && reduce.dtype == ops::DType::F32;
  const ops::DType kept_in = wide ? ops::DType::F64 : reduce.dtype;
  loops::Buffer acc;
  acc.name = cat("acc", program_.buffers.size());
  acc.type.dtype = kept_in;
  acc.type.sizes = {stride};
  acc.type.strides = {1};
  BufferId buffer = program_.buffers.add(std::move(acc));
  accumulators_[buffer] = stride;
  auto with_parallel = [&](std::vector<Axis> axes) {
    axes.insert(axes.begin(), parallel.begin(), parallel.end());
    return axes;
  };
  auto load = [&] {
    return Inst{.op = LoopOp::Load, .dtype = kept_in, .buffer = buffer, .index = {offset}};
  };
  auto store = [&](size_t v) {
    return Inst{.op = LoopOp::Store,
                .dtype = kept_in,
                .args = {static_cast<uint32_t>(v)},
                .buffer = buffer,
                .index = {offset}};
  };

  Nest init{n.name + "_init", with_parallel(kept), {}, n.origins};
  init.body = {identity_of(reduce.reduce, kept_in), store(0)};

  Nest rows{n.name, with_parallel(kept), {}, n.origins};
  bool indirect = std::any_of(n.body.begin(), n.body.end(),
                              [](const Inst& i) { return i.op == LoopOp::Symbol; });
  // Without a remainder: the parts of a symbol's sizes would need a loop for what is left.
  bool divides = folded.back().size.is_const() && folded.back().size.value() % tuning::unroll == 0;
  bool unroll = divides && !indirect && at <= tuning::unrolled_body;
  std::vector<uint32_t> values;
  if (unroll && folded.back().size.value() > tuning::unroll) {
    Axis last = folded.back();
    Expr quarter = scope_.get('r', last.size.value() / tuning::unroll);
    folded.back() = {quarter, last.size.value() / tuning::unroll, false};
    for (int64_t u = 0; u < tuning::unroll; ++u) {
      // Far from each other: streams of one page disturb each other.
      const Expr row = quarter + u * (last.size.value() / tuning::unroll);
      values.push_back(append_copy(rows.body, n.body, at, {{last.var, row}})[reduce.args[0]]);
    }
  } else {
    values.push_back(append_copy(rows.body, n.body, at, {})[reduce.args[0]]);
  }
  for (Axis& a : folded) a.reduction = false;
  rows.axes.insert(rows.axes.end() - 1, folded.begin(), folded.end());
  auto add = [&](Inst i) {
    rows.body.push_back(std::move(i));
    return static_cast<uint32_t>(rows.body.size() - 1);
  };
  auto combine = [&](uint32_t a, uint32_t b) {
    return add(Inst{.op = fold, .dtype = rows.body[a].dtype, .args = {a, b}});
  };
  while (values.size() > 1) {
    std::vector<uint32_t> half;
    for (size_t k = 0; k + 1 < values.size(); k += 2)
      half.push_back(combine(values[k], values[k + 1]));
    values = std::move(half);
  }
  if (wide) values[0] = add(Inst{.op = LoopOp::Cast, .dtype = kept_in, .args = {values[0]}});
  rows.body.push_back(store(combine(add(load()), values[0])));

  Nest use = n;
  use.axes = with_parallel(kept);
  use.body[at] = load();
  if (wide) {
    const auto from = static_cast<uint32_t>(at);
    use.body.insert(use.body.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                    Inst{.op = LoopOp::Cast, .dtype = reduce.dtype, .args = {from}});
    for (size_t k = at + 2; k < use.body.size(); ++k) {
      for (uint32_t& a : use.body[k].args) a += a >= at;
    }
  }
  loops::remove_checks(use.body, at);
  loops::remove_dead(use.body);
  loops::remove_dead(rows.body);
  expanded_.push_back(std::move(init));
  expanded_.push_back(std::move(rows));
  expanded_.push_back(std::move(use));
}

// Whether a nest without a reduction of its own writes one element at several iterations of the
// axis.
bool updates_across(const Phase& ph, Expr axis) {
  return std::any_of(ph.nests.begin(), ph.nests.end(), [&](const Nest& n) {
    if (find_reduce(n)) return false;
    return std::any_of(n.body.begin(), n.body.end(), [&](const Inst& i) {
      std::vector<Expr> symbols;
      if (i.op == LoopOp::Store) sym::collect_symbols(i.index[0], symbols);
      return i.op == LoopOp::Store &&
             std::find(symbols.begin(), symbols.end(), axis) == symbols.end();
    });
  });
}

void Arranger::set_kinds(Phase& ph, const std::vector<Axis>& order, size_t kept) {
  bool reduces = false, positions = false, indirect = false;
  for (const Nest& n : ph.nests) {
    for (const Inst& i : n.body) {
      reduces |= i.op == LoopOp::Reduce;
      positions |= i.op == LoopOp::Reduce && i.dtype == ops::DType::I64 &&
                   (i.reduce == ops::ReduceKind::ArgMax || i.reduce == ops::ReduceKind::ArgMin);
      indirect |= i.op == LoopOp::StoreAdd;
    }
  }
  // Accumulators in memory change from step to step.
  const bool in_order = reduces && !order.empty() && updates_across(ph, order.back().var);
  for (size_t k = 0; k < order.size(); ++k) {
    PhaseAxis a{order[k].var, order[k].size, ForKind::Serial, false};
    bool last = k + 1 == order.size(), folded = reduces && k >= kept;
    if (folded)
      a.kind =
          last && !in_order && !(positions && k > kept) ? ForKind::VectorReduce : ForKind::Reduce;
    else if (last && !indirect)
      a.kind = ForKind::Vector;
    a.tiled = a.kind == ForKind::Vector && !tiled_.is_const() && a.var == tiled_;
    ph.axes.push_back(a);
  }
}

// The axes that a reduction keeps come first, since it folds at each of their iterations; else the
// largest stride first.
void Arranger::order_axes(Phase& ph, const std::vector<Axis>& parallel) {
  std::vector<Axis> kept, folded;
  std::unordered_set<Expr> reduced;
  for (const Nest& n : ph.nests) {
    for (const Axis& a : n.axes) {
      if (a.reduction) reduced.insert(a.var);
    }
  }
  for (const Axis& a : ph.nests[0].axes) {
    const bool common = has_axis(parallel, a.var);
    if (!common) (reduced.contains(a.var) ? folded : kept).push_back(a);
  }
  std::vector<Nest*> all;
  for (Nest& n : ph.nests) all.push_back(&n);
  sort_by_stride(kept, all);
  sort_by_stride(folded, all);
  auto fix_innermost = [&](std::vector<Axis>& axes) {
    auto at =
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.var == innermost_; });
    if (at == axes.end()) return;
    std::rotate(at, at + 1, axes.end());
  };
  fix_innermost(kept);
  fix_innermost(folded);
  auto merge = [&](std::vector<Axis>& axes) {
    for (size_t k = axes.size(); k-- > 1;) {
      bool fixed = axes[k].var == tiled_ || axes[k - 1].var == tiled_;
      if (fixed || !mergeable(all, axes[k - 1].var, axes[k].var, axes[k].size)) continue;
      if (!loops::is_size(axes[k].size) || !loops::is_size(axes[k - 1].size)) continue;
      Expr size = axes[k - 1].size * axes[k].size;
      Expr merged = scope_.get(axes[k].reduction ? 'r' : 'p', size);
      merge_axes(all, axes[k - 1].var, axes[k].var, merged);
      axes[k - 1] = {merged, size, axes[k].reduction};
      axes.erase(axes.begin() + k);
    }
  };
  merge(kept);
  merge(folded);
  size_t keep = kept.size();
  kept.insert(kept.end(), folded.begin(), folded.end());
  set_kinds(ph, kept, keep);
}

}  // namespace

std::optional<PanelArrangement> arrange_panels(loops::Program& p, Group g,
                                               const std::vector<bool>& needed,
                                               const ScheduleOptions& options,
                                               const Panels& panels) {
  return Arranger(p, std::move(g), needed, options).run(panels);
}

Arrangement arrange_loops(loops::Program& p, Group g, const std::vector<bool>& needed,
                          const ScheduleOptions& options) {
  return Arranger(p, std::move(g), needed, options).run();
}

}  // namespace oxy::schedule
