// Orders axes by how memory is walked, cuts them into tiles and lanes, and joins phases.
#include "schedule/cpu/arrange_loops.h"

#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/cost.h"

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
    bool elementwise = std::ranges::all_of(
        group_.nests, [&](const Nest& n) { return n.axes.size() == group_.parallel.size(); });
    sort_by_stride(group_.parallel, group_.nests);
    merge_parallel(0);
    if (elementwise)
      arrange_elementwise();
    else if (!cut_columns())
      cut_rows();
    return arranged();
  }

  std::optional<PanelArrangement> run(const Panels& panels) {
    const std::optional<uint32_t> panel_loops = cut_panels(panels);
    if (!panel_loops) return std::nullopt;
    return PanelArrangement{arranged(), *panel_loops};
  }

 private:
  Arrangement arranged() {
    Arrangement out;
    out.parallel = std::move(group_.parallel);
    for (Nest& n : group_.nests) {
      if (walks_columns(n, out.parallel))
        expand_columns(std::move(n), out.parallel);
      else if (!row_.is_const())
        expand_rows(std::move(n), out.parallel);
      else
        expanded_.push_back(std::move(n));
    }
    for (const auto& [b, elements] : accumulators_) out.locals.emplace(b, elements);
    out.phases = make_phases(std::move(expanded_), out.parallel);
    localise_buffers(program_, out, needed_, tuning::local_bytes(options_.machine));
    for (Phase& ph : out.phases) order_axes(ph, out.parallel);
    return out;
  }

  // `apart`: an axis that is not merged with the one before it.
  void merge_parallel(size_t apart);
  void arrange_elementwise();
  bool tile_transposed();
  bool cut_columns();
  void cut_rows();
  // Cuts a parallel axis into pieces: the pieces stay parallel, what is inside belongs to the
  // nests, and is returned.
  Axis cut(size_t axis, int64_t piece);
  std::optional<uint32_t> cut_panels(const Panels& panels);  // parallel loops over panels
  bool sort_along(BufferId matrix);
  std::optional<size_t> first_column(Expr columns);
  bool walks_columns(const Nest& n, const std::vector<Axis>& parallel) const;
  void expand_columns(Nest n, const std::vector<Axis>& parallel);
  void expand_rows(Nest n, const std::vector<Axis>& parallel);
  // The nest up to an instruction whose value is kept in a local buffer; the nest takes it from
  // there.
  Nest keep(Nest& n, size_t at);
  // The nest with a value of its own, an instruction's, loaded from where it has been stored.
  Nest use_of(Nest n, size_t at, BufferId result, Expr index);
  BufferId add_local(DType dtype, Expr elements);
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
  Expr row_ = 0;        // the axis of rows that an iteration takes together
  Expr innermost_ = 0;  // the axis that must be walked innermost, where that has been decided
};

void Arranger::merge_parallel(size_t apart) {
  std::vector<Axis>& axes = group_.parallel;
  for (size_t k = axes.size(); k-- > 1;) {
    if (k == apart) continue;
    const Axis outer = axes[k - 1], inner = axes[k];
    if (!mergeable(group_.nests, outer.var, inner.var, inner.size)) continue;
    Expr size = outer.size * inner.size;
    Expr merged = scope_.get('p', size);
    merge_axes(group_.nests, outer.var, inner.var, merged);
    axes[k - 1] = {merged, size, false};
    axes.erase(axes.begin() + k);
  }
}

