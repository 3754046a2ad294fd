// Gathers of rows at places that a table has: how near to each other these are is the same for all
// rows, so it is found out once, in front of them, and not at each gather.
//
// A table is an i32 Local buffer that one Vector loop fills; a gather's index is its entry of the
// lane and something that all lanes share. The loop of the gather runs over the whole table, so
// that a row's memory between the smallest and the largest place may be read.
#pragma once

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "schedule/kernel.h"

namespace oxy::codegen::cpp {

struct TableGathers {
  struct Place {
    uint32_t entry = 0;    // the value loaded from the table
    sym::Expr shared = 0;  // what comes to it
  };
  std::unordered_map<const schedule::Compute*, Place> places;  // by gather
  std::unordered_set<const schedule::Compute*> entries;        // the loads of the tables' values
  std::set<uint32_t> tables;                                   // their buffers
  std::unordered_map<const schedule::For*, std::set<uint32_t>> loops;  // by loop with such gathers
};

// Of tables that have at least two vectors of `lanes` entries.
TableGathers find_table_gathers(const schedule::Kernel& kernel, int lanes);

}  // namespace oxy::codegen::cpp
