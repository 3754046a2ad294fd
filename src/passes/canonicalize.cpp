// Canonical forms: a list of rules, each of which may rewrite one node in place.
#include "passes/pass_list.h"

#include <algorithm>
#include <numeric>

#include "ops/args.h"
#include "ops/schema.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::Expr;
using ir::TensorType;

struct Context {
  ir::Graph& g;
  const Replacements& escapes;
};
using Rule = bool (*)(const Context&, ir::Node&);

const TensorType* result_type(const ir::Graph& g, const ir::Node& n) {
  return n.outputs.size() == 1 ? tensor_of(g, n.outputs[0]) : nullptr;
}

bool is_number(const Arg& a) { return a.get_if<Expr>() || a.get_if<double>() || a.get_if<bool>(); }

bool drop_trailing_none(const Context&, ir::Node& n) {
  if (n.args.empty() || !n.args.back().is_none()) return false;
  while (!n.args.empty() && n.args.back().is_none()) n.args.pop_back();
  return true;
}

// ---- dimensions and sizes

bool has_negative(const Arg& a) {
  if (auto v = integer(a)) return *v < 0;
  const std::vector<Arg>* items = a.items();
  return items && std::ranges::any_of(*items, has_negative);
}

Arg wrapped(const Arg& a, int64_t rank) {
  if (auto v = integer(a)) return *v < 0 ? Arg(*v + std::max<int64_t>(rank, 1)) : a;
  const std::vector<Arg>* items = a.items();
  if (!items) return a;
  ir::List out;
  for (const Arg& x : *items) out.items.push_back(wrapped(x, rank));
  return out;
}

// The rank that the dimensions among the arguments count in.
std::optional<int64_t> rank_of_dims(const ir::Graph& g, const ir::Node& n) {
  constexpr std::string_view of_results[] = {"aten.unsqueeze.default",
                                             "aten.unsqueeze_copy.default", "aten.stack.default",
                                             "aten.cat.default", "aten.diag_embed.default"};
  const bool of_result =
      std::ranges::find(of_results, std::string_view(n.target)) != std::end(of_results) ||
      n.target.find("_backward.") != std::string::npos;  // those of the operand
  const TensorType* t = of_result ? result_type(g, n) : tensor_of(g, n.arg(0));
  return t ? std::optional(t->dim()) : std::nullopt;
}

bool positive_dims(const Context& c, ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  if (!info || std::ranges::none_of(n.args, has_negative)) return false;
  std::optional<int64_t> rank = rank_of_dims(c.g, n);
  if (!rank) return false;
  bool changed = false;
  std::vector<ops::Param> params = ops::params_of(info->schema);
  for (size_t i = 0; i < n.args.size() && i < params.size(); ++i) {
    if (!params[i].is_dim() || !has_negative(n.args[i])) continue;
    n.args[i] = wrapped(n.args[i], *rank);
    changed = true;
  }
  return changed;
}

// view(x, [-1, 4]) names its sizes.
bool explicit_sizes(const Context& c, ir::Node& n) {
  const TensorType* t = result_type(c.g, n);
  bool has_sizes = n.target == "aten.view.default" || n.target == "aten.expand.default";
  if (!t || !has_sizes || n.args.size() < 2 || !has_negative(n.args[1])) return false;
  n.args[1] = list_of(t->sizes);
  return true;
}

// The index of a select, and both ends of a slice, from the front.
bool positive_index(const Context& c, ir::Node& n) {
  const TensorType* t = tensor_of(c.g, n.arg(0));
  std::optional<int64_t> dim = integer(n.arg(1));
  if (!t || !dim || *dim < 0 || *dim >= t->dim()) return false;
  Expr size = t->sizes[static_cast<size_t>(*dim)];
  if (n.target == "aten.select.int") {
    std::optional<int64_t> index = integer(n.arg(2));
    if (!index || *index >= 0) return false;
    n.args[2] = size + Expr(*index);
    return true;
  }
  if (n.target != "aten.slice.Tensor" || !size.is_const()) return false;
  auto end_point = [&](const Arg& a, int64_t missing) -> std::optional<int64_t> {
    std::optional<int64_t> v = a.is_none() ? missing : integer(a);
    if (v && *v < 0) v = *v + size.value();
    if (v) v = std::clamp<int64_t>(*v, 0, size.value());
    return v;
  };
  std::optional<int64_t> start = end_point(n.arg(2), 0), end = end_point(n.arg(3), size.value());
  if (!start || !end) return false;
  std::vector<Arg> args = {n.args[0], *dim, *start, *end, n.args.size() > 4 ? n.args[4] : Arg(1)};
  if (args == n.args) return false;
  n.args = std::move(args);
  return true;
}

