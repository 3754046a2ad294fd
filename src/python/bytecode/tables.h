// The two tables beside the instructions in CPython's own encoding: a location for every code unit
// (co_linetable; of 3.10 with lines only) and the ranges that are covered by exception handlers
// (co_exceptiontable).
// Units here are code units of two bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "python/bytecode/code.h"

namespace oxy::python {

// A location for each of `units` code units.
std::vector<Location> read_locations(std::string_view table, int first_line, int units);

// `locations` in order, each for `units` code units.
struct LocatedUnits {
  int units = 0;
  Location location;
};
std::string write_locations(const std::vector<LocatedUnits>& entries, int first_line);

// start, end and target are code units, not instructions.
std::vector<ExceptionRange> read_ranges(std::string_view table);
std::string write_ranges(const std::vector<ExceptionRange>& ranges);

}  // namespace oxy::python
