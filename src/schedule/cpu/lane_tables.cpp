// Moves what depends on lanes alone into a loop in front of the rows.
#include <algorithm>
#include <map>
#include <set>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {
namespace {

bool is_lanes(const For& f) { return f.kind == ForKind::Vector || f.kind == ForKind::VectorReduce; }

// Loops around a Vector loop: the values that are set in them, the buffers that are written there,
// and the variables that are the same in all of them.
struct Rows {
  std::set<uint32_t> values, written;
  std::vector<Expr> fixed;
};

// The tables of one Vector loop.
class TableMaker {
 public:
  TableMaker(Kernel& k, For& loop, Expr places, const Rows& rows, int64_t most_bytes)
      : kernel_(k), loop_(loop), places_(places), rows_(rows), most_bytes_(most_bytes) {}

  // The loop that fills the tables, which `loop` reads from now on; nothing where that does not
  // pay.
  std::optional<Stmt> run() {
    for (const Stmt& s : loop_.body) {
      if (const Compute* c = std::get_if<Compute>(&s.v)) note(*c);
    }
    for (uint32_t v : used_in_rows()) choose(v);
    if (tables_.empty() || !pays()) return std::nullopt;
    const auto first = static_cast<uint32_t>(kernel_.buffers.size());
    for (uint32_t t : tables_) {
      kernel_.buffers.push_back({cat("table", kernel_.buffers.size()), KernelBuffer::Kind::Local,
                                 same_.at(t).dtype, places_, BufferId()});
    }
    Stmt fill{For{ForKind::Vector, loop_.var, loop_.size, {}, filling(first)}};
    loop_.body = reading(first);
    return fill;
  }

 private:
  // Whether a statement computes the same in each row. Loaded indices are checked in the rows.
  bool is_same(const Compute& c) const {
    if (!sets_value(c.op) || c.op == LoopOp::Symbol) return false;
    if (c.op == LoopOp::Load) {
      const KernelBuffer& b = kernel_.buffers[c.buffer];
      if (b.kind != KernelBuffer::Kind::Read && !b.is_local()) return false;
      if (rows_.written.contains(c.buffer)) return false;
    }
    auto is_known = [&](Expr s) {
      return s == loop_.var || !loops::is_variable(s) || std::ranges::count(rows_.fixed, s) > 0;
    };
    return std::ranges::all_of(symbols_of(c.index), is_known) &&
           std::ranges::all_of(
               c.args, [&](uint32_t a) { return !rows_.values.contains(a) || same_.contains(a); });
  }

  bool is_noted(const Compute& c) const { return sets_value(c.op) && same_.contains(c.value); }

  void note(const Compute& c) {
    if (!is_same(c)) return;
    const bool by_lane =
        sym::contains(c.index, loop_.var) ||
        std::ranges::any_of(c.args, [&](uint32_t a) { return by_lane_.contains(a); });
    same_.emplace(c.value, c);
    if (by_lane) by_lane_.insert(c.value);
  }

  // What statements that are not the same in each row take.
  std::set<uint32_t> used_in_rows() const {
    std::set<uint32_t> used;
    for (const Stmt& s : loop_.body) {
      if (const Accumulate* a = std::get_if<Accumulate>(&s.v)) used.insert(a->value);
      const Compute* c = std::get_if<Compute>(&s.v);
      if (c && !is_noted(*c)) used.insert(c->args.begin(), c->args.end());
    }
    return used;
  }

  // Operations for a value where the tables are there.
  int64_t cost(uint32_t v) const {
    if (!by_lane_.contains(v) || tables_.contains(v)) return 0;
    const Compute& c = same_.at(v);
    int64_t sum = cost_of(c.op);
    for (uint32_t a : c.args) sum += cost(a);
    return sum;
  }

  void choose(uint32_t v) {
    if (cost(v) <= tuning::table_cheap) return;
    const Compute& c = same_.at(v);
    // An index is kept as it was computed, in half the memory.
    const bool widens = c.op == LoopOp::Cast && c.dtype == DType::I64 &&
                        by_lane_.contains(c.args[0]) && same_.at(c.args[0]).dtype == DType::I32;
    tables_.insert(widens ? c.args[0] : v);
  }

  // Statements of the loop that are needed with `roots`, which come from elsewhere where `given`
  // has them.
  std::set<uint32_t> needed(std::set<uint32_t> roots, const std::set<uint32_t>& given) const {
    for (auto it = same_.rbegin(); it != same_.rend(); ++it) {
      if (!roots.contains(it->first) || given.contains(it->first)) continue;
      roots.insert(it->second.args.begin(), it->second.args.end());
    }
    return roots;
  }

  std::set<uint32_t> needed_in_rows() const { return needed(used_in_rows(), tables_); }

  bool pays() const {
    const std::set<uint32_t> kept = needed_in_rows();
    int64_t saved = 0, bytes = 0;
    for (const auto& [v, c] : same_) {
      if (!by_lane_.contains(v)) continue;
      if (tables_.contains(v)) bytes += *hinted(places_) * ir::byte_size(c.dtype);
      if (tables_.contains(v) || !kept.contains(v)) saved += cost_of(c.op);
    }
    return saved - static_cast<int64_t>(tables_.size()) >= tuning::table_least_saved &&
           bytes <= most_bytes_;
  }

