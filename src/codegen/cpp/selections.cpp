// Selections of which an operand is long and nothing else needs it: it is computed where a lane
// takes it, behind a branch. Where all lanes take the same one, it need not be so long.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "schedule/cost.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {

namespace {

bool can_move(const Compute& c) {
  return !schedule::touches_memory(c.op) &&
         !schedule::is_any(c.op, LoopOp::Check, LoopOp::Symbol, LoopOp::Index, LoopOp::Const);
}

bool is_masked_load(const Compute& c) { return c.op == LoopOp::Load && !c.args.empty(); }

class SelectionFinder {
 public:
  explicit SelectionFinder(const schedule::Kernel& kernel) : uses_(kernel.value_count) {
    walk(kernel.body, [&](const Stmt& s) {
      if (const Compute* c = std::get_if<Compute>(&s.v)) {
        for (uint32_t a : c->args) ++uses_[a];
        selects_ |= c->op == LoopOp::Where;
      } else if (const Accumulate* a = std::get_if<Accumulate>(&s.v)) {
        ++uses_[a->value];
      }
    });
  }

  Selections run(const Block& body) {
    if (selects_) block(body);
    return std::move(found_);
  }

 private:
  void block(const Block& body) {
    std::vector<const Compute*> before;
    std::unordered_set<uint32_t> inside;  // values of this block
    for (const Stmt& s : body) {
      if (const For* loop = std::get_if<For>(&s.v)) block(loop->body);
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c) continue;
      if (c->op == LoopOp::Symbol) computed_.insert(c->index);
      if (c->op == LoopOp::Where && c->args[1] != c->args[2]) {
        const bool uniform = !inside.contains(c->args[0]);
        Selections::Operands operands{operand(c->args[1], before, uniform),
                                      operand(c->args[2], before, uniform)};
        if (!operands.held.empty() || !operands.other.empty())
          found_.operands.emplace(c, std::move(operands));
      }
      if (schedule::sets_value(c->op)) inside.insert(c->value);
      const bool constant = c->op == LoopOp::Const || (can_move(*c) && !c->args.empty());
      if (constant &&
          std::ranges::all_of(c->args, [&](uint32_t a) { return constants_.contains(a); }))
        constants_.insert(c->value);
      before.push_back(c);
    }
  }

  bool is_gather(const Compute& c) const {
    return c.op == LoopOp::Load && std::ranges::any_of(schedule::symbols_of(c.index), [&](Expr s) {
             return computed_.contains(s);
           });
  }

  // What is computed for `value` alone, which has one use, in order; nothing where it is short.
  // Loads move past no store.
  std::vector<const Compute*> operand(uint32_t value, const std::vector<const Compute*>& before,
                                      bool uniform) {
    if (uses_[value] != 1) return {};
    std::vector<const Compute*> own;
    std::unordered_map<uint32_t, int> used{{value, 1}};
    int cost = 0, functions = 0;
    bool loads = true;
    for (const Compute* c : before | std::views::reverse) {
      loads &= c->op != LoopOp::Store && c->op != LoopOp::StoreAdd;
      const auto it = schedule::sets_value(c->op) ? used.find(c->value) : used.end();
      if (it == used.end() || it->second != uses_[c->value]) continue;
      if (constants_.contains(c->value)) continue;
      const bool gather = is_gather(*c);
      if (!can_move(*c) && !(loads && (gather || (uniform && is_masked_load(*c))))) continue;
      own.push_back(c);
      const int one = gather ? tuning::select_by_branch_gather : schedule::cost_of(c->op);
      cost += one;
      functions += gather || one >= tuning::select_by_branch ? one : 0;
      for (uint32_t a : c->args) ++used[a];
    }
    // Where lanes differ, a row of short operations costs less than its branches.
    const bool wide = own.empty() || own.front()->dtype == DType::F64;
    const int least = uniform ? tuning::select_by_uniform_branch
                      : wide  ? tuning::select_by_branch_f64
                              : tuning::select_by_branch;
    if ((uniform ? cost : functions) < least) return {};
    // Operands of selections among them stand behind branches of their own.
    std::erase_if(own, [&](const Compute* c) { return !found_.moved.insert(c).second; });
    std::ranges::reverse(own);
    return own;
  }

