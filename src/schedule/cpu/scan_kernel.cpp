// Scans along rows or across them, and rows as lanes.
#include <algorithm>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/nest_writer.h"

namespace oxy::schedule {

namespace {

class ScanKernel : NestWriter {
 public:
  ScanKernel(const loops::Program& p, const Nest& n, std::string name)
      : NestWriter(p, n, std::move(name)),
        scan_(find_inst(n, LoopOp::Scan)),
        store_(find_inst(n, LoopOp::Store)) {
    for (const Axis& a : n.axes) {
      (sym::contains(scan_->index[0], a.var) ? scanned_ : others_).push_back(a);
    }
  }

  Kernel run() {
    auto column = std::ranges::find_if(
        others_, [&](const Axis& a) { return is_wide(a) && is_contiguous(a); });
    // A step of exponentials and logarithms costs more than loads from several rows.
    if (column == others_.end() && scan_->reduce == ReduceKind::LogSumExp)
      column = std::ranges::find_if(others_, is_wide);
    const Axis* rows_axis = axis_of_lanes();
    Block body = column != others_.end() ? columns(column)
                 : rows_axis             ? rows_as_lanes(*rows_axis)
                                         : rows();
    return finish(parallel_, std::move(body));
  }

 private:
  static bool is_wide(const Axis& a) {
    return hinted(a.size).value_or(INT64_MAX) >= tuning::scan_fewest_columns;
  }

  bool is_contiguous(const Axis& a) const {
    auto c = coefficient(store_->index[0], a.var);
    return c && c->is_const(1);
  }

  bool can_be_lanes(const Axis& a) const {
    const Axis& along = scanned_.back();
    const int64_t shortest =
        ir::is_floating(scan_->dtype) ? tuning::scan_shortest_row : tuning::scan_shortest_integers;
    return hinted(a.size).value_or(0) >= kRowLanes && !find_inst(nest_, LoopOp::Symbol) &&
           is_contiguous(along) && count_of(along.size) >= shortest &&
           iterations(others_) / kRowLanes >= tuning::scan_fewest_blocks;
  }

  // The rows that can be lanes; along which most loads are contiguous, of several.
  const Axis* axis_of_lanes() const {
    const Axis* best = nullptr;
    int64_t most = -1;
    for (const Axis& a : others_) {
      const int64_t contiguous = std::ranges::count_if(nest_.body, [&](const Inst& i) {
        const auto c = i.op == LoopOp::Load ? coefficient(i.index[0], a.var) : std::nullopt;
        return c && c->is_const(1);
      });
      if (contiguous > most && can_be_lanes(a)) best = &a, most = contiguous;
    }
    return best;
  }

  // One step of the scan under a substitution; `fold` gives the value of the scan from that of its
  // operand.
  template <class F>
  void step(Block& out, const Substitution& subst, F&& fold) {
    std::vector<uint32_t> value(nest_.body.size());
    for (size_t k = 0; k < nest_.body.size(); ++k) {
      const Inst& i = nest_.body[k];
      if (&i == scan_) {
        value[k] = fold(out, value[i.args[0]]);
        continue;
      }
      Compute c = compute_of(i, value, subst);
      if (i.op == LoopOp::Store) c.buffer = entry(i.buffer, KernelBuffer::Kind::Write);
      if (sets_value(i.op))
        value[k] = add(out, std::move(c));
      else
        out.push_back(Stmt{std::move(c)});
    }
  }

  // The same with an accumulator that goes from step to step, which `out` sets up.
  void fold_steps(Block& out, Block& steps, const Substitution& subst) {
    const uint32_t acc = kernel_.acc_count++;
    out.push_back(Stmt{Init{acc, scan_->reduce, scan_->dtype}});
    step(steps, subst, [&](Block& to, uint32_t v) {
      to.push_back(Stmt{Accumulate{acc, v, 0}});
      to.push_back(Stmt{Result{kernel_.value_count, acc}});
      return kernel_.value_count++;
    });
  }

  // `out`, then the steps along the scanned axes.
  Block scanned(Block out, Block steps) const {
    std::ranges::move(wrap(ForKind::Serial, scanned_, std::move(steps)), std::back_inserter(out));
    return out;
  }

