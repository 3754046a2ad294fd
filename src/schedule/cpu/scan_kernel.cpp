// Scans along rows or across them, and rows as lanes.
#include "schedule/cpu/scan_kernel.h"

#include <algorithm>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/nest_writer.h"
#include "schedule/fold.h"
#include "support/tuning.h"

namespace oxy::schedule {

namespace {

class ScanKernel : NestWriter {
 public:
  ScanKernel(const loops::Program& p, const Nest& n, std::string name)
      : NestWriter(p, n, std::move(name)) {
    for (const Inst& i : n.body) {
      if (i.op == LoopOp::Scan) scan_ = &i;
      if (i.op == LoopOp::Store) store_ = &i;
    }
    for (const Axis& a : n.axes) {
      (sym::contains(scan_->index[0], a.var) ? scanned_ : others_).push_back(a);
    }
  }

  Kernel run() {
    auto column = std::find_if(others_.begin(), others_.end(),
                               [&](const Axis& a) { return is_wide(a) && is_contiguous(a); });
    // A step of exponentials and logarithms costs more than loads from several rows.
    if (column == others_.end() && scan_->reduce == ReduceKind::LogSumExp) {
      column = std::find_if(others_.begin(), others_.end(), is_wide);
    }
    auto lane = std::find_if(others_.begin(), others_.end(),
                             [&](const Axis& a) { return can_be_lanes(a); });
    Block body = column != others_.end() ? columns(column)
                 : lane != others_.end() ? rows_as_lanes(*lane)
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
    if (hinted(a.size).value_or(0) < kRowLanes) return false;
    const bool indirect = std::any_of(nest_.body.begin(), nest_.body.end(),
                                      [](const Inst& i) { return i.op == LoopOp::Symbol; });
    const Axis& along = scanned_.back();
    return !indirect && is_contiguous(along) && count_of(along.size) >= tuning::scan_shortest_row &&
           iterations(others_) / kRowLanes >= tuning::scan_fewest_blocks;
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
      if (i.op == LoopOp::Store || i.op == LoopOp::Check)
        out.push_back(Stmt{std::move(c)});
      else
        value[k] = add(out, std::move(c));
    }
  }

  Block rows() {
    int64_t together = 1;
    std::vector<Substitution> copies{{}};
    parallel_ = others_;
    if (!parallel_.empty()) {
      while (together < tuning::scan_rows && sym::divisible(parallel_.back().size, 2 * together))
        together *= 2;
    }
    const bool indirect = std::any_of(nest_.body.begin(), nest_.body.end(),
                                      [](const Inst& i) { return i.op == LoopOp::Symbol; });
    if (together > 1 && !indirect) {
      Axis& last = parallel_.back();
      const Expr count = sym::floordiv(last.size, together), var = scope_.get('p', count);
      copies.clear();
      for (int64_t k = 0; k < together; ++k) copies.push_back({{last.var, var * together + k}});
      last = {var, count, false};
    }
    Block out, body;
    for (const Substitution& subst : copies) {
      const uint32_t acc = kernel_.acc_count++;
      out.push_back(Stmt{Init{acc, scan_->reduce, scan_->dtype}});
      step(body, subst, [&](Block& to, uint32_t v) {
        to.push_back(Stmt{Accumulate{acc, v, 0}});
        to.push_back(Stmt{Result{kernel_.value_count, acc}});
        return kernel_.value_count++;
      });
    }
    for (Stmt& s : wrap(ForKind::Serial, scanned_, std::move(body))) out.push_back(std::move(s));
    return out;
  }