  std::vector<int> uses_;                   // by value
  std::unordered_set<Expr> computed_;       // symbols that are loaded or computed
  std::unordered_set<uint32_t> constants_;  // values of constants alone, which go before the loop
  bool selects_ = false;
  Selections found_;
};

}  // namespace

Selections find_selections(const schedule::Kernel& kernel) {
  return SelectionFinder(kernel).run(kernel.body);
}

// Whether lanes differ in what it gives: in its mask, in an operand that stands in front of it, or
// in one that is written with it.
bool KernelWriter::selects_by_lane(const Compute& c, const Scope& scope) const {
  if (c.op == LoopOp::Load && varies(c.index, scope)) return true;
  const auto known = [&](uint32_t a) { return numbers_[a] >= 0 && values_[a].vector; };
  if (std::ranges::any_of(c.args, known)) return true;
  const auto it = selections_.operands.find(&c);
  if (it == selections_.operands.end()) return false;
  const auto differs = [&](const Compute* o) { return selects_by_lane(*o, scope); };
  return std::ranges::any_of(it->second.held, differs) ||
         std::ranges::any_of(it->second.other, differs);
}

void KernelWriter::write_selection(const Compute& c, const Selections::Operands& operands,
                                   const Scope& scope) {
  const Scope used = scope.vector() && selects_by_lane(c, scope) ? scope : Scope{};
  OperatorText text = operators(used);
  const bool both = !operands.held.empty() && !operands.other.empty();
  const bool uniform = !value(c.args[0]).vector;
  const std::string mask = uniform ? value(c.args[0]).name : operand(c.args[0], used).text;
  const std::string initial = both ? text.splat(text.constant(0, 0, c.dtype), c.dtype)
                                   : operand(c.args[operands.held.empty() ? 1 : 2], used).text;
  const Value result = define(c, used.vector());
  out_.line(value_type_name(c.dtype, used.lanes), ' ', result.name, " = ", initial, ';');
  // The lanes that take an operand, of those that take the selection itself.
  const Taken within = taken_.lanes == used.lanes ? taken_ : Taken{};
  const auto branch = [&](const std::vector<const Compute*>& own, bool held) {
    if (own.empty()) return;
    if (uniform) {
      out_.open("if (", held ? "" : "!", mask, ") ");
      for (const Compute* o : own)
        if (!hoisted_.contains(o)) write_compute(*o, scope);
      out_.line(result.name, " = ", operand(c.args[held ? 1 : 2], used).text, ';');
      out_.close();
      return;
    }
    std::string taken = cat(held ? "" : used.vector() ? "~" : "!", mask);
    if (!within.mask.empty()) {
      const std::string name = cat(result.name, held ? "_held" : "_other");
      out_.line("const ", prelude_.type(used.vector() ? "i32" : "b8", used.lanes), ' ', name, " = ",
                within.mask, " & ", taken, ';');
      taken = name;
    }
    out_.open("if (", prelude_.fn("any", used.vector() ? "i32" : "b8", used.lanes), '(', taken,
              ")) ");
    const Taken before = std::exchange(taken_, Taken{taken, used.lanes});
    for (const Compute* o : own)
      if (!hoisted_.contains(o)) write_compute(*o, scope);
    taken_ = before;
    const std::string some = operand(c.args[held ? 1 : 2], used).text;
    out_.line(result.name, " = ",
              text.select(mask, held ? some : result.name, held ? result.name : some, c.dtype),
              ';');
    out_.close();
  };
  branch(operands.held, true);
  branch(operands.other, false);
}

}  // namespace oxy::codegen::cpp
