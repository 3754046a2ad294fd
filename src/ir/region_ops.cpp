// The table of ops with regions, and questions about their operands and results.
#include "ir/region_ops.h"

#include "support/check.h"

namespace oxy::ir {
namespace {

constexpr RegionOp kOps[] = {
    {"checkpoint", {"body", ""}, 0, 0, 0, false},
    {"cond", {"then", "else"}, 1, 0, 0, false},
    {"loop", {"body", ""}, 2, 1, 1, true},
    {"while_loop", {"while", "do"}, 0, 0, 0, true},
};

}  // namespace

const RegionOp* find_region_op(std::string_view name) {
  for (const RegionOp& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

const RegionOp& region_op(const Node& n) {
  const RegionOp* op = find_region_op(n.target);
  OXY_CHECK(op != nullptr, "no op with regions: ", n.target);
  return *op;
}

size_t result_count(const Graph& g) {
  if (g.stage != Stage::Torch) return g.outputs.size();
  const std::vector<Arg>* items = g.result.items();
  return items ? items->size() : 0;
}

size_t first_optional_operand(const Node& n) {
  const RegionOp& op = region_op(n);
  return op.carries ? result_count(n.regions.back()) - op.results : 0;
}

}  // namespace oxy::ir
