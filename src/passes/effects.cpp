// Traits of nodes.
#include "passes/effects.h"

#include "ops/op_table.h"

namespace oxy::passes {
namespace {

// Ops of these namespaces do what their name says; every random one and every one with an effect has a row.
bool is_known_space(std::string_view target) {
  return target.starts_with("aten.") || target.starts_with("prims.");
}

}  // namespace

bool is_removable(const ir::Node& n) {
  if (n.kind != ir::NodeKind::CallOp || n.outputs.empty()) return false;
  if (const ops::OpInfo* info = ops::find(n)) return !info->has(ops::Random | ops::Effect);
  return true;
}

bool is_mergeable(const ir::Node& n) {
  if (!is_removable(n)) return false;
  const ops::OpInfo* info = ops::find(n);
  if (info == nullptr) return is_known_space(n.target);
  // A creation op that no loop can express leaves its memory as it finds it.
  return !info->has(ops::Creation) || info->element != nullptr;
}

}  // namespace oxy::passes
