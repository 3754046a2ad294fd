// Reading a node's arguments.
#include "ops/args.h"

#include <algorithm>

namespace oxy::ops {

const ir::Arg& Args::operator[](size_t i) const {
  static const ir::Arg none;
  return i < args_.size() ? args_[i] : none;
}

const ir::TensorType* Args::tensor(const ir::Arg& a) const {
  if (!a.is_value()) return nullptr;
  const ir::Type& t = graph_.value(a.value()).type;
  return t.is_tensor() ? &t.tensor : nullptr;
}

bool Args::tensors(size_t i, std::vector<const ir::TensorType*>& out) const {
  const auto* items = (*this)[i].items();
  if (!items) return false;
  for (const auto& item : *items) {
    const ir::TensorType* t = tensor(item);
    if (!t) return false;
    out.push_back(t);
  }
  return true;
}

std::optional<Expr> Args::expr(const ir::Arg& a) const {
  if (const auto* e = a.get_if<Expr>()) return *e;
  if (const auto* b = a.get_if<bool>()) return Expr(*b ? 1 : 0);
  if (a.is_value()) {
    const ir::Type& t = graph_.value(a.value()).type;
    if (t.kind == ir::Type::Kind::Int) return t.expr;
  }
  return std::nullopt;
}

std::optional<Expr> Args::expr(size_t i, std::optional<Expr> missing) const {
  return this->missing(i) ? missing : expr((*this)[i]);
}

std::optional<int64_t> Args::integer(size_t i, std::optional<int64_t> missing) const {
  if (this->missing(i)) return missing;
  auto e = expr((*this)[i]);
  return e && e->is_const() ? std::optional(e->value()) : std::nullopt;
}

std::optional<int64_t> Args::dim(size_t i, int64_t rank, std::optional<int64_t> missing) const {
  auto d = integer(i, missing);
  return d ? wrap_dim(*d, rank) : std::nullopt;
}

std::optional<bool> Args::boolean(size_t i, std::optional<bool> missing) const {
  if (this->missing(i)) return missing;
  if (const auto* b = (*this)[i].get_if<bool>()) return *b;
  auto v = integer(i);
  return v ? std::optional(*v != 0) : std::nullopt;
}

std::optional<double> Args::number(size_t i, std::optional<double> missing) const {
  if (this->missing(i)) return missing;
  if (const auto* d = (*this)[i].get_if<double>()) return *d;
  auto v = integer(i);
  return v ? std::optional(static_cast<double>(number_of(*v))) : std::nullopt;
}

std::optional<NumberKind> Args::number_kind(size_t i) const {
  const ir::Arg& a = (*this)[i];
  if (a.get_if<bool>()) return NumberKind::Bool;
  if (a.get_if<Expr>()) return NumberKind::Int;
  if (a.get_if<double>()) return NumberKind::Float;
  if (a.get_if<std::complex<double>>()) return NumberKind::Complex;
  using Kind = ir::Type::Kind;
  const Kind kind = a.is_value() ? graph_.value(a.value()).type.kind : Kind::None;
  if (kind == Kind::Int) return NumberKind::Int;
  if (kind == Kind::Float) return NumberKind::Float;
  return kind == Kind::Bool ? std::optional(NumberKind::Bool) : std::nullopt;
}

std::optional<DType> Args::dtype(size_t i, std::optional<DType> missing) const {
  if (this->missing(i)) return missing;
  const auto* d = (*this)[i].get_if<DType>();
  return d ? std::optional(*d) : std::nullopt;
}

std::optional<std::string_view> Args::string(size_t i, std::string_view missing) const {
  if (this->missing(i)) return missing;
  const auto* s = (*this)[i].get_if<ir::Str>();
  return s ? std::optional<std::string_view>(s->value) : std::nullopt;
}

bool Args::exprs(size_t i, std::vector<Expr>& out) const {
  const ir::Arg& a = (*this)[i];
  const auto* items = a.items();
  for (const ir::Arg& item : items ? std::span(*items) : std::span(&a, 1)) {
    auto e = expr(item);
    if (!e) return false;
    out.push_back(*e);
  }
  return true;
}

bool Args::integers(size_t i, std::vector<int64_t>& out) const {
  std::vector<Expr> found;
  if (!exprs(i, found)) return false;
  for (Expr e : found) {
    if (!e.is_const()) return false;
    out.push_back(e.value());
  }
  return true;
}

std::optional<int64_t> wrap_dim(int64_t dim, int64_t rank) {
  const int64_t n = std::max<int64_t>(rank, 1);
  if (dim < -n || dim >= n) return std::nullopt;
  return dim < 0 ? dim + n : dim;
}

bool wrap_dims(std::vector<int64_t>& dims, int64_t rank) {
  constexpr int64_t kMostDims = 64;  // of a set of dimensions in torch, which refuses more
  if (rank > kMostDims) return false;
  for (int64_t& d : dims) {
    auto w = wrap_dim(d, rank);
    if (!w) return false;
    d = *w;
  }
  std::ranges::sort(dims);
  return std::ranges::adjacent_find(dims) == dims.end();
}

}  // namespace oxy::ops
