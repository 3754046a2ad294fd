// Reading a node's arguments: by position, with the missing ones None, whoever asks (shape rule,
// loop rule, pass).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/op_table.h"

namespace oxy::ops {

// What kind of number a Scalar argument is; orders as type promotion does.
enum class NumberKind : uint8_t { Bool, Int, Float, Complex };

// The number that a constant stands for where it is data, no size: the ends of int64, which an
// expression cannot have, are written as the ends of what it can.
constexpr int64_t number_of(int64_t constant) {
  if (constant == Expr::kMaxConst) return INT64_MAX;
  return constant == -Expr::kMaxConst - 1 ? INT64_MIN : constant;
}

class Args {
 public:
  Args(const ir::Graph& graph, std::span<const ir::Arg> args) : graph_(graph), args_(args) {}
  Args(const ir::Graph& graph, const ir::Node& node) : Args(graph, node.args) {}
  // Another list, of values of the same graph.
  Args with(std::span<const ir::Arg> args) const {
    Args out = *this;
    out.args_ = args;
    return out;
  }
  // A shape rule is asked for sizes alone: it need not know how results lie.
  Args for_sizes() const {
    Args out = *this;
    out.for_sizes_ = true;
    return out;
  }
  bool are_for_sizes() const { return for_sizes_; }

  const ir::Graph& graph() const { return graph_; }
  std::span<const ir::Arg> list() const { return args_; }
  size_t size() const { return args_.size(); }
  const ir::Arg& operator[](size_t i) const;
  bool missing(size_t i) const { return (*this)[i].is_none(); }

  // The type of a tensor argument; nullptr where it is something else.
  const ir::TensorType* tensor(size_t i) const { return tensor((*this)[i]); }
  const ir::TensorType* tensor(const ir::Arg& a) const;
  // Tensors of a list argument; false where one item is not a tensor.
  bool tensors(size_t i, std::vector<const ir::TensorType*>& out) const;

  // An integer argument, symbolic or not; `missing` where it was left out.
  std::optional<Expr> expr(size_t i, std::optional<Expr> missing = std::nullopt) const;
  std::optional<Expr> expr(const ir::Arg& a) const;
  std::optional<int64_t> integer(size_t i, std::optional<int64_t> missing = std::nullopt) const;
  // An integer that names a dimension of a tensor of this rank, counted from the front.
  std::optional<int64_t> dim(size_t i, int64_t rank,
                             std::optional<int64_t> missing = std::nullopt) const;
  std::optional<bool> boolean(size_t i, std::optional<bool> missing = std::nullopt) const;
  // A number known now, as a double.
  std::optional<double> number(size_t i, std::optional<double> missing = std::nullopt) const;
  std::optional<NumberKind> number_kind(size_t i) const;
  std::optional<DType> dtype(size_t i, std::optional<DType> missing = std::nullopt) const;
  std::optional<std::string_view> string(size_t i, std::string_view missing) const;
  // A list of integers; a single one counts as a list of one. False where an item is something
  // else.
  bool exprs(size_t i, std::vector<Expr>& out) const;
  bool integers(size_t i, std::vector<int64_t>& out) const;

 private:
  const ir::Graph& graph_;
  std::span<const ir::Arg> args_;
  bool for_sizes_ = false;
};

// A dimension counted from the front; nothing where it is out of range. A scalar has the dimensions
// 0 and -1.
std::optional<int64_t> wrap_dim(int64_t dim, int64_t rank);
// Sorted and wrapped; false where one is out of range or stands twice.
bool wrap_dims(std::vector<int64_t>& dims, int64_t rank);

}  // namespace oxy::ops
