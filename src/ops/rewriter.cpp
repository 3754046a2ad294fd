// Nodes of decompositions, with the types that the shape rules give.
#include "ops/rewriter.h"

#include <algorithm>

#include "ops/shapes.h"
#include "support/check.h"
#include "symbolic/facts.h"

namespace oxy::ops {
namespace {

// As c10::MemoryFormat.
constexpr ir::MemoryFormat kContiguous{0}, kChannelsLast{2}, kChannelsLast3d{3};

// The format that a tensor of these sizes and strides has; nothing where it is another one.
std::optional<ir::MemoryFormat> format_of(const ir::TensorType& t) {
  if (t.is_row_major()) return kContiguous;
  const bool image = t.dim() == 4, volume = t.dim() == 5;
  if ((!image && !volume) || t.strides != channels_last_strides(t.sizes)) return std::nullopt;
  return image ? kChannelsLast : kChannelsLast3d;
}

// Whether the op gives one list of tensors, as split does.
bool returns_list(const OpInfo& info) { return info.schema.ends_with("[]"); }

std::string types_text(const ir::Graph& graph, const std::vector<ir::Arg>& args) {
  std::string out;
  for (const ir::Arg& a : args)
    ir::for_each_value(a, [&](ir::ValueId v) {
      cat_to(out, out.empty() ? "" : ", ", ir::print(graph.value(v).type));
    });
  return out;
}

}  // namespace

ir::List list_of(const std::vector<int64_t>& xs) {
  ir::List l;
  for (int64_t x : xs) l.items.emplace_back(x);
  return l;
}

ir::List list_of(const std::vector<Expr>& xs) {
  ir::List l;
  for (Expr x : xs) l.items.emplace_back(x);
  return l;
}

std::vector<ir::ValueId> Rewriter::call_multi(std::string_view op, std::vector<ir::Arg> args) {
  const OpInfo* info = find(op);
  OXY_CHECK(info && info->shape, "a decomposition needs the shape rule of ", op);
  Types types;
  // As long as the capture that the graph is of has not ended, what it asks becomes a guard.
  std::optional<sym::DecideByHints> deciding;
  using By = sym::DecideByHints::Unbacked;
  if (auto* facts = sym::ShapeFacts::open_in(*graph_.pool)) deciding.emplace(*facts, By::Unknown);
  if (!info->shape(Args(graph_, args), types))
    throw UnknownShape(cat("the shape rule does not know the result of ", op,
                           " in a decomposition, of ", types_text(graph_, args)));
  const auto count = static_cast<int32_t>(types.size());
  ir::Node& n = insert(op, std::move(args), std::move(types));
  if (returns_list(*info)) n.returns = {count};
  return n.outputs;
}

ir::Node& Rewriter::insert(std::string_view op, std::vector<ir::Arg> args, Types types) {
  // insert_call can move the nodes, so what is needed of the replaced one is read first.
  const ir::StackId stack = graph_.node(at_).stack;
  const ir::NodeId parent = graph_.node(at_).parent;
  ir::Node& n = graph_.insert_call(at_, ir::NodeKind::CallOp, std::string(op), std::move(args),
                                   std::move(types));
  n.stack = stack;
  n.parent = parent;
  return n;
}

ir::ValueId Rewriter::call(std::string_view op, std::vector<ir::Arg> args, ir::TensorType type) {
  return insert(op, std::move(args), {ir::Type::of(std::move(type))}).outputs[0];
}

ir::ValueId Rewriter::call(std::string_view op, std::vector<ir::Arg> args) {
  auto outputs = call_multi(op, std::move(args));
  OXY_CHECK(outputs.size() == 1, op, " has ", outputs.size(), " outputs");
  return outputs[0];
}

ir::ValueId Rewriter::cast(ir::ValueId v, DType d) {
  if (type(v).dtype == d) return v;
  const ir::Arg none;
  return call("aten._to_copy.default", {v, d, none, none, none, false});
}

std::optional<ir::ValueId> Rewriter::as(ir::ValueId v, const ir::TensorType& t) {
  v = cast(v, t.dtype);
  if (type(v).strides == t.strides) return v;
  const auto format = format_of(t);
  return format ? std::optional(call("aten.clone.default", {v, *format})) : std::nullopt;
}

ir::ValueId Rewriter::sum(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim) {
  return call("aten.sum.dim_IntList", {v, list_of(dims), keepdim});
}

ir::ValueId Rewriter::amax(ir::ValueId v, const std::vector<int64_t>& dims, bool keepdim) {
  // Of nothing it is the smallest number: the op raises there, but who asks here reads none then.
  std::vector<ir::Arg> args{v, list_of(dims), keepdim};
  const bool empty = std::ranges::any_of(dims, [&](int64_t d) {
    return sym::certain_equal(type(v).sizes.at(static_cast<size_t>(d)), 0) != false;
  });
  Types types;
  if (!empty || !ir::is_floating(type(v).dtype) ||
      !find("aten.sum.dim_IntList")->shape(Args(graph_, args), types))
    return call("aten.amax.default", std::move(args));
  return insert("aten.amax.default", std::move(args), std::move(types)).outputs[0];
}

ir::ValueId Rewriter::row_major(ir::ValueId v) {
  return type(v).is_row_major() ? v : call("aten.clone.default", {v, kContiguous});
}

ir::ValueId Rewriter::compact(ir::ValueId v) {
  return type(v).offset.is_const(0) ? row_major(v) : call("aten.clone.default", {v, kContiguous});
}

ir::ValueId Rewriter::full(const std::vector<Expr>& sizes, ir::Arg number, DType d,
                           ir::Device device) {
  return call("aten.full.default", {list_of(sizes), std::move(number), d, ir::Arg(), device});
}

ir::ValueId Rewriter::copy(ir::ValueId v, const std::vector<Expr>& strides) {
  ir::TensorType made = type(v);
  made.strides = strides;
  made.offset = 0;
  made.requires_grad = false;
  const ir::ValueId memory =
      call("aten.new_empty_strided.default", {v, list_of(made.sizes), list_of(strides)}, made);
  return call("aten.copy.default", {memory, v}, made);
}

ir::ValueId Rewriter::view(ir::ValueId v, const std::vector<Expr>& sizes) {
  return call("aten.view.default", {v, list_of(sizes)});
}

}  // namespace oxy::ops
