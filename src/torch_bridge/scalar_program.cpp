// A walk from the value to what it is computed of.
#include "torch_bridge/scalar_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "support/check.h"

namespace oxy::bridge {
namespace {

constexpr size_t kMostSteps = 200;
// Integers are computed with in doubles: so many steps on so large numbers stay exact.
constexpr double kLargestConstant = 0x1p40;

struct Row {
  std::string_view name;
  ScalarOp op;
  uint8_t operands;
};
constexpr Row kRows[] = {
    {"add", ScalarOp::Add, 2},
    {"sub", ScalarOp::Sub, 2},
    {"rsub", ScalarOp::Sub, 2},  // with its operands exchanged
    {"mul", ScalarOp::Mul, 2},
    {"div", ScalarOp::Div, 2},
    {"pow", ScalarOp::Pow, 2},
    {"lt", ScalarOp::Less, 2},
    {"le", ScalarOp::LessEqual, 2},
    {"gt", ScalarOp::Greater, 2},
    {"ge", ScalarOp::GreaterEqual, 2},
    {"eq", ScalarOp::Equal, 2},
    {"ne", ScalarOp::NotEqual, 2},
    {"logical_not", ScalarOp::Not, 1},
    {"neg", ScalarOp::Neg, 1},
    {"reciprocal", ScalarOp::Reciprocal, 1},
    {"sqrt", ScalarOp::Sqrt, 1},
    {"_is_all_true", ScalarOp::Copy, 1},  // of one element, as what follows
    {"_is_any_true", ScalarOp::Copy, 1},
    {"all", ScalarOp::Copy, 1},
    {"any", ScalarOp::Copy, 1},
    {"min", ScalarOp::Copy, 1},
    {"max", ScalarOp::Copy, 1},
    {"expand", ScalarOp::Copy, 1},
    {"unsqueeze", ScalarOp::Copy, 1},
    {"squeeze", ScalarOp::Copy, 1},
    {"_to_copy", ScalarOp::Copy, 1},
    {"clone", ScalarOp::Copy, 1},
    {"detach", ScalarOp::Copy, 1},
    {"alias", ScalarOp::Copy, 1},
    {"view", ScalarOp::Copy, 1},
    {"reshape", ScalarOp::Copy, 1},
};

const Row* row_of(std::string_view target) {
  constexpr std::string_view kAten = "aten.";
  if (!target.starts_with(kAten)) return nullptr;
  target.remove_prefix(kAten.size());
  const std::string_view name = target.substr(0, target.find('.'));
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

std::optional<double> number_of(const ir::Arg& a) {
  if (const auto* f = a.get_if<double>()) return *f;
  if (const auto* truth = a.get_if<bool>()) return *truth ? 1 : 0;
  if (const auto* e = a.get_if<ir::Expr>(); e && e->is_const())
    return static_cast<double>(e->value());
  return std::nullopt;
}

// The number that a new tensor holds.
std::optional<double> filled_with(const ir::Node& n) {
  const std::string_view target = n.target;
  if (target == "aten.full.default" || target == "aten.full_like.default")
    return number_of(n.arg(1));
  if (target == "aten.new_full.default") return number_of(n.arg(2));
  if (target == "aten.scalar_tensor.default") return number_of(n.arg(0));
  constexpr std::string_view kOnes[] = {"aten.new_ones.default", "aten.ones.default",
                                        "aten.ones_like.default"};
  constexpr std::string_view kZeros[] = {"aten.new_zeros.default", "aten.zeros.default",
                                         "aten.zeros_like.default"};
  if (std::ranges::find(kOnes, target) != std::end(kOnes)) return 1;
  if (std::ranges::find(kZeros, target) != std::end(kZeros)) return 0;
  return std::nullopt;
}

class Walk {
 public:
  Walk(const ir::Graph& g, const std::function<std::optional<double>(ir::ValueId)>& constants)
      : g_(g), constants_(constants) {}

  // The step that gives the value.
  std::optional<uint16_t> step(ir::ValueId v) {
    if (const auto known = known_.find(v.index); known != known_.end()) return known->second;
    if (out.steps.size() >= kMostSteps) return std::nullopt;
    const ir::Type& type = g_.value(v).type;
    if (!type.is_tensor() || !type.tensor.numel().is_const(1)) return std::nullopt;
    const ir::DType dtype = type.tensor.dtype;
    if (dtype != ir::DType::F32 && dtype != ir::DType::F64 && dtype != ir::DType::B8 &&
        !is_integer(v))
      return std::nullopt;
    auto made = make(v, dtype == ir::DType::F32);
    if (made && dtype == ir::DType::B8)
      made = add({.op = ScalarOp::NotEqual, .left = *made, .right = constant(0)});
    if (made) known_.emplace(v.index, *made);
    return made;
  }

  ScalarProgram out;

 private:
  uint16_t add(ScalarStep s) {
    out.steps.push_back(s);
    return static_cast<uint16_t>(out.steps.size() - 1);
  }
  uint16_t constant(double number) { return add({.op = ScalarOp::Constant, .number = number}); }

  std::optional<uint16_t> constant_of(ir::ValueId v, std::optional<double> number) {
    if (!number || (is_integer(v) && std::abs(*number) > kLargestConstant)) return std::nullopt;
    return constant(*number);
  }

  bool is_integer(ir::ValueId v) const {
    const ir::DType dtype = g_.value(v).type.tensor.dtype;
    return dtype == ir::DType::I64 || dtype == ir::DType::I32;
  }

  // Of integers: sums with constants, comparisons among each other, and what only hands them on. In
  // 32 bits sums and casts may wrap.
  bool is_exact(const ir::Node& n, const Row& row, ir::ValueId result) const {
    const bool gives_integer = is_integer(result);
    const auto has = [&](ir::ValueId v, ir::DType dtype) {
      return g_.value(v).type.is_tensor() && g_.value(v).type.tensor.dtype == dtype;
    };
    if (has(result, ir::DType::I32) &&
        (row.op != ScalarOp::Copy || has(n.arg(0).value(), ir::DType::I64)))
      return false;
    size_t integers = 0, others = 0;
    for (size_t i = 0; i < row.operands; ++i) {
      const ir::Arg& a = n.arg(i);
      const auto number = number_of(a);
      if (a.is_value())
        ++(is_integer(a.value()) ? integers : others);
      else if (!number || std::trunc(*number) != *number || std::abs(*number) > kLargestConstant)
        return false;
    }
    if (row.op == ScalarOp::Copy) return integers == 1 || !gives_integer;
    if (row.op == ScalarOp::Not) return true;
    if (row.op == ScalarOp::Add || row.op == ScalarOp::Sub) return integers == 1 && others == 0;
    return row.op >= ScalarOp::Less && row.op <= ScalarOp::NotEqual && others == 0;
  }

  std::optional<uint16_t> make(ir::ValueId v, bool rounds) {
    const ir::Node& n = g_.def(v);
    if (n.kind == ir::NodeKind::Input) {
      const auto& inputs = g_.inputs();
      const auto at = static_cast<uint32_t>(std::ranges::find(inputs, v) - inputs.begin());
      if (out.input && *out.input != at) return std::nullopt;
      out.input = at;
      return add({.op = ScalarOp::Input});
    }
    if (n.kind == ir::NodeKind::Attribute) return constant_of(v, constants_(v));
    if (const auto number = filled_with(n)) return constant_of(v, number);
    if (n.target == "aten.copy.default") return operand(n.arg(1));
    const Row* row = row_of(n.target);
    if (!row || n.kind != ir::NodeKind::CallOp || n.outputs.size() != 1) return std::nullopt;
    const bool of_integers =
        is_integer(v) || std::ranges::any_of(n.args, [this](const ir::Arg& a) {
          return a.is_value() && g_.value(a.value()).type.is_tensor() && is_integer(a.value());
        });
    if (of_integers && !is_exact(n, *row, v)) return std::nullopt;
    if (n.args.size() > row->operands && row->op != ScalarOp::Copy && !plain(n))
      return std::nullopt;
    const bool narrow = is_narrow(n);
    const auto left = operand(n.arg(0), narrow);
    const auto right = row->operands == 2 && left ? operand(n.arg(1), narrow) : left;
    if (!left || !right) return std::nullopt;
    const bool exchanged = row->name == "rsub";
    return add({.op = row->op,
                .rounds = rounds,
                .left = exchanged ? *right : *left,
                .right = exchanged ? *left : *right});
  }

  // A sum with a factor of 1.
  static bool plain(const ir::Node& n) {
    const std::string_view target = n.target;
    return (target.starts_with("aten.add.") || target.starts_with("aten.sub.") ||
            target.starts_with("aten.rsub.")) &&
           n.args.size() == 3 && number_of(n.arg(2)) == 1.0;
  }

  // Whether the tensors that an op takes are of f32: numbers beside them are rounded to it first.
  bool is_narrow(const ir::Node& n) const {
    bool narrow = false, wide = false;
    for (const ir::Arg& a : n.args) {
      if (!a.is_value() || !g_.value(a.value()).type.is_tensor()) continue;
      const ir::DType dtype = g_.value(a.value()).type.tensor.dtype;
      narrow |= dtype == ir::DType::F32;
      wide |= dtype == ir::DType::F64;
    }
    return narrow && !wide;
  }

  std::optional<uint16_t> operand(const ir::Arg& a, bool narrow = false) {
    if (a.is_value()) return step(a.value());
    const auto number = number_of(a);
    if (!number) return std::nullopt;
    return constant(narrow ? static_cast<float>(*number) : *number);
  }

  const ir::Graph& g_;
  const std::function<std::optional<double>(ir::ValueId)>& constants_;
  std::map<uint32_t, uint16_t> known_;
};

double compute(const ScalarStep& s, double a, double b) {
  switch (s.op) {
    case ScalarOp::Add:
      return a + b;
    case ScalarOp::Sub:
      return a - b;
    case ScalarOp::Mul:
      return a * b;
    case ScalarOp::Div:
      return a / b;
    case ScalarOp::Pow:
      return std::pow(a, b);
    case ScalarOp::Not:
      return a == 0;
    case ScalarOp::Neg:
      return -a;
    case ScalarOp::Reciprocal:
      return 1 / a;
    case ScalarOp::Sqrt:
      return std::sqrt(a);
    case ScalarOp::Less:
      return a < b;
    case ScalarOp::LessEqual:
      return a <= b;
    case ScalarOp::Greater:
      return a > b;
    case ScalarOp::GreaterEqual:
      return a >= b;
    case ScalarOp::Equal:
      return a == b;
    case ScalarOp::NotEqual:
      return a != b;
    case ScalarOp::Copy:
      return a;
    case ScalarOp::Input:
    case ScalarOp::Constant:
      break;
  }
  OXY_FAIL("an operation of a scalar program");
}

}  // namespace

std::optional<ScalarProgram> scalar_program(
    const ir::Graph& g, ir::ValueId v,
    const std::function<std::optional<double>(ir::ValueId)>& constants) {
  Walk walk(g, constants);
  if (!walk.step(v)) return std::nullopt;
  return std::move(walk.out);
}

double evaluate(std::span<const ScalarStep> steps, double input) {
  std::vector<double> values;
  values.reserve(steps.size());
  for (const ScalarStep& s : steps) {
    double x = s.op == ScalarOp::Input      ? input
               : s.op == ScalarOp::Constant ? s.number
                                            : compute(s, values[s.left], values[s.right]);
    if (s.rounds) x = static_cast<float>(x);
    values.push_back(x);
  }
  return values.back();
}

}  // namespace oxy::bridge