Axis Arranger::cut(size_t axis, int64_t piece) {
  const Axis old = group_.parallel[axis];
  const Pieces pieces = cut_axis(scope_, old.size, piece);
  for (Nest& n : group_.nests) {
    replace(n, {{old.var, pieces.place}});
    if (const size_t at = place_of(n.axes, old.var); at < n.axes.size()) n.axes[at] = pieces.inner;
    n.axes.insert(n.axes.begin(), pieces.outer);
  }
  group_.parallel[axis] = pieces.outer;
  return pieces.inner;
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

// The axis of the variable goes to the end, if it is there.
void put_last(std::vector<Axis>& axes, Expr var) {
  const auto at = std::ranges::find(axes, var, &Axis::var);
  if (at != axes.end()) std::rotate(at, at + 1, axes.end());
}

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

// Loads that a vector along the axis takes an element at a time.
int64_t loads_apart(const std::vector<Nest>& nests, Expr var) {
  return std::ranges::count_if(instructions(nests), [&](const Inst& i) {
    if (i.op != LoopOp::Load) return false;
    const auto along = coefficient(i.index[0], var);
    return !along || !along->is_const() || along->value() < -1 || along->value() > 2;
  });
}

// Those of single elements that are the same along the axis, where a mask holds: of pieces that are
// stacked, of which each vector along the axis takes all.
int64_t loads_of_pieces(const std::vector<Nest>& nests, Expr var) {
  return std::ranges::count_if(instructions(nests), [&](const Inst& i) {
    return i.op == LoopOp::Load && !i.args.empty() && !sym::contains(i.index[0], var);
  });
}

// Where the contiguous axis is shorter than a vector (pixels that are repeated or interleaved), the
// axis that steps over it, or one that something is read along; else the contiguous one. Where
// neither is long, and where vectors along the contiguous one are not all that short, as far as
// what is loaded an element at a time costs less than short vectors do.
Expr axis_of_lanes(const std::vector<Nest>& nests, const std::vector<Axis>& axes, Expr contiguous) {
  const size_t at = place_of(axes, contiguous);
  const int64_t size = at < axes.size() ? hinted(axes[at].size).value_or(INT64_MAX) : INT64_MAX;
  const bool known = at < axes.size() && axes[at].size.is_const();  // and can be interleaved
  if (size > (known ? tuning::most_neighbours : tuning::short_axis)) return contiguous;
  const int64_t apart = loads_apart(nests, contiguous) + loads_of_pieces(nests, contiguous);
  const auto pays = [&](const Axis& a) {
    if (size <= tuning::short_axis && count_of(a.size) >= tuning::least_tile_axis) return true;
    const int64_t spared = apart - loads_apart(nests, a.var);
    return count_of(a.size) > size ? -spared * size <= tuning::short_axis : spared > 0;
  };
  const auto steps = [&](const Inst& i, Expr var) {
    return i.op != LoopOp::Store || coefficient(i.index[0], var) == axes[at].size;
  };
  const auto reads_along = [&](const Inst& i, Expr var) {
    if (i.op != LoopOp::Load) return false;
    const auto along = coefficient(i.index[0], var);
    return along && along->is_const(1);
  };
  for (const Axis& a : axes) {
    if (a.var != contiguous && pays(a) &&
        std::ranges::all_of(instructions(nests), [&](const Inst& i) { return steps(i, a.var); }))
      return a.var;
  }
  for (const Axis& a : axes) {
    if (count_of(a.size) >= tuning::least_tile_axis && pays(a) &&
        std::ranges::any_of(instructions(nests),
                            [&](const Inst& i) { return reads_along(i, a.var); }))
      return a.var;
  }
  return contiguous;
}

// A load or store contiguous along another axis than the innermost: both axes in tiles.
bool Arranger::tile_transposed() {
  std::vector<Axis>& axes = group_.parallel;
  const size_t vector = place_of(axes, innermost_);
  if (vector == axes.size() || count_of(axes[vector].size) < tuning::least_tile_axis) return false;
  // A short axis is no longer parallel: each nest walks it.
  auto inside = [&](Expr var) {
    const size_t axis = place_of(axes, var);
    if (count_of(axes[axis].size) > tuning::tile) return cut(axis, tuning::tile).var;
    axes.erase(axes.begin() + axis);
    return var;
  };
  for (const Inst& i : instructions(group_.nests)) {
    if (i.op != LoopOp::Load && i.op != LoopOp::Store) continue;
    auto along = coefficient(i.index[0], innermost_);
    if (!along || along->is_const(0) || along->is_const(1)) continue;
    for (const Axis& other : axes) {
      auto c = coefficient(i.index[0], other.var);
      if (other.var == innermost_ || !c || !c->is_const(1) ||
          count_of(other.size) < tuning::least_tile_axis)
        continue;
      const Expr across = other.var;
      tiled_ = innermost_ = inside(innermost_);
      inside(across);
      return true;
    }
  }
  return false;
}

// Whether an index goes back to its beginning along the axis: what a loop over all of it can split
// at that place.
bool wraps(const std::vector<Nest>& nests, Expr var) {
  const auto has_mod = [&](auto&& self, Expr e) -> bool {
    if (e.is_const() || e.kind() == sym::Kind::Symbol) return false;
    if (e.kind() == sym::Kind::Mod) return sym::contains(e, var);
    return std::ranges::any_of(e.operands(), [&](Expr part) { return self(self, part); });
  };
  return std::ranges::any_of(instructions(nests), [&](const Inst& i) {
    return std::ranges::any_of(i.index, [&](Expr e) { return has_mod(has_mod, e); });
  });
}

void Arranger::arrange_elementwise() {
  std::vector<Axis>& axes = group_.parallel;
  if (axes.empty()) return;
  innermost_ = common_contiguous(group_.nests, axes);
  if (innermost_.is_const()) innermost_ = axes.back().var;
  const Expr contiguous = std::exchange(innermost_, axis_of_lanes(group_.nests, axes, innermost_));
  if (tile_transposed()) {
    if (contiguous != innermost_ && has_axis(axes, contiguous))
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(place_of(axes, contiguous)));
    return;
  }
  put_last(axes, innermost_);
  const Axis vector = axes.back();
  int64_t length = std::max<int64_t>(count_of(vector.size), 1);
  int64_t short_length = 1;
  if (contiguous != vector.var) {  // the lanes step over it, within lines: each nest walks it
    const size_t at = place_of(axes, contiguous);
    short_length = std::max<int64_t>(count_of(axes[at].size), 1);
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const bool whole =
      wraps(group_.nests, vector.var) && iterations(axes) / length >= tuning::wanted_iterations;
  if (length > (axes.size() == 1 ? tuning::chunk : tuning::long_axis) && !whole) {
    innermost_ = cut(axes.size() - 1, chunk_of(vector.size)).var;
    return;
  }
  length *= short_length;
  axes.pop_back();  // each nest walks it
  // Short rows: several of them make one iteration.
  while (!axes.empty() && length < tuning::chunk / 2) {
    int64_t size = count_of(axes.back().size);
    if (size * length <= tuning::chunk) {
      axes.pop_back();
      length *= size;
      continue;
    }
    int64_t rows = std::max<int64_t>(tuning::chunk / length, 1);
    if (rows > 1) cut(axes.size() - 1, rows);
    break;
  }
}

// Where the group walks along a parallel axis, a tile of it belongs to each iteration.
bool Arranger::cut_columns() {
  std::vector<Axis>& axes = group_.parallel;
  Expr column = common_contiguous(group_.nests, axes);
  if (column.is_const()) return false;
  int rows = 0, columns = 0;
  for (const Nest& n : group_.nests) {
    bool own = n.axes.size() > axes.size();
    Expr inner = contiguous_axis(n);
    if (!own || inner.is_const()) continue;
    (inner == column ? columns : rows) += 1;
  }
  if (rows >= columns) return false;
  const size_t at = place_of(axes, column);
  int64_t size = count_of(axes[at].size), others = iterations(axes) / std::max<int64_t>(size, 1);
  int64_t tile = tuning::most_columns;
  while (tile > tuning::fewest_columns &&
         others * ((size + tile - 1) / tile) < tuning::wanted_iterations)
    tile /= 2;
  innermost_ = size > tile ? cut(at, tile).var : column;
  if (size <= tile) axes.erase(axes.begin() + at);  // each nest walks it
  return true;
}

// Whether what it reads, or that it may read it, depends on numbers in memory.
bool looks_up(const Nest& n) { return find_inst(n, LoopOp::Symbol) || find_inst(n, LoopOp::Check); }

// By instruction: whether its value differs from element to element of one parallel iteration.
std::vector<bool> differs_in_row(const Nest& n, const std::vector<Axis>& parallel) {
  std::vector<bool> out(n.body.size());
  for (size_t k = 0; k < n.body.size(); ++k) {
    const Inst& i = n.body[k];
    if (i.op == LoopOp::Reduce) continue;
    out[k] = std::ranges::any_of(i.args, [&](uint32_t a) { return out[a]; });
    for (const Axis& a : n.axes)
      out[k] = out[k] || (!has_axis(parallel, a.var) && std::ranges::any_of(i.index, [&](Expr e) {
                 return sym::contains(e, a.var);
               }));
  }
  return out;
}

// How many elements of a row an instruction outweighs that is done to one number, not to a vector.
int outweighed_elements(const Inst& i) {
  const bool rounds = i.op == LoopOp::Cast && is_reduced_float(i.dtype);
  const int cost = cost_of(i.op);
  return rounds || cost >= tuning::results_least_cost ? tuning::results_longest_row : cost;
}

// A value that all elements of a row share, dear to compute, in front of the nest's fold.
std::optional<size_t> shared_value(const Nest& n, const std::vector<Axis>& rows) {
  const std::vector<bool> in_row = differs_in_row(n, rows);
  std::vector<int> cost(n.body.size());
  for (size_t k = 0; k < n.body.size() && n.body[k].op != LoopOp::Reduce; ++k) {
    cost[k] = cost_of(n.body[k].op);
    for (uint32_t a : n.body[k].args) {
      cost[k] += cost[a];
      if (in_row[k] && !in_row[a] && cost[a] >= tuning::results_least_cost) return a;
    }
  }
  return std::nullopt;
}

// Short rows that are stored in columns, or whose results go through mathematical functions: an
// iteration takes several rows, and then stores them in tiles, or takes their results in vectors.
void Arranger::cut_rows() {
  std::vector<Axis>& axes = group_.parallel;
  if (axes.empty()) return;
  int64_t longest = 0;
  int outweighed = 0;
  bool transposed = false;
  for (const Nest& n : group_.nests) {
    if (find_inst(n, LoopOp::StoreAdd) || looks_up(n)) return;
    longest = std::max(longest, iterations(n.axes) / std::max<int64_t>(iterations(axes), 1));
    const std::vector<bool> in_row = differs_in_row(n, axes);
    for (size_t k = 0; k < n.body.size(); ++k)
      if (!in_row[k]) outweighed += outweighed_elements(n.body[k]);
    const Inst& last = n.body.back();
    if (last.op != LoopOp::Store || !in_row.back()) continue;
    const auto along = coefficient(last.index[0], axes.back().var);
    transposed = transposed || (along && along->is_const(1));
  }
  const bool pays = outweighed >= tuning::results_least_cost && longest <= outweighed;
  if ((!pays && !(transposed && longest <= tuning::results_longest_row)) ||
      count_of(axes.back().size) < tuning::results_rows ||
      (iterations(axes) * longest > tuning::fuse_small_work &&
       iterations(axes) / tuning::results_rows < tuning::wanted_iterations))
    return;
  row_ = cut(axes.size() - 1, tuning::results_rows).var;
}

// Sorts the axes by their strides in the matrix, the largest first. False where they do not walk it
// element by element.
bool Arranger::sort_along(BufferId matrix) {
  Expr place = 0;
  for (const Inst& i : instructions(group_.nests)) {
    if (i.op == LoopOp::Load && i.buffer == matrix) place = i.index[0];
  }
  std::vector<std::pair<Expr, Axis>> order;
  for (const Axis& a : group_.parallel) {
    const auto stride = coefficient(place, a.var);
    if (!stride || !hinted(*stride) || !hinted(a.size)) return false;
    order.emplace_back(*stride, a);
  }
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& x) { return *hinted(x.first); });
  Expr reach = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const auto& [stride, axis] = order[k];
    if (stride != reach) return false;
    place = place - axis.var * stride;
    reach = reach * axis.size;
    group_.parallel[k] = axis;
  }
  const ir::TensorType& type = program_.buffers[matrix].type;
  return place.is_const(0) && loops::byte_extent(type) == reach * ir::byte_size(type.dtype);
}

