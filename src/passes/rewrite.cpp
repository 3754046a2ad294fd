// In-place rewriting of calls.
#include "passes/rewrite.h"

#include "ops/args.h"
#include "passes/replace.h"

namespace oxy::passes {
namespace {

bool row_applies(const ir::Graph& g, const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  return info && (info->element || info->reduction) && (!info->applies || info->applies(g, n));
}

bool same_outputs(const ir::Graph& g, const ir::Node& n, const ops::OpInfo& info,
                  const std::vector<ir::Arg>& args) {
  std::vector<ir::Type> types;
  if (!info.shape || !info.shape(ops::Args(g, args), types)) return false;
  if (types.size() != n.outputs.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!same_place(types[i], g.value(n.outputs[i]).type)) return false;
  }
  return true;
}

}  // namespace

bool rewrite(ir::Graph& g, ir::Node& n, std::string_view op, std::vector<ir::Arg> args) {
  if (n.target == op && n.args == args) return false;
  const ops::OpInfo* info = ops::find(op);
  if (!info || !same_outputs(g, n, *info, args)) return false;
  bool applied = row_applies(g, n);
  ir::Node before = n;
  n.target = op;
  n.args = std::move(args);
  if (applied && !row_applies(g, n)) {
    n = std::move(before);
    return false;
  }
  return true;
}

std::optional<int64_t> integer(const ir::Arg& a) {
  const ir::Expr* e = a.get_if<ir::Expr>();
  if (!e || !e->is_const()) return std::nullopt;
  return e->value();
}

std::optional<std::vector<int64_t>> integers(const ir::Arg& a) {
  std::vector<int64_t> out;
  if (std::optional<int64_t> one = integer(a)) return std::vector{*one};
  const std::vector<ir::Arg>* items = a.items();
  if (!items) return std::nullopt;
  for (const ir::Arg& x : *items) {
    std::optional<int64_t> v = integer(x);
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

const ir::TensorType* tensor_of(const ir::Graph& g, const ir::Arg& a) {
  if (!a.is_value()) return nullptr;
  const ir::Type& t = g.value(a.value()).type;
  return t.is_tensor() ? &t.tensor : nullptr;
}

}  // namespace oxy::passes