  Block rows() {
    int64_t together = 1;
    std::vector<Substitution> copies{{}};
    parallel_ = others_;
    if (!parallel_.empty()) {
      while (together < tuning::scan_rows && sym::divisible(parallel_.back().size, 2 * together))
        together *= 2;
    }
    if (together > 1 && !find_inst(nest_, LoopOp::Symbol)) {
      Axis& last = parallel_.back();
      const Expr count = sym::floordiv(last.size, together), var = scope_.get('p', count);
      copies.clear();
      for (int64_t k = 0; k < together; ++k) copies.push_back({{last.var, var * together + k}});
      last = {var, count, false};
    }
    Block out, body;
    for (const Substitution& subst : copies) fold_steps(out, body, subst);
    return scanned(std::move(out), std::move(body));
  }

  // Blocks of rows, each a vector that walks along them.
  Block rows_as_lanes(const Axis& rows) {
    const Pieces pieces = cut_axis(scope_, rows.size, kRowLanes);
    parallel_ = others_;
    parallel_[place_of(others_, rows.var)] = pieces.outer;
    Block start, steps;
    fold_steps(start, steps, {{rows.var, pieces.place}});
    Block out = wrap(ForKind::Vector, {pieces.inner}, scanned(std::move(start), std::move(steps)));
    std::get<For>(out[0].v).annotations.set(kTiled);
    return out;
  }

  // How many columns one iteration scans.
  int64_t block_of(const Axis& column) const {
    int64_t rest = 1, block = tuning::scan_columns;
    for (const Axis& a : others_) {
      if (a.var != column.var) rest *= hinted(a.size).value_or(1);
    }
    const std::optional<int64_t> size = hinted(column.size);
    if (!size) return tuning::scan_columns;
    if (!is_contiguous(column)) return tuning::scan_gathered_rows;
    while (block > tuning::scan_narrow &&
           rest * ((*size + block - 1) / block) < tuning::scan_wanted_blocks)
      block /= 2;
    return block;
  }

  Block columns(std::vector<Axis>::iterator column) {
    const Axis whole = *column;
    parallel_ = others_;
    const auto at = parallel_.begin() + (column - others_.begin());
    const int64_t most = block_of(whole);
    Axis lane = whole;
    Expr width = whole.size;
    Substitution subst;
    if (loops::is_size(whole.size) && hinted(whole.size).value_or(INT64_MAX) <= most) {
      parallel_.erase(at);
    } else {
      const Pieces pieces = cut_axis(scope_, whole.size, most);
      lane = pieces.inner;
      width = most;
      subst = {{whole.var, pieces.place}};
      *at = pieces.outer;
    }
    const DType dtype = scan_->dtype;
    const auto sums = static_cast<uint32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({"sums", KernelBuffer::Kind::Local, dtype, width, BufferId()});
    const auto store = [&](Block& out, uint32_t v) {
      out.push_back(Stmt{Compute{
          .op = LoopOp::Store, .dtype = dtype, .args = {v}, .buffer = sums, .index = lane.var}});
    };
    Block zero, body;
    const Inst identity = identity_of(scan_->reduce, dtype);
    store(zero, add(zero, {.op = LoopOp::Const,
                           .dtype = dtype,
                           .number = identity.number,
                           .integer = identity.integer}));
    step(body, subst, [&](Block& out, uint32_t v) {
      const uint32_t before =
          add(out, {.op = LoopOp::Load, .dtype = dtype, .buffer = sums, .index = lane.var});
      const LoopOp fold = fold_of(scan_->reduce, dtype);
      const uint32_t sum = add(out, {.op = fold, .dtype = dtype, .args = {before, v}});
      store(out, sum);
      return sum;
    });
    return scanned(wrap(ForKind::Vector, {lane}, std::move(zero)),
                   wrap(ForKind::Vector, {lane}, std::move(body)));
  }

  const Inst *const scan_, *const store_;
  std::vector<Axis> scanned_, others_, parallel_;
};

}  // namespace

Kernel scan_kernel(const loops::Program& p, const Nest& n, std::string name) {
  return ScanKernel(p, n, std::move(name)).run();
}

}  // namespace oxy::schedule
