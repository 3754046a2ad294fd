// Makes a unit of each step; a reduction of nothing becomes a constant.
#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/pass_list.h"

namespace oxy::schedule {
namespace {

bool is_empty(const loops::Loop& l, bool reduction) {
  return std::ranges::any_of(
      l.axes, [&](const Axis& a) { return a.size.is_const(0) && a.reduction == reduction; });
}

// Whether each instruction depends on a variable that is folded.
std::vector<bool> folded(const loops::Loop& l) {
  std::vector<Expr> bound;  // the axes' variables and what positions in them bind
  for (const Axis& a : l.axes) {
    if (a.reduction) bound.push_back(a.var);
  }
  std::vector<bool> out(l.body.size());
  for (size_t k = 0; k < l.body.size(); ++k) {
    const Inst& i = l.body[k];
    if (i.op == LoopOp::Reduce) continue;
    auto depends = [&](Expr e) {
      return std::ranges::any_of(bound, [&](Expr b) { return sym::contains(e, b); });
    };
    out[k] = std::ranges::any_of(i.args, [&](uint32_t a) { return out[a]; }) ||
             std::ranges::any_of(i.index, depends);
    if (i.op == LoopOp::Symbol && out[k]) bound.push_back(i.index[0]);
  }
  return out;
}

// A reduction of nothing is a constant; what would be folded is neither read nor checked.
loops::Loop without_fold(loops::Loop l) {
  const std::vector<bool> gone = folded(l);
  for (size_t k = 0; k < l.body.size(); ++k) {
    Inst& i = l.body[k];
    if (i.op == LoopOp::Reduce) i = identity_of(i.reduce, i.dtype);
    if (i.op == LoopOp::Check && gone[k]) i = Inst{.op = LoopOp::Const, .dtype = DType::I64};
  }
  std::erase_if(l.axes, [](const Axis& a) { return a.reduction; });
  loops::remove_dead(l.body);
  return l;
}

}  // namespace

void make_units(Draft& d) {
  const loops::Program& p = d.schedule.program;
  for (const loops::Step& s : p.steps) {
    if (const auto* e = std::get_if<loops::ExternStep>(&s)) {
      d.units.push_back({{}, {ExternCall{*e}}});
    } else if (const auto* c = std::get_if<loops::ContractionStep>(&s)) {
      d.units.push_back({{}, {ContractionCall{*c, {}}}});
    } else if (const auto& l = std::get<loops::Loop>(s); !is_empty(l, false)) {
      d.units.push_back({{group_of(flatten(p, is_empty(l, true) ? without_fold(l) : l))}, {}});
    }
  }
}

}  // namespace oxy::schedule