  // The values of the tables, under names of their own, and their stores.
  Block filling(uint32_t buffer) {
    const std::set<uint32_t> wanted = needed(tables_, {});
    std::map<uint32_t, uint32_t> names;
    Block out;
    for (const Stmt& s : loop_.body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c || !is_noted(*c) || !wanted.contains(c->value)) continue;
      Compute copy = *c;
      copy.value = names[c->value] = kernel_.value_count++;
      for (uint32_t& a : copy.args) {
        if (const auto it = names.find(a); it != names.end()) a = it->second;
      }
      out.push_back(Stmt{std::move(copy)});
    }
    for (uint32_t t : tables_) {
      out.push_back(Stmt{Compute{.op = LoopOp::Store,
                                 .dtype = same_.at(t).dtype,
                                 .args = {names.at(t)},
                                 .buffer = buffer++,
                                 .index = loop_.var}});
    }
    return out;
  }

  Block reading(uint32_t first) const {
    const std::set<uint32_t> kept = needed_in_rows();
    Block out;
    for (const Stmt& s : loop_.body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c || !is_noted(*c)) {
        out.push_back(s);
      } else if (const auto t = tables_.find(c->value); t != tables_.end()) {
        const auto table = static_cast<uint32_t>(std::distance(tables_.begin(), t));
        out.push_back(Stmt{Compute{.value = c->value,
                                   .op = LoopOp::Load,
                                   .dtype = c->dtype,
                                   .buffer = first + table,
                                   .index = loop_.var}});
      } else if (kept.contains(c->value)) {
        out.push_back(s);
      }
    }
    return out;
  }

  Kernel& kernel_;
  For& loop_;
  const Expr places_;
  const Rows& rows_;
  const int64_t most_bytes_;
  std::map<uint32_t, Compute> same_;  // statements that compute the same in each row, by value
  std::set<uint32_t> by_lane_;        // of those, what differs by lane
  std::set<uint32_t> tables_;
};

class Tabulator {
 public:
  Tabulator(Kernel& k, const Machine& machine)
      : kernel_(k), most_bytes_(tuning::table_bytes(machine)) {}

  // `parallel`: the variables of the parallel loops around it.
  void run(Block& iteration, std::vector<Expr> parallel = {}) {
    for (size_t i = 0; i < iteration.size(); ++i) {
      For* f = std::get_if<For>(&iteration[i].v);
      if (!f || is_lanes(*f)) continue;
      // An epilogue's rows are parallel loops too, behind those over panels.
      const bool rows = is_epilogue(kernel_) && parallel.size() == panel_loops_;
      if (f->kind == ForKind::Parallel && !rows) {
        parallel.push_back(f->var);
        run(f->body, parallel);
        parallel.pop_back();
        continue;
      }
      Rows of{{}, {}, parallel};
      walk<Compute>(f->body, [&](const Compute& c) {
        if (sets_value(c.op)) of.values.insert(c.value);
        if (is_any(c.op, LoopOp::Store, LoopOp::StoreAdd)) of.written.insert(c.buffer);
      });
      walk<Result>(f->body, [&](const Result& r) { of.values.insert(r.value); });
      Block fills;
      in_rows(*f, 1, of, fills);
      iteration.insert(iteration.begin() + i, fills.begin(), fills.end());
      i += fills.size();
    }
  }

 private:
  // The Vector loops in `rows`, which run `times` times.
  void in_rows(For& rows, int64_t times, const Rows& of, Block& fills) {
    if (may_be_empty(rows.size)) return;
    times *= count_of(rows.size);
    for (Stmt& s : rows.body) {
      For* f = std::get_if<For>(&s.v);
      if (!f || is_tiled(*f)) continue;
      if (!is_lanes(*f)) {
        in_rows(*f, times, of, fills);
      } else if (times >= tuning::table_fewest_rows && is_fixed(f->size, of)) {
        const Expr places = most_iterations(f->size);
        if (places.is_const(0)) continue;
        if (auto fill = TableMaker(kernel_, *f, places, of, most_bytes_).run())
          fills.push_back(std::move(*fill));
      }
    }
  }

  static bool is_fixed(Expr size, const Rows& of) {
    return std::ranges::all_of(symbols_of(size), [&](Expr s) {
      return !loops::is_variable(s) || std::ranges::count(of.fixed, s) > 0;
    });
  }

  Kernel& kernel_;
  const int64_t most_bytes_;
  const size_t panel_loops_ = static_cast<size_t>(kernel_.annotations.get(kPanelLoops));
};

}  // namespace

void make_lane_tables(Kernel& k, const ScheduleOptions& options) {
  const size_t before = k.buffers.size();
  Tabulator(k, options.machine).run(k.body);
  if (k.buffers.size() != before) k.cost = iteration_cost(k);
}

}  // namespace oxy::schedule
