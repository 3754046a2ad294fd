// Cuts a loop where a comparison changes or an index wraps around, and folds what is constant in
// each piece.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {

namespace {

// value = (loop variable < bound), or its opposite.
struct Test {
  Expr bound = 0;
  bool below = true;
};

// A remainder is `below` while the loop variable lies below the bound, and `behind` from there on.
struct Wrap {
  Expr bound = 0, below = 0, behind = 0;
};

bool is_at_most(Expr a, Expr b) { return sym::range_of(b - a).lo >= 0; }

// It can be a bound of a loop: no number of elements reaches it.
bool is_moderate(int64_t n) {
  constexpr int64_t kMost = Expr::kMaxConst / 4;
  return -kMost <= n && n <= kMost;
}

// Values that are the same at all iterations: constants, and sizes.
using Integers = std::unordered_map<uint32_t, Expr>;

class LoopSplitter {
 public:
  LoopSplitter(Kernel& k, const Integers& integers, const For& loop,
               loops::VariableScope& variables)
      : kernel_(k), integers_(integers), loop_(loop), variables_(variables) {}

  // The loops in the place of this one; empty where it stays as it is.
  Block run() {
    if (!find_tests()) return {};
    if (!order_bounds()) {
      wraps_.clear();  // those of comparisons alone may have an order
      if (!order_bounds()) return {};
    }
    const size_t count = bounds_.size() + 1;
    if ((count < 2 && constants_.empty()) || count > tuning::most_ranges ||
        count * loop_.body.size() > tuning::most_range_statements)
      return {};
    Block out;
    Expr begin = 0;
    for (size_t i = 0; i < count; ++i) {
      // Bounds that vary may lie outside of the loop, and pieces be empty.
      const Expr end =
          i < bounds_.size() ? sym::min(sym::max(bounds_[i], 0), loop_.size) : loop_.size;
      out.push_back(Stmt{range(begin, end, i)});
      begin = end;
    }
    return out;
  }

 private:
  // Of the body's comparisons, those that a range can decide. False where the loop is no candidate.
  bool find_tests() {
    if (loop_.kind != ForKind::Vector || !loops::is_size(loop_.size)) return false;
    std::unordered_map<uint32_t, Expr> ahead;  // values that are the variable plus a size
    for (const Stmt& s : loop_.body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c) return false;
      if (!is_tiled(loop_)) find_wraps(c->index);  // a tile stays whole
      if (c->op == LoopOp::Index) {
        Expr rest = c->index - loop_.var;
        if (loops::is_size(rest)) ahead[c->value] = rest;
      } else if (const std::optional<bool> constant = compared(*c)) {
        constants_[c->value] = *constant;
      } else if (!is_tiled(loop_) &&
                 is_any(c->op, LoopOp::Lt, LoopOp::Ge, LoopOp::Le, LoopOp::Gt)) {
        auto variable = ahead.find(c->args[0]);
        auto constant = integers_.find(c->args[1]);
        if (variable == ahead.end() || constant == integers_.end()) continue;
        bool inclusive = is_any(c->op, LoopOp::Le, LoopOp::Gt);
        tests_[c->value] = {constant->second - variable->second + (inclusive ? 1 : 0),
                            is_any(c->op, LoopOp::Lt, LoopOp::Le)};
      }
    }
    return !tests_.empty() || !wraps_.empty() || !constants_.empty();
  }

  // What a comparison of two constants comes to.
  std::optional<bool> compared(const Compute& c) const {
    if (c.args.size() != 2) return std::nullopt;
    const auto a = integers_.find(c.args[0]), b = integers_.find(c.args[1]);
    if (a == integers_.end() || b == integers_.end() || !a->second.is_const() ||
        !b->second.is_const())
      return std::nullopt;
    const int64_t gap = a->second.value() - b->second.value();
    return schedule::compared(c.op, gap, gap);
  }

  // Remainders that go back to 0 at most once in the loop, as those of a roll, in sums and
  // products.
  void find_wraps(Expr e) {
    if (is_linear(e))
      for (const Expr part : e.operands()) find_wraps(part);
    if (e.is_const() || e.kind() != sym::Kind::Mod) return;
    const Expr of = e.operands()[0], n = e.operands()[1], rest = of - loop_.var;
    if (!loops::is_size(rest) || !loops::is_size(n)) return;
    for (const Expr end : {Expr(0), n})
      if (is_at_most(end - n, rest) && is_at_most(rest + loop_.size, end + n))
        wraps_.insert_or_assign(e, Wrap{end - rest, of - end + n, of - end});
  }

