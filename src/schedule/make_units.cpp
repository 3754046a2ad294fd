// Makes a unit of each step; a reduction of nothing becomes a constant.
#include "schedule/make_units.h"

#include <algorithm>

#include "loops/body_writer.h"
#include "schedule/fold.h"
#include "schedule/split_reductions.h"

namespace oxy::schedule {
namespace {

bool is_empty(const loops::Loop& l, bool reduction) {
  return std::any_of(l.axes.begin(), l.axes.end(),
                     [&](const Axis& a) { return a.size.is_const(0) && a.reduction == reduction; });
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
    std::vector<Expr> symbols;
    for (Expr e : i.index) sym::collect_symbols(e, symbols);
    out[k] = std::ranges::any_of(i.args, [&](uint32_t a) { return out[a]; }) ||
             std::ranges::any_of(
                 symbols, [&](Expr s) { return std::ranges::find(bound, s) != bound.end(); });
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

ScheduledUnit unit_of(Nest n) {
  ScheduledUnit u;
  u.group.push_back(group_of(std::move(n)));
  return u;
}

}  // namespace

std::vector<ScheduledUnit> make_units(const loops::Program& p) {
  std::vector<ScheduledUnit> units;
  for (const loops::Step& s : p.steps) {
    if (const auto* e = std::get_if<loops::ExternStep>(&s)) {
      units.push_back({{}, {ExternCall{*e}}});
      continue;
    }
    if (const auto* c = std::get_if<loops::ContractionStep>(&s)) {
      units.push_back({{}, {ContractionCall{*c, {}}}});
      continue;
    }
    const auto& l = std::get<loops::Loop>(s);
    if (is_empty(l, false)) continue;
    units.push_back(unit_of(flatten(p, is_empty(l, true) ? without_fold(l) : l)));
  }
  return units;
}

void split_units(loops::Program& p, std::vector<ScheduledUnit>& units) {
  std::vector<ScheduledUnit> out;
  for (ScheduledUnit& u : units) {
    auto parts = u.group.empty() ? std::nullopt : split_reduction(p, u.group[0].nests[0]);
    if (!parts) {
      out.push_back(std::move(u));
      continue;
    }
    out.push_back(unit_of(std::move(parts->first)));
    out.push_back(unit_of(std::move(parts->second)));
  }
  units = std::move(out);
}

}  // namespace oxy::schedule
