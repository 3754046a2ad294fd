// Which loops become one kernel.
//
// A group is a list of nests that run together at each iteration of common parallel axes; what is
// not common (the columns of a row that one nest folds and the next one rescales) each nest walks
// by itself inside the iteration. Two groups merge where that is right (no step between them must
// run in the middle; at a parallel iteration each reads only what the other wrote at the same
// iteration) and pays (they share memory traffic, enough parallel iterations remain, and they walk
// memory in the same direction). Only neighbours are tried: producer and consumer, and readers of
// one buffer.
#pragma once

#include "schedule/nest.h"
#include "schedule/schedule.h"

namespace oxy::schedule {

struct Group {
  std::vector<Nest> nests;  // in an order that respects their dependences
  std::vector<Axis>
      parallel;  // axes that every nest has; equal variables are the same axis throughout the group
};

struct ScheduledUnit {
  std::vector<Group> group;         // one, or none for a call
  std::vector<ScheduledStep> call;  // the other way round
};

// A unit of the input: one nest or one call, in program order. Axes of merged groups get
// common names among the program's variables.
std::vector<ScheduledUnit> fuse_nests(loops::Program& p, std::vector<ScheduledUnit> units,
                                      std::vector<FusionNote>& notes);

// All axes that are not reductions: the parallel axes of a nest alone.
Group group_of(Nest n);

}  // namespace oxy::schedule
