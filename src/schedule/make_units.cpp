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

// A reduction of nothing is a constant; what would be folded is never read.
loops::Loop without_fold(loops::Loop l) {
  for (Inst& i : l.body) {
    if (i.op == LoopOp::Reduce) i = identity_of(i.reduce, i.dtype);
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
