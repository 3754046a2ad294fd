// Constant folding over uniform tensors.
#include "passes/pass_list.h"

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::DType;
using ir::Graph;
using ir::Node;

// The number in the dtype in which ATen computes a result of dtype `d`.
std::optional<double> operand(const Graph& g, const Arg& a, DType d) {
  std::optional<Uniform> u = uniform_of(g, a);
  return u ? round_to(d == DType::BF16 ? DType::F32 : d, u->value) : std::nullopt;
}

// a + b and so on in dtype d: f32 and bf16 in f32 (exact in double before the one rounding),
// integers without wrapping.
std::optional<double> binary(std::string_view op, DType d, double a, double b) {
  if (d == DType::B8) return std::nullopt;
  double v = op == "add" ? a + b : op == "sub" ? a - b : a * b;
  if (d == DType::BF16) v = static_cast<double>(static_cast<float>(v));
  // An integer that overflows its dtype wraps in ATen: round_to refuses it.
  return round_to(d, v);
}

std::optional<double> fold_binary(const Graph& g, const Node& n, DType d) {
  std::string_view target = n.target, op;
  for (std::string_view name : {"add", "sub", "mul"}) {
    bool matches =
        target == cat("aten.", name, ".Tensor") || target == cat("aten.", name, ".Scalar");
    if (matches) op = name;
  }
  bool plain = n.args.size() == 2 || (n.args.size() == 3 && n.args[2] == Arg(1));
  if (op.empty() || !plain) return std::nullopt;
  std::optional<double> a = operand(g, n.args[0], d), b = operand(g, n.args[1], d);
  if (!a || !b) return std::nullopt;
  return binary(op, d, *a, *b);
}

bool is_cast(std::string_view target) {
  return target == "aten._to_copy.default" || target == "aten.to.dtype" ||
         target == "prims.convert_element_type.default";
}

// What moves elements or converts them, one by one.
bool moves_elements(const Graph& g, const Node& n) {
  bool view = is_view(n) && n.target != "aten.view.dtype";
  return tensor_of(g, n.arg(0)) && (view || is_cast(n.target) || n.target == "aten.clone.default");
}

std::optional<double> fold_unary(const Graph& g, const Node& n, DType d) {
  bool negates = n.target == "aten.neg.default";
  if (!negates && !moves_elements(g, n)) return std::nullopt;
  std::optional<Uniform> u = uniform_of(g, n.arg(0));
  if (!u || u->dtype == DType::None) return std::nullopt;
  return round_to(d, negates ? -u->value : u->value);
}

Arg number(DType d, double v) {
  if (d == DType::B8) return v != 0;
  if (ir::is_integral(d, false)) return Arg(static_cast<int64_t>(v));
  return v;
}

bool fold(Graph& g, Node& n) {
  if (n.outputs.size() != 1 || !g.value(n.outputs[0]).type.is_tensor()) return false;
  const ir::TensorType& t = g.tensor_type(n.outputs[0]);
  std::optional<double> v = fold_unary(g, n, t.dtype);
  if (!v) v = fold_binary(g, n, t.dtype);
  if (!v) return false;
  return rewrite(g, n, "aten.full.default",
                 {list_of(t.sizes), number(t.dtype, *v), t.dtype, ir::None{}, t.device});
}

}  // namespace

bool fold_constants(Graph& g) {
  bool changed = false;
  for (ir::NodeId id : g.order()) {
    Node& n = g.node(id);
    bool call = !n.dead && n.kind == ir::NodeKind::CallOp;
    // fold() makes calls of full, which it does not fold again.
    if (call && n.target != "aten.full.default") changed |= fold(g, n);
  }
  return changed;
}

}  // namespace oxy::passes