  // Blocks of rows, each a vector that walks along them.
  Block rows_as_lanes(const Axis& rows) {
    const Expr count = sym::ceildiv(rows.size, kRowLanes), block = scope_.get('p', count);
    const Expr size = sym::divisible(rows.size, kRowLanes)
                          ? Expr(kRowLanes)
                          : sym::min(kRowLanes, rows.size - block * kRowLanes);
    const Expr lane = scope_.get('p', size);
    parallel_ = others_;
    for (Axis& a : parallel_) {
      if (a.var == rows.var) a = {block, count, false};
    }
    const uint32_t acc = kernel_.acc_count++;
    Block steps, body;
    step(steps, {{rows.var, block * kRowLanes + lane}}, [&](Block& to, uint32_t v) {
      to.push_back(Stmt{Accumulate{acc, v, 0}});
      to.push_back(Stmt{Result{kernel_.value_count, acc}});
      return kernel_.value_count++;
    });
    body.push_back(Stmt{Init{acc, scan_->reduce, scan_->dtype}});
    for (Stmt& s : wrap(ForKind::Serial, scanned_, std::move(steps))) body.push_back(std::move(s));
    Block out = wrap(ForKind::Vector, lane, size, std::move(body));
    std::get<For>(out[0].v).annotations.set(kTiled);
    return out;
  }

  // How many columns one iteration scans.
  int64_t block_of(const Axis& column) const {
    int64_t rest = 1, block = tuning::scan_columns;
    for (const Axis& a : others_) {
      if (!(a.var == column.var)) rest *= hinted(a.size).value_or(1);
    }
    const std::optional<int64_t> size = hinted(column.size);
    if (!size) return tuning::scan_columns;
    if (!is_contiguous(column)) return tuning::scan_gathered_rows;
    while (block > tuning::scan_narrow &&
           rest * ((*size + block - 1) / block) < tuning::scan_wanted_blocks) {
      block /= 2;
    }
    return block;
  }

  Block columns(std::vector<Axis>::iterator column) {
    const Axis whole = *column;
    parallel_ = others_;
    const size_t at = static_cast<size_t>(column - others_.begin());
    const int64_t most = block_of(whole);
    Expr lane = whole.var, size = whole.size, width = whole.size;
    Substitution subst;
    if (loops::is_size(whole.size) && hinted(whole.size).value_or(INT64_MAX) <= most) {
      parallel_.erase(parallel_.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      const Expr count = sym::ceildiv(whole.size, most), block = scope_.get('p', count);
      size =
          sym::divisible(whole.size, most) ? Expr(most) : sym::min(most, whole.size - block * most);
      width = most;
      lane = scope_.get('p', size);
      subst = {{whole.var, block * most + lane}};
      parallel_[at] = {block, count, false};
    }
    const auto sums = static_cast<uint32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({"sums", KernelBuffer::Kind::Local, scan_->dtype, width, BufferId()});
    const auto store = [&](Block& out, uint32_t v) {
      Compute c{.op = LoopOp::Store, .dtype = scan_->dtype, .args = {v}};
      c.buffer = sums;
      c.index = lane;
      out.push_back(Stmt{std::move(c)});
    };
    Block zero, body;
    const Inst identity = identity_of(scan_->reduce, scan_->dtype);
    Compute start{.op = LoopOp::Const, .dtype = scan_->dtype};
    start.number = identity.number;
    start.integer = identity.integer;
    store(zero, add(zero, std::move(start)));
    step(body, subst, [&](Block& out, uint32_t v) {
      Compute load{.op = LoopOp::Load, .dtype = scan_->dtype};
      load.buffer = sums;
      load.index = lane;
      const uint32_t before = add(out, std::move(load));
      const LoopOp fold = fold_of(scan_->reduce, scan_->dtype);
      const uint32_t sum = add(out, {.op = fold, .dtype = scan_->dtype, .args = {before, v}});
      store(out, sum);
      return sum;
    });
    Block out = wrap(ForKind::Vector, lane, size, std::move(zero));
    Block steps =
        wrap(ForKind::Serial, scanned_, wrap(ForKind::Vector, lane, size, std::move(body)));
    for (Stmt& s : steps) out.push_back(std::move(s));
    return out;
  }

  const Inst* scan_ = nullptr;
  const Inst* store_ = nullptr;
  std::vector<Axis> scanned_, others_, parallel_;
};

}  // namespace

bool is_scan(const Nest& n) {
  return std::any_of(n.body.begin(), n.body.end(),
                     [](const Inst& i) { return i.op == LoopOp::Scan; });
}

Kernel scan_kernel(const loops::Program& p, const Nest& n, std::string name) {
  return ScanKernel(p, n, std::move(name)).run();
}

}  // namespace oxy::schedule