  static bool is_linear(Expr e) {
    return !e.is_const() && (e.kind() == sym::Kind::Add || e.kind() == sym::Kind::Mul);
  }

  // The index in the range of this number.
  Expr unwrapped(Expr e, size_t range) const {
    if (const auto wrap = wraps_.find(e); wrap != wraps_.end())
      return is_below(wrap->second.bound, range) ? wrap->second.below : wrap->second.behind;
    if (!is_linear(e)) return e;
    const bool sum = e.kind() == sym::Kind::Add;
    Expr out = sum ? 0 : 1;
    for (const Expr part : e.operands())
      out = sum ? out + unwrapped(part, range) : out * unwrapped(part, range);
    return out;
  }

  // Bounds inside the loop, in an order that holds at all sizes; false where there is none.
  bool order_bounds() {
    bounds_.clear();
    std::set<Expr> distinct;
    auto add = [&](Expr bound) {
      if (!is_at_most(bound, 0) && !is_at_most(loop_.size, bound)) distinct.insert(bound);
    };
    for (const auto& [value, test] : tests_) add(test.bound);
    for (const auto& [mod, wrap] : wraps_) add(wrap.bound);
    for (const Expr b : distinct) {
      const auto at =
          std::ranges::find_if(bounds_, [&](Expr other) { return is_at_most(b, other); });
      if (std::any_of(bounds_.begin(), at, [&](Expr other) { return !is_at_most(other, b); }))
        return false;
      bounds_.insert(at, b);
    }
    return true;
  }

  // Whether the variable lies below the bound in the range of this number.
  bool is_below(Expr bound, size_t range) const {
    const auto at = std::ranges::find(bounds_, bound);
    if (at == bounds_.end()) return !is_at_most(bound, 0);
    return static_cast<size_t>(at - bounds_.begin()) >= range;
  }

  For range(Expr begin, Expr end, size_t number) {
    For out{ForKind::Vector, variables_.get('p', end - begin), end - begin, loop_.annotations, {}};
    range_ = number;
    moved_ = {{loop_.var, out.var + begin}};
    known_ = constants_;
    value_.clear();
    for (const auto& [value, test] : tests_)
      known_[value] = is_below(test.bound, number) == test.below;
    for (const Stmt& s : loop_.body) copy(std::get<Compute>(s.v), out.body);
    remove_unused(out.body);
    return out;
  }

  std::optional<bool> known(uint32_t value) const {
    auto it = known_.find(value);
    return it == known_.end() ? std::nullopt : std::optional(it->second);
  }

  // What a logic operation on b8 comes to where operands are known; `same` is set where it is its
  // other operand.
  std::optional<bool> folded(const Compute& c, std::optional<uint32_t>& same) const {
    if (c.dtype != DType::B8 || !is_any(c.op, LoopOp::Not, LoopOp::And, LoopOp::Or))
      return std::nullopt;
    std::optional<bool> a = known(c.args[0]);
    if (c.op == LoopOp::Not) return a ? std::optional(!*a) : std::nullopt;
    const bool decides = c.op == LoopOp::Or;
    std::optional<bool> b = known(c.args[1]);
    if ((a && *a == decides) || (b && *b == decides)) return decides;
    if (a && b) return !decides;
    if (a || b) same = a ? c.args[1] : c.args[0];
    return std::nullopt;
  }

  // The value's number in the new loop; of a comparison that is known, a constant.
  uint32_t operand(uint32_t value, Block& out) {
    if (auto it = value_.find(value); it != value_.end()) return it->second;
    std::optional<bool> constant = known(value);
    if (!constant) return value;  // from outside the loop
    const uint32_t made = value_[value] = kernel_.value_count++;
    out.push_back(Stmt{Compute{.value = made,
                               .op = LoopOp::Const,
                               .dtype = DType::B8,
                               .number = *constant ? 1.0 : 0.0,
                               .integer = *constant}});
    return made;
  }

  void take(const Compute& c, uint32_t from, Block& out) {
    if (std::optional<bool> constant = known(from))
      known_[c.value] = *constant;
    else
      value_[c.value] = operand(from, out);
  }