// The first of the innermost axes that come to so many columns. One that goes on behind them is
// cut.
std::optional<size_t> Arranger::first_column(Expr columns) {
  std::vector<Axis>& axes = group_.parallel;
  size_t first = axes.size();
  for (Expr reach = 1; reach != columns && first > 0;) {
    const Expr size = axes[--first].size;
    if (reach * size == columns) return first;
    if (!reach.is_const() || !columns.is_const() || columns.value() % reach.value() != 0)
      return std::nullopt;
    const int64_t left = columns.value() / reach.value();
    if (!size.is_const() || size.value() > left) {
      if (!sym::divisible(size, left)) return std::nullopt;
      axes.insert(axes.begin() + first + 1, cut(first, left));
      return first + 1;
    }
    reach = reach * size;
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
  const Expr inner = axes.back().size;
  if (axes.size() - *first > 1 && !sym::divisible(inner, panels.width)) return std::nullopt;
  innermost_ = axes.back().var;
  if (!inner.is_const() || inner.value() > panels.width)
    innermost_ = cut(axes.size() - 1, panels.width).var;
  else
    axes.pop_back();
  const auto panel_loops = static_cast<uint32_t>(axes.size() - *first);
  std::rotate(axes.begin(), axes.begin() + *first, axes.end());
  for (const Inst& i : instructions(group_.nests)) {
    if (!touches_memory(i.op)) continue;
    const auto along = coefficient(i.index[0], innermost_);
    const bool same = along && along->is_const(0) && i.op == LoopOp::Load;
    if (!same && !(along && along->is_const(1))) return std::nullopt;
  }
  return panel_loops;
}

bool Arranger::walks_columns(const Nest& n, const std::vector<Axis>& parallel) const {
  const Inst* reduce = find_inst(n, LoopOp::Reduce);
  return reduce && !gives_position(reduce->reduce) && has_axis(n.axes, innermost_) &&
         !is_reduction_axis(n, innermost_) && !has_axis(parallel, innermost_) &&
         std::ranges::any_of(n.axes, &Axis::reduction);
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

BufferId Arranger::add_local(DType dtype, Expr elements) {
  Buffer b;
  b.name = cat("acc", program_.buffers.size());
  b.type.dtype = dtype;
  b.type.sizes = {elements};
  b.type.strides = {1};
  const BufferId out = program_.buffers.add(std::move(b));
  accumulators_[out] = elements;
  return out;
}

Nest Arranger::use_of(Nest n, size_t at, BufferId result, Expr index) {
  const DType dtype = n.body[at].dtype, kept_in = program_.buffers[result].type.dtype;
  n.body[at] = Inst{.op = LoopOp::Load, .dtype = kept_in, .buffer = result, .index = {index}};
  if (kept_in != dtype) {
    n.body.insert(n.body.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                  Inst{.op = LoopOp::Cast, .dtype = dtype, .args = {static_cast<uint32_t>(at)}});
    for (size_t k = at + 2; k < n.body.size(); ++k) {
      for (uint32_t& a : n.body[k].args) a += a >= at;
    }
  }
  loops::remove_checks(n.body, at);
  loops::remove_dead(n.body);
  return n;
}

Nest Arranger::keep(Nest& n, size_t at) {
  const DType dtype = n.body[at].dtype;
  const BufferId to = add_local(dtype, tuning::results_rows);
  Nest part = n;
  part.body.resize(at + 1);
  part.body.push_back(Inst{.op = LoopOp::Store,
                           .dtype = dtype,
                           .args = {static_cast<uint32_t>(at)},
                           .buffer = to,
                           .index = {row_}});
  loops::remove_dead(part.body);
  n = use_of(std::move(n), at, to, row_);
  return part;
}

// What is computed once a row is computed in vectors, for all rows of the iteration: what its
// elements share, and what is done with the result of its fold where each row has one.
void Arranger::expand_rows(Nest n, const std::vector<Axis>& parallel) {
  const auto of_row = [&](const Axis& a) { return a.var == row_ || has_axis(parallel, a.var); };
  std::vector<Axis> rows = n.axes;
  std::erase_if(rows, std::not_fn(of_row));
  while (const auto at = shared_value(n, rows)) {
    Nest part = keep(n, *at);
    part.axes = rows;
    expanded_.push_back(std::move(part));
  }
  const bool one_a_row =
      std::ranges::all_of(n.axes, [&](const Axis& a) { return a.reduction || of_row(a); });
  const Inst* reduce = one_a_row ? find_inst(n, LoopOp::Reduce) : nullptr;
  const auto computes = [](const Inst& i) { return cost_of(i.op) > 0; };
  if (reduce && std::any_of(reduce + 1, std::as_const(n.body).data() + n.body.size(), computes)) {
    expanded_.push_back(keep(n, reduce - n.body.data()));
    n.axes = std::move(rows);
  }
  expanded_.push_back(std::move(n));
}

// One reduction becomes three nests: accumulators set, rows folded in, the result used.
void Arranger::expand_columns(Nest n, const std::vector<Axis>& parallel) {
  size_t at = static_cast<size_t>(find_inst(n, LoopOp::Reduce) - n.body.data());
  const Inst reduce = n.body[at];
  LoopOp fold = fold_of(reduce.reduce, reduce.dtype);
  std::vector<Axis> kept, folded;
  for (const Axis& a : n.axes) {
    if (a.reduction)
      folded.push_back(a);
    else if (!has_axis(parallel, a.var))
      kept.push_back(a);
  }
  put_last(kept, innermost_);  // the tile's axis
  Expr offset = 0, stride = 1;
  for (size_t k = kept.size(); k-- > 0;) {
    offset = offset + kept[k].var * stride;
    sym::Range r = sym::range_of(kept[k].size);
    stride = stride * (r.hi == INT64_MAX ? kept[k].size : Expr(r.hi));
  }
  // Rows follow each other by the thousand: what four of them come to is added up in f64.
  const bool wide = reduce.reduce == ReduceKind::Sum && reduce.dtype == DType::F32;
  const DType kept_in = wide ? DType::F64 : reduce.dtype;
  const BufferId buffer = add_local(kept_in, stride);
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

  // Rows folded in: at each of `places` of the last folded axis, which become one sum.
  auto rows_at = [&](const Axis& last, const std::vector<Expr>& places) {
    Nest rows{n.name, with_parallel(kept), {}, n.origins};
    std::vector<Axis> axes = folded;
    const Expr old = axes.back().var;
    axes.back() = last;
    for (Axis& a : axes) a.reduction = false;
    rows.axes.insert(rows.axes.end() - 1, axes.begin(), axes.end());
    std::vector<uint32_t> values;
    for (const Expr place : places)
      values.push_back(append_copy(rows.body, n.body, at, {{old, place}})[reduce.args[0]]);
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
    loops::remove_dead(rows.body);
    return rows;
  };
  std::vector<Nest> rows;
  const Axis last = folded.back();
  const bool divides = sym::divisible(last.size, tuning::unroll);
  const int64_t fewest = divides ? 2 * tuning::unroll : tuning::unroll_with_rest;
  if (!find_inst(n, LoopOp::Symbol) && at <= tuning::unrolled_body &&
      count_of(last.size) >= fewest) {
    // Far from each other: streams of one page disturb each other.
    const Expr part = sym::floordiv(last.size, tuning::unroll);
    const Expr quarter = scope_.get('r', part);
    std::vector<Expr> places;
    for (int64_t u = 0; u < tuning::unroll; ++u) places.push_back(quarter + part * u);
    rows.push_back(rows_at({quarter, part, false}, places));
    if (!divides) {
      const Expr left = last.size - part * tuning::unroll, rest = scope_.get('r', left);
      rows.push_back(rows_at({rest, left, false}, {part * tuning::unroll + rest}));
    }
  } else {
    rows.push_back(rows_at(last, {last.var}));
  }

  Nest use = use_of(std::move(n), at, buffer, offset);
  use.axes = with_parallel(kept);
  expanded_.push_back(std::move(init));
  for (Nest& r : rows) expanded_.push_back(std::move(r));
  expanded_.push_back(std::move(use));
}

// Whether a nest without a reduction of its own writes one element at several iterations of the
// axis.
bool updates_across(const Phase& ph, Expr axis) {
  return std::ranges::any_of(ph.nests, [&](const Nest& n) {
    return !find_inst(n, LoopOp::Reduce) && std::ranges::any_of(n.body, [&](const Inst& i) {
      return i.op == LoopOp::Store && !sym::contains(i.index[0], axis);
    });
  });
}

// Whether something lies along the axis around the vectors, not along these.
bool is_transposed(const Phase& ph, const Axis& outer, const Axis& vector) {
  if (std::min(count_of(outer.size), count_of(vector.size)) < tuning::least_tile_axis) return false;
  return std::ranges::any_of(instructions(ph.nests), [&](const Inst& i) {
    if (i.op != LoopOp::Load && i.op != LoopOp::Store) return false;
    const auto along = coefficient(i.index[0], outer.var),
               across = coefficient(i.index[0], vector.var);
    return along && along->is_const(1) && across && !across->is_const(0) && !across->is_const(1);
  });
}

void Arranger::set_kinds(Phase& ph, const std::vector<Axis>& order, size_t kept) {
  bool reduces = false, indirect = false;
  bool scattered = false;  // a vector's positions are not consecutive
  for (const Inst& i : instructions(ph.nests)) {
    reduces |= i.op == LoopOp::Reduce;
    indirect |= i.op == LoopOp::StoreAdd;
    if (i.op != LoopOp::Reduce || !gives_position(i.reduce) || order.empty()) continue;
    const auto along = coefficient(i.index[0], order.back().var);
    scattered |= !along || !along->is_const(1);
  }
  // Accumulators in memory change from step to step.
  const bool in_order = reduces && !order.empty() && updates_across(ph, order.back().var);
  for (size_t k = 0; k < order.size(); ++k) {
    PhaseAxis a{order[k].var, order[k].size, ForKind::Serial, false};
    bool last = k + 1 == order.size(), folded = reduces && k >= kept;
    if (folded)
      a.kind = last && !in_order && !scattered ? ForKind::VectorReduce : ForKind::Reduce;
    else if (last && !indirect)
      a.kind = ForKind::Vector;
    a.tiled = a.kind == ForKind::Vector &&
              ((!tiled_.is_const() && a.var == tiled_) ||
               (k > 0 && !reduces && is_transposed(ph, order[k - 1], order[k])));
    ph.axes.push_back(a);
  }
}

// The axes that a reduction keeps come first, since it folds at each of their iterations; else the
// largest stride first.
void Arranger::order_axes(Phase& ph, const std::vector<Axis>& parallel) {
  std::vector<Axis> kept, folded;
  for (const Axis& a : ph.nests[0].axes) {
    if (has_axis(parallel, a.var)) continue;
    const bool reduced =
        std::ranges::any_of(ph.nests, [&](const Nest& n) { return is_reduction_axis(n, a.var); });
    (reduced ? folded : kept).push_back(a);
  }
  for (std::vector<Axis>* axes : {&kept, &folded}) {
    sort_by_stride(*axes, ph.nests);
    put_last(*axes, innermost_);
  }
  auto merge = [&](std::vector<Axis>& axes) {
    for (size_t k = axes.size(); k-- > 1;) {
      Axis &outer = axes[k - 1], &inner = axes[k];
      if (inner.var == tiled_ || outer.var == tiled_ ||
          !mergeable(ph.nests, outer.var, inner.var, inner.size) || !loops::is_size(inner.size) ||
          !loops::is_size(outer.size))
        continue;
      Expr size = outer.size * inner.size;
      Expr merged = scope_.get(inner.reduction ? 'r' : 'p', size);
      merge_axes(ph.nests, outer.var, inner.var, merged);
      outer = {merged, size, inner.reduction};
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
