// Traits of nodes.
#include "passes/effects.h"

#include <algorithm>

#include "ops/op_table.h"

namespace oxy::passes {
namespace {

// Ops of these namespaces do what their name says; every random one and every one with an effect
// has a row.
bool is_known_space(std::string_view target) {
  return target.starts_with("aten.") || target.starts_with("prims.");
}

bool has_no_effect(const ir::Graph& region) {
  return std::ranges::all_of(region.order(), [&](ir::NodeId id) {
    const ir::Node& n = region.node(id);
    return n.dead || n.kind == ir::NodeKind::Input || is_removable(n);
  });
}

}  // namespace

bool is_removable(const ir::Node& n) {
  if (n.outputs.empty()) return false;
  if (n.kind == ir::NodeKind::Region) return std::ranges::all_of(n.regions, has_no_effect);
  if (n.kind != ir::NodeKind::CallOp) return false;
  if (const ops::OpInfo* info = ops::find(n)) return !info->has(ops::Random | ops::Effect);
  return true;
}

bool is_mergeable(const ir::Node& n) {
  if (n.kind == ir::NodeKind::Region || !is_removable(n)) return false;
  const ops::OpInfo* info = ops::find(n);
  if (info == nullptr) return is_known_space(n.target);
  // A creation op that no loop can express leaves its memory as it finds it.
  return !info->has(ops::Creation) || info->element != nullptr;
}

}  // namespace oxy::passes