// ---- views

bool to_permute(const Context& c, ir::Node& n) {
  const TensorType* t = tensor_of(c.g, n.arg(0));
  if (!t) return false;
  std::vector<int64_t> dims(t->sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  if (n.target == "aten.t.default") {
    if (dims.size() != 2) return false;
    std::swap(dims[0], dims[1]);
  } else if (n.target == "aten.transpose.int") {
    auto a = integer(n.arg(1)), b = integer(n.arg(2));
    if (!a || !b || *a < 0 || *b < 0 || std::max(*a, *b) >= t->dim()) return false;
    std::swap(dims[static_cast<size_t>(*a)], dims[static_cast<size_t>(*b)]);
  } else {
    return false;
  }
  return rewrite(c.g, n, "aten.permute.default", {n.args[0], list_of(dims)});
}

bool to_view(const Context& c, ir::Node& n) {
  const TensorType* t = result_type(c.g, n);
  bool reshapes = n.target == "aten._unsafe_view.default" || n.target == "aten.reshape.default" ||
                  n.target == "aten._reshape_alias.default";
  return t && reshapes && rewrite(c.g, n, "aten.view.default", {n.args[0], list_of(t->sizes)});
}

// A copy of a view need not be one where nobody can see it: values of the graph do not share
// memory.
bool copy_to_view(const Context& c, ir::Node& n) {
  constexpr std::string_view suffix = "_copy";
  size_t dot = n.target.rfind('.');
  std::string_view op = std::string_view(n.target).substr(0, dot);
  if (!op.ends_with(suffix)) return false;
  if (std::ranges::any_of(n.outputs, [&](auto v) { return c.escapes.escapes(v); })) return false;
  op.remove_suffix(suffix.size());
  std::string view = cat(op, std::string_view(n.target).substr(dot));
  const ops::OpInfo* info = ops::find(view);
  return info && info->has(ops::View) && rewrite(c.g, n, view, n.args);
}

// What fill_diagonal_ writes: the diagonal of a matrix, told by its strides.
bool to_diagonal(const Context& c, ir::Node& n) {
  const bool scatters = n.target == "aten.as_strided_scatter.default";
  const TensorType* t = tensor_of(c.g, n.arg(0));
  if (!t || (!scatters && n.target != "aten.as_strided.default") || t->dim() != 2) return false;
  const size_t at = scatters ? 2 : 1;
  const Arg sizes = list_of(std::vector<Expr>{sym::min(t->sizes[0], t->sizes[1])});
  const Arg strides = list_of(std::vector<Expr>{t->strides[0] + t->strides[1]});
  const Arg offset = n.arg(at + 2);
  const bool from_start = offset.is_none() ? t->offset.is_const(0) : offset == Arg(t->offset);
  if (!(n.arg(at) == sizes) || !(n.arg(at + 1) == strides) || !from_start) return false;
  std::vector<Arg> args(n.args.begin(), n.args.begin() + static_cast<std::ptrdiff_t>(at));
  args.insert(args.end(), {0, 0, 1});
  return rewrite(c.g, n, scatters ? "aten.diagonal_scatter.default" : "aten.diagonal.default",
                 std::move(args));
}

// ---- constants

std::optional<Arg> number_of(const Arg& value, ir::DType dtype) {
  std::optional<int64_t> whole = integer(value);
  if (const bool* b = value.get_if<bool>()) whole = *b;
  if (ir::is_complex(dtype) && value.get_if<std::complex<double>>()) return value;
  if (ir::is_floating(dtype) || ir::is_complex(dtype)) {
    if (auto* d = value.get_if<double>()) return *d;
    if (whole && std::abs(*whole) < (int64_t{1} << 53)) return static_cast<double>(*whole);
  } else if (dtype == ir::DType::B8) {
    if (whole && (*whole == 0 || *whole == 1)) return *whole == 1;
  } else if (ir::is_integral(dtype, false) && whole) {
    return Arg(*whole);
  }
  return std::nullopt;
}

// Where the constant of a creation op stands: its value, or the position of the argument that holds
// it.
struct CreationForm {
  std::string_view op;
  int value_arg;  // -1: the constant below
  int constant;
  int pin_arg;
};
constexpr CreationForm kCreations[] = {
    {"aten.full.default", 1, 0, 5},        {"aten.zeros.default", -1, 0, 4},
    {"aten.ones.default", -1, 1, 4},       {"aten.scalar_tensor.default", 0, 0, 4},
    {"aten.zeros_like.default", -1, 0, 4}, {"aten.ones_like.default", -1, 1, 4},
    {"aten.full_like.default", 1, 0, 5},   {"aten.new_zeros.default", -1, 0, 5},
    {"aten.new_ones.default", -1, 1, 5},   {"aten.new_full.default", 2, 0, 6},
};

bool to_full(const Context& c, ir::Node& n) {
  const TensorType* t = result_type(c.g, n);
  const auto* form = std::ranges::find(kCreations, n.target, &CreationForm::op);
  if (!t || form == std::end(kCreations)) return false;
  const bool* pinned = n.arg(static_cast<size_t>(form->pin_arg)).get_if<bool>();
  if (pinned && *pinned) return false;
  Arg given =
      form->value_arg < 0 ? Arg(form->constant) : n.arg(static_cast<size_t>(form->value_arg));
  std::optional<Arg> value = number_of(given, t->dtype);
  if (!value) return false;
  return rewrite(c.g, n, "aten.full.default",
                 {list_of(t->sizes), *value, t->dtype, ir::None{}, t->device});
}

// ---- arithmetic

bool scalar_to_tensor(const Context& c, ir::Node& n) {
  constexpr std::string_view scalar = ".Scalar";
  if (!n.target.ends_with(scalar) || !tensor_of(c.g, n.arg(0)) || !is_number(n.arg(1)))
    return false;
  const ops::OpInfo* row = ops::find(n);
  if (!row || !row->has(ops::Pointwise)) return false;
  std::string base = n.target.substr(0, n.target.size() - scalar.size());
  // The two forms belong together when they have parameters of the same names.
  for (const std::string& op : {base + ".Tensor", base + ".default"}) {
    const ops::OpInfo* tensor_row = ops::find(op);
    if (tensor_row &&
        std::ranges::equal(ops::params_of(row->schema), ops::params_of(tensor_row->schema), {},
                           &ops::Param::name, &ops::Param::name))
      return rewrite(c.g, n, op, n.args);
  }
  return false;
}

bool rsub_to_sub(const Context& c, ir::Node& n) {
  if (n.target != "aten.rsub.Tensor" || n.args.size() < 2) return false;
  std::vector<Arg> args = n.args;
  std::swap(args[0], args[1]);
  return rewrite(c.g, n, "aten.sub.Tensor", std::move(args));
}

bool constants_second(const Context& c, ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  if (!info || !info->has(ops::Commutative) || !is_number(n.arg(0)) || !n.arg(1).is_value())
    return false;
  // What follows the operands (alpha) scales the second one.
  if (n.args.size() > 3 || (n.args.size() == 3 && !(n.args[2] == Arg(1)))) return false;
  std::vector<Arg> args = n.args;
  std::swap(args[0], args[1]);
  return rewrite(c.g, n, n.target, std::move(args));
}

constexpr Rule kRules[] = {drop_trailing_none, positive_dims, explicit_sizes,
                           positive_index,     to_permute,    to_view,
                           copy_to_view,       to_diagonal,   to_full,
                           scalar_to_tensor,   rsub_to_sub,   constants_second};

}  // namespace

bool canonicalize(ir::Graph& g) {
  Replacements escapes(g);
  Context context{g, escapes};
  bool changed = false;
  for (ir::NodeId id : g.order()) {
    ir::Node& n = g.node(id);
    if (n.dead || n.kind != ir::NodeKind::CallOp) continue;
    // A rule may make way for an earlier one.
    for (bool again = true; again;) {
      again = std::ranges::any_of(kRules, [&](Rule rule) { return rule(context, n); });
      changed |= again;
    }
  }
  return changed;
}

}  // namespace oxy::passes
