// Guards for people: what they say, and what was found instead.
#pragma once

#include <string>

#include "python/guards/guard.h"

namespace oxy::python {

// "type(L['x']) is int"; the guard is prepared (evaluate.h).
std::string guard_text(const SourceTable& sources, const Guard& guard);

// "L['x'] is a float, was an int": `value` was found (nullptr: nothing), and the guard does not hold.
std::string failure_text(const SourceTable& sources, const Guard& guard, PyObject* value);

}  // namespace oxy::python
