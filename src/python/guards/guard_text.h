// Guards for people: what they say, and what was found instead.
#pragma once

#include <string>

#include "python/guards/guard_walk.h"

namespace oxy::python {

// "type(L['x']) is int": guard `index` of the walk.
std::string guard_text(const GuardWalk& walk, size_t index);

// All of them with their kinds, below the user's stack that asked for them.
std::string guard_log(const GuardWalk& walk);

// A line a frame, innermost last.
std::string stack_text(const UserStack& stack);

// "L['x'] is a float, was an int": the guard does not hold for these objects (nullptr: nothing was
// found).
std::string failure_text(const GuardWalk& walk, size_t index, const GuardWalk::Values& values);

}  // namespace oxy::python