  void copy(const Compute& c, Block& out) {
    if (tests_.contains(c.value) || constants_.contains(c.value)) return;
    if (c.op == LoopOp::Where) {
      if (std::optional<bool> mask = known(c.args[0])) return take(c, c.args[*mask ? 1 : 2], out);
    }
    std::optional<uint32_t> same;
    if (std::optional<bool> constant = folded(c, same)) {
      known_[c.value] = *constant;
      return;
    }
    if (same) return take(c, *same, out);
    // A loaded index of this range: each range binds symbols of its own.
    if (c.op == LoopOp::Symbol) moved_.emplace_back(c.index, another_index(variables_, c.index));
    Compute made = c;
    made.index = replace(unwrapped(c.index, range_), moved_);
    if (c.op == LoopOp::Load && !c.args.empty()) {
      if (std::optional<bool> mask = known(c.args[0])) {
        if (!*mask) return take(c, c.args[1], out);
        made.args.clear();
      }
    }
    for (uint32_t& a : made.args) a = operand(a, out);
    if (sets_value(c.op)) value_[c.value] = made.value = kernel_.value_count++;
    out.push_back(Stmt{std::move(made)});
  }

  // A check of a constant that holds: where nothing is loaded, the inliner checks a 0 instead.
  bool is_idle(const Compute& c) const {
    if (c.op != LoopOp::Check) return false;
    auto constant = integers_.find(c.args[0]);
    return constant != integers_.end() && is_at_most(0, constant->second) &&
           is_at_most(constant->second + 1, c.index);
  }

  void remove_unused(Block& body) const {
    std::unordered_set<uint32_t> used;
    std::unordered_set<Expr> named;
    Block kept;
    for (size_t i = body.size(); i-- > 0;) {
      Compute& c = std::get<Compute>(body[i].v);
      bool needed = used.contains(c.value);
      if (c.op == LoopOp::Symbol)
        needed = needed || named.contains(c.index);
      else if (is_any(c.op, LoopOp::Store, LoopOp::StoreAdd))
        needed = true;
      else if (c.op == LoopOp::Check)
        needed = !is_idle(c);
      if (!needed) continue;
      used.insert(c.args.begin(), c.args.end());
      if (c.op != LoopOp::Symbol) {
        for (Expr s : symbols_of(c.index)) named.insert(s);
      }
      kept.push_back(std::move(body[i]));
    }
    std::ranges::reverse(kept);
    body = std::move(kept);
  }

  Kernel& kernel_;
  const Integers& integers_;
  const For& loop_;
  loops::VariableScope& variables_;
  std::unordered_map<uint32_t, Test> tests_;
  std::unordered_map<uint32_t, bool> constants_;  // comparisons that are so at each iteration
  std::unordered_map<Expr, Wrap> wraps_;
  std::vector<Expr> bounds_;  // ascending
  // Of the range being written.
  size_t range_ = 0;
  Substitution moved_;
  std::unordered_map<uint32_t, bool> known_;
  std::unordered_map<uint32_t, uint32_t> value_;
};

class Splitter {
 public:
  Splitter(Kernel& k, loops::Variables& variables) : kernel_(k), variables_(variables) {
    walk<For>(k.body, [&](const For& f) { variables_.take(f.var); });
    walk<Compute>(k.body, [&](const Compute& c) {
      if (c.op == LoopOp::Const && c.dtype == DType::I64 && is_moderate(c.integer))
        integers_[c.value] = c.integer;
      if (c.op == LoopOp::Index && loops::is_size(c.index)) integers_[c.value] = c.index;
      if (c.op == LoopOp::Symbol) variables_.take(c.index);
    });
  }

  void run() {
    split(kernel_.body);
    if (changed_) kernel_.cost = iteration_cost(kernel_);
  }

 private:
  void split(Block& block) {
    for (size_t i = 0; i < block.size(); ++i) {
      For* loop = std::get_if<For>(&block[i].v);
      if (!loop) continue;
      split(loop->body);
      Block ranges = LoopSplitter(kernel_, integers_, *loop, variables_).run();
      if (ranges.empty()) continue;
      changed_ = true;
      block.insert(block.erase(block.begin() + i), std::make_move_iterator(ranges.begin()),
                   std::make_move_iterator(ranges.end()));
      i += ranges.size() - 1;
    }
  }

  Kernel& kernel_;
  loops::VariableScope variables_;
  Integers integers_;
  bool changed_ = false;
};

}  // namespace

void split_ranges(Kernel& k, loops::Variables& variables) { Splitter(k, variables).run(); }

}  // namespace oxy::schedule
