// The ops that own regions, a row each. See graph.h for what a region is.
//
//   cond(pred, operands...) then else         one region runs: the first where pred holds
//   while_loop(carried..., others...) while do  as long as the first gives true, the second gives
//                                               what is carried on
//   loop(trips, condition, carried..., others...) body   TorchScript's: at most so many trips,
//                                             while the condition holds; the body gets the trip's
//                                             number too, and gives the next condition too
//   checkpoint(operands...) body              runs once; a backward graph may run it again instead
//                                             of keeping its values
#pragma once

#include <array>
#include <string_view>

#include "ir/graph.h"

namespace oxy::ir {

struct RegionOp {
  std::string_view name;
  std::array<std::string_view, 2> regions;  // their words in the text; empty where there is none
  size_t arguments;   // of the node, in front of the operands, which every region gets
  size_t parameters;  // of a region, in front of the operands
  size_t results;     // of the last region, in front of what the node gives
  bool carries;       // the first operands are the first values of what the node gives

  size_t region_count() const { return regions[1].empty() ? 1 : 2; }
};
const RegionOp* find_region_op(std::string_view name);
const RegionOp& region_op(const Node& n);  // of a node of kind Region

// How many results a graph has, in either stage.
size_t result_count(const Graph& g);
// Operands that a region need not read: all but those that are carried.
size_t first_optional_operand(const Node& n);

}  // namespace oxy::ir
