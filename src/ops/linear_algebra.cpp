// Linear algebra: what factorizations and systems of equations give; and of many matrices of a few
// rows LAPACK's algorithms (getf2, getrs, potf2) written out, each element a tensor of the batch's
// sizes. A vector then works on as many matrices as it has lanes; a row exchange is a choice.
#include <numeric>

#include "ops/contraction.h"
#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// ---- shapes ----

TensorType column_major(const TensorType& like, Sizes sizes) {
  const auto swap_last = [](Sizes& s) { std::swap(s[s.size() - 1], s[s.size() - 2]); };
  TensorType out = fresh(like, sizes);
  swap_last(sizes);
  out.strides = ir::contiguous_strides(sizes);
  swap_last(out.strides);
  return out;
}

Sizes batch_of(const TensorType& t, int64_t own = 2) {
  return {t.sizes.begin(), t.sizes.end() - static_cast<ptrdiff_t>(own)};
}
Sizes joined(Sizes batch, std::initializer_list<Expr> rest) {
  batch.insert(batch.end(), rest);
  return batch;
}
Expr from_back(const TensorType& t, int64_t d) { return t.sizes[static_cast<size_t>(t.dim() - d)]; }

bool is_matrix(const TensorType* t) {
  return t && t->dim() >= 2 &&
         (t->dtype == DType::F32 || t->dtype == DType::F64 || ir::is_complex(t->dtype)) &&
         t->dtype != DType::C32;
}
bool is_square(const TensorType* t) {
  return is_matrix(t) && sym::known_equal(from_back(*t, 1), from_back(*t, 2)) == true;
}

bool give_info(Types& out, const TensorType& t) {
  return give(out, row_major(DType::I32, t.device, batch_of(t)));
}
bool give_factors(Types& out, const TensorType& t) {
  const Expr steps = sym::min(from_back(t, 1), from_back(t, 2));
  return give(out, column_major(t, t.sizes)) &&
         give(out, row_major(DType::I32, t.device, joined(batch_of(t), {steps})));
}

// Of inverses and Cholesky factors.
bool shape_square(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return is_square(t) && give(out, column_major(*t, t->sizes)) && give_info(out, *t);
}

// Of a tensor that lies row by row, whose last dimensions are transformed: so does the result then.
// MKL's results lie by the order of the strides otherwise.
const TensorType* transformed_rows(const Args& a) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> dims;
  if (!t || !a.integers(1, dims) || dims.empty()) return nullptr;
  const int64_t rank = t->dim(), first = rank - static_cast<int64_t>(dims.size());
  for (int64_t& d : dims) d = wrap_dim(d, rank).value_or(-1);
  if (dims.back() != rank - 1 || std::ranges::min(dims) != first) return nullptr;
  std::ranges::sort(dims);
  const bool apart = std::ranges::adjacent_find(dims) == dims.end();
  const bool large = std::ranges::all_of(t->sizes, [](Expr e) { return sym::range_of(e).lo > 1; });
  return apart && large && t->strides == ir::contiguous_strides(t->sizes) ? t : nullptr;
}

bool shape_fft(const Args& a, Types& out) {
  const TensorType* t = transformed_rows(a);
  return t && ir::is_complex(t->dtype) && give(out, fresh(*t, t->sizes));
}

bool shape_fft_of_reals(const Args& a, Types& out) {
  const TensorType* t = transformed_rows(a);
  const auto half = a.boolean(3);
  if (!t || !half || (t->dtype != DType::F32 && t->dtype != DType::F64)) return false;
  Sizes sizes = t->sizes;
  if (*half) sizes.back() = sym::floordiv(sizes.back(), 2) + 1;
  return give(out, row_major(t->dtype == DType::F32 ? DType::C64 : DType::C128, t->device,
                             std::move(sizes)));
}

bool shape_fft_to_reals(const Args& a, Types& out) {
  const TensorType* t = transformed_rows(a);
  const auto last = a.expr(3);
  if (!t || !last || (t->dtype != DType::C64 && t->dtype != DType::C128)) return false;
  Sizes sizes = t->sizes;
  sizes.back() = *last;
  return give(out, row_major(t->dtype == DType::C64 ? DType::F32 : DType::F64, t->device,
                             std::move(sizes)));
}

bool shape_trace(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() != 2 || !is_computable(t->dtype)) return false;
  const DType sum = ir::is_integral(t->dtype, true) ? DType::I64 : t->dtype;
  return give(out, row_major(sum, t->device, {}));
}

bool shape_dist(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *o = a.tensor(1);
  return t && o && t->sizes == o->sizes && t->dtype == o->dtype && ir::is_floating(t->dtype) &&
         is_computable(t->dtype) && give(out, fresh(*t, {}));
}

// self + mat @ vec, of one dtype.
bool shape_addmv(const Args& a, Types& out) {
  const TensorType *self = a.tensor(0), *mat = a.tensor(1), *vec = a.tensor(2);
  if (!self || !mat || !vec || mat->dim() != 2 || vec->dim() != 1 || self->dim() != 1) return false;
  return self->dtype == mat->dtype && mat->dtype == vec->dtype && is_computable(vec->dtype) &&
         sym::known_equal(mat->sizes[1], vec->sizes[0]) == true &&
         sym::known_equal(mat->sizes[0], self->sizes[0]) == true &&
         give(out, fresh(*mat, {mat->sizes[0]}));
}

bool shape_vdot(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *o = a.tensor(1);
  return t && o && t->dim() == 1 && o->dim() == 1 && t->dtype == o->dtype &&
         sym::known_equal(t->sizes[0], o->sizes[0]) == true && give(out, fresh(*t, {}));
}

bool shape_lu_factor(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return is_matrix(t) && a.boolean(1, true) == true && give_factors(out, *t) && give_info(out, *t);
}

template <bool Sign>
bool shape_det(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!is_square(t) || (Sign && ir::is_complex(t->dtype))) return false;
  return (!Sign || give(out, fresh(*t, batch_of(*t)))) && give(out, fresh(*t, batch_of(*t))) &&
         give_factors(out, *t);
}

// Whether the right-hand side is a vector, or one for each matrix, as torch.linalg.solve reads it;
// nothing where that is not known.
std::optional<bool> is_vector(const TensorType& t, const TensorType& right) {
  if (right.dim() == 1) return true;
  if (right.dim() + 1 != t.dim()) return false;
  for (size_t d = 0; d < right.sizes.size(); ++d) {
    const auto same = sym::known_equal(right.sizes[d], t.sizes[d]);
    if (same != true) return same;
  }
  return true;
}

std::optional<TensorType> solution(const TensorType& t, const TensorType& right, bool vector,
                                   bool left) {
  const int64_t own = vector ? 1 : 2;
  if (right.dtype != t.dtype || right.device != t.device || right.dim() < own ||
      (vector && !left) ||
      sym::known_equal(from_back(right, !vector && left ? 2 : 1), from_back(t, 1)) != true)
    return std::nullopt;
  auto sizes = broadcast(batch_of(t), batch_of(right, own));
  if (!sizes) return std::nullopt;
  for (int64_t d = own; d > 0; --d) sizes->push_back(from_back(right, d));
  return left && sizes->size() > 1 ? column_major(t, *sizes) : fresh(t, *sizes);
}

bool shape_solve(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *right = a.tensor(1);
  const auto left = a.boolean(2, true);
  const auto vector = is_square(t) && right ? is_vector(*t, *right) : std::nullopt;
  return left && vector && give(out, solution(*t, *right, *vector, *left)) &&
         give_factors(out, *t) && give_info(out, *t);
}

bool shape_lu_solve(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *pivots = a.tensor(1), *right = a.tensor(2);
  const auto left = a.boolean(3, true);
  return is_square(t) && right && left && pivots && pivots->dtype == DType::I32 &&
         known_same(pivots->sizes, joined(batch_of(*t), {t->sizes.back()})) &&
         give(out, solution(*t, *right, false, *left));
}

bool shape_solve_triangular(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *right = a.tensor(1);
  const auto left = a.boolean(3, true);
  if (!is_square(t) || ir::is_complex(t->dtype) || !right || !left) return false;
  const auto found = solution(*t, *right, false, *left);
  return found && give(out, column_major(*t, found->sizes));
}

// ---- small matrices ----

// Rows and columns of what is written out: the steps grow with the cube.
constexpr int64_t kMostRows = 4;
// Elements of a right-hand side.
constexpr int64_t kMostRight = 16;
// Matrices from which on the kernel is worth its compilation.
constexpr int64_t kFewest = 16;

struct Matrix {
  size_t rows = 0, columns = 0;
  std::vector<ValueId> elements = {};  // row by row

  ValueId& at(size_t i, size_t j) { return elements[i * columns + j]; }
  ValueId at(size_t i, size_t j) const { return elements[i * columns + j]; }
  Matrix transposed() const {
    Matrix out{columns, rows};
    for (size_t j = 0; j < columns; ++j)
      for (size_t i = 0; i < rows; ++i) out.elements.push_back(at(i, j));
    return out;
  }
};

// P A = L U: the matrix has both, without L's ones. Row k was exchanged with row pivots[k] - 1.
struct Factors {
  Matrix lu;
  std::vector<ValueId> pivots;  // int32
  ValueId info = {};            // int32: the first k, from 1, where U has a zero; else 0
};

class SmallMatrices {
 public:
  SmallMatrices(Rewriter& r, const TensorType& t)
      : r_(r), dtype_(t.dtype), device_(t.device), batch_(batch_of(t)) {}

  // Of a tensor whose last dimension, or last two, are the rows and columns.
  Matrix load(ValueId v, bool is_vector = false) {
    const TensorType t = r_.type(v);
    const auto size = [&](int64_t d) { return static_cast<size_t>(from_back(t, d).value()); };
    Matrix m{size(is_vector ? 1 : 2), is_vector ? 1 : size(1)};
    for (size_t i = 0; i < m.rows; ++i) {
      const ValueId row = select(v, is_vector ? -1 : -2, i);
      for (size_t j = 0; j < m.columns; ++j)
        m.elements.push_back(is_vector ? row : select(row, -1, j));
    }
    return m;
  }
  Matrix identity(size_t n) {
    Matrix m{n, n};
    for (size_t i = 0; i < n * n; ++i) m.elements.push_back(number(i % (n + 1) == 0 ? 1 : 0));
    return m;
  }

  Factors factor(Matrix m);
  // X of L U X = P B, or of (L U)^T P X = B.
  void solve(const Matrix& lu, const std::vector<ValueId>& pivots, Matrix& b, bool adjoint);
  void solve_triangular(const Matrix& t, Matrix& b, bool upper, bool unit);
  // The lower factor from the lower half, and where it ended, as Factors::info.
  Matrix cholesky(const Matrix& m, ValueId& info);

  // As a tensor of this type, whose last dimension, or last two, are rows and columns; invalid
  // where its memory is in another order.
  std::optional<ValueId> store(const Matrix& m, const TensorType& type, bool is_vector = false);
  ValueId whole(ValueId v) {  // of all matrices
    return r_.type(v).sizes == batch_ ? v : r_.call("aten.expand.default", {v, list_of(batch_)});
  }

  ValueId binary(std::string_view op, ValueId a, ValueId b) { return r_.call(op, {a, b}); }
  ValueId where(ValueId mask, ValueId a, ValueId b) {
    return a == b ? a : r_.call("aten.where.self", {mask, a, b});
  }
  ValueId number(double x) { return r_.full({}, x, dtype_, device_); }
  ValueId place(size_t x) { return r_.full({}, static_cast<int64_t>(x), DType::I32, device_); }
  ValueId is(ValueId v, size_t k) {
    return r_.call("aten.eq.Scalar", {v, static_cast<int64_t>(k)});
  }
  // 1 or -1: how many rows were exchanged with another.
  ValueId sign(const std::vector<ValueId>& pivots);

 private:
  ValueId select(ValueId v, int64_t dim, size_t i) {
    return r_.call("aten.select.int", {v, dim, static_cast<int64_t>(i)});
  }
  // Rows k and i change places where the mask says so.
  void exchange(Matrix& m, size_t k, size_t i, ValueId mask) {
    for (size_t j = 0; j < m.columns; ++j) {
      const ValueId x = m.at(k, j), y = m.at(i, j);
      m.at(k, j) = where(mask, y, x);
      m.at(i, j) = where(mask, x, y);
    }
  }
  void exchange(Matrix& m, const std::vector<ValueId>& pivots, bool back) {
    for (size_t n = 0; n < m.rows; ++n) {
      const size_t k = back ? m.rows - 1 - n : n;
      for (size_t i = k + 1; i < m.rows; ++i) exchange(m, k, i, is(pivots[k], i + 1));
    }
  }
  // a - b * c
  ValueId less_product(ValueId a, ValueId b, ValueId c) { return r_.sub(a, r_.mul(b, c)); }

  Rewriter& r_;
  DType dtype_;
  ir::Device device_;
  std::vector<Expr> batch_;
};

Factors SmallMatrices::factor(Matrix m) {
  Factors out{.info = place(0)};
  const size_t n = m.rows;
  for (size_t k = 0; k < n; ++k) {
    ValueId best = r_.unary("aten.abs.default", m.at(k, k)), pivot = place(k + 1);
    for (size_t i = k + 1; i < n; ++i) {
      const ValueId size = r_.unary("aten.abs.default", m.at(i, k));
      const ValueId larger = binary("aten.gt.Tensor", size, best);
      best = where(larger, size, best);
      pivot = where(larger, place(i + 1), pivot);
    }
    for (size_t i = k + 1; i < n; ++i) exchange(m, k, i, is(pivot, i + 1));
    out.pivots.push_back(pivot);
    const ValueId zero = is(m.at(k, k), 0);
    const ValueId first = k ? binary("aten.bitwise_and.Tensor", zero, is(out.info, 0)) : zero;
    out.info = where(first, place(k + 1), out.info);
    for (size_t i = k + 1; i < n; ++i) {
      // A column of zeros stays one.
      m.at(i, k) = where(zero, m.at(i, k), r_.div(m.at(i, k), m.at(k, k)));
      for (size_t j = k + 1; j < n; ++j)
        m.at(i, j) = less_product(m.at(i, j), m.at(i, k), m.at(k, j));
    }
  }
  out.lu = std::move(m);
  return out;
}

void SmallMatrices::solve_triangular(const Matrix& t, Matrix& b, bool upper, bool unit) {
  for (size_t c = 0; c < b.columns; ++c) {
    for (size_t n = 0; n < b.rows; ++n) {
      const size_t i = upper ? b.rows - 1 - n : n;
      ValueId x = b.at(i, c);
      for (size_t m = 0; m < n; ++m) {
        const size_t j = upper ? b.rows - 1 - m : m;
        x = less_product(x, t.at(i, j), b.at(j, c));
      }
      b.at(i, c) = unit ? x : r_.mul(x, r_.unary("aten.reciprocal.default", t.at(i, i)));
    }
  }
}

void SmallMatrices::solve(const Matrix& lu, const std::vector<ValueId>& pivots, Matrix& b,
                          bool adjoint) {
  if (!adjoint) {
    exchange(b, pivots, false);
    solve_triangular(lu, b, false, true);
    solve_triangular(lu, b, true, false);
    return;
  }
  const Matrix t = lu.transposed();
  solve_triangular(t, b, false, false);
  solve_triangular(t, b, true, true);
  exchange(b, pivots, true);
}

Matrix SmallMatrices::cholesky(const Matrix& m, ValueId& info) {
  const size_t n = m.rows;
  Matrix l{n, n, std::vector<ValueId>(n * n, number(0))};
  info = place(0);
  for (size_t j = 0; j < n; ++j) {
    const auto rest = [&](size_t i) {
      ValueId x = m.at(i, j);
      for (size_t k = 0; k < j; ++k) x = less_product(x, l.at(i, k), l.at(j, k));
      return x;
    };
    const ValueId square = rest(j);
    const ValueId positive = binary("aten.gt.Tensor", square, number(0));
    info = where(
        binary("aten.bitwise_or.Tensor", positive, r_.call("aten.ne.Scalar", {info, int64_t{0}})),
        info, place(j + 1));
    l.at(j, j) = r_.unary("aten.sqrt.default", square);
    for (size_t i = j + 1; i < n; ++i) l.at(i, j) = r_.div(rest(i), l.at(j, j));
  }
  return l;
}

ValueId SmallMatrices::sign(const std::vector<ValueId>& pivots) {
  ValueId sign = number(1);
  for (size_t k = 0; k + 1 < pivots.size(); ++k)
    sign = where(is(pivots[k], k + 1), sign, r_.unary("aten.neg.default", sign));
  return sign;
}

std::optional<ValueId> SmallMatrices::store(const Matrix& m, const TensorType& type,
                                            bool is_vector) {
  const auto dims = static_cast<int64_t>(batch_.size());
  const auto stacked = [&](const Matrix& elements, int64_t dim) {
    ir::List all;
    for (ValueId v : elements.elements) all.items.emplace_back(whole(v));
    return r_.call("aten.stack.default", {std::move(all), dim});
  };
  const auto fits = [&](ValueId v) { return r_.type(v).strides == type.strides; };
  const auto swapped = [&](ValueId v, int64_t d) {
    return r_.call("aten.transpose.int", {v, d, d + 1});
  };
  if (type.is_row_major())
    return is_vector ? stacked(m, dims) : r_.view(stacked(m, dims), type.sizes);
  if (is_vector) {  // the last dimension of the batch lies inside
    if (dims == 0) return std::nullopt;
    const ValueId v = swapped(stacked(m, dims - 1), dims - 1);
    return fits(v) ? std::optional(v) : std::nullopt;
  }
  std::vector<Expr> sizes = type.sizes;
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  const ValueId v = swapped(r_.view(stacked(m.transposed(), dims), sizes), dims);
  return fits(v) ? std::optional(v) : std::nullopt;
}

// Of a size that is known; 0 else.
int64_t known(Expr size) { return size.is_const() ? size.value() : 0; }

// Many square matrices of a few rows.
bool is_small(const TensorType& t) {
  if (t.dim() < 3 || (t.dtype != DType::F32 && t.dtype != DType::F64)) return false;
  const int64_t rows = known(t.sizes.back());
  if (rows < 1 || rows > kMostRows || t.sizes[t.sizes.size() - 2] != t.sizes.back()) return false;
  const Expr count = std::accumulate(t.sizes.begin(), t.sizes.end() - 2, Expr(1),
                                     [](Expr a, Expr b) { return a * b; });
  const Expr few = kFewest;
  return sym::certain_less(count, few) == false ||
         (!count.is_const() && has_hint(count) && sym::hint(count) >= kFewest);
}

// Whether the batch of `b` goes to that of the matrices: its elements then fit theirs.
bool is_right_hand(const TensorType& a, const TensorType& b, bool is_vector, bool left) {
  const int64_t own = is_vector ? 1 : 2;
  if (b.dtype != a.dtype || b.dim() < own || b.dim() - own > a.dim() - 2) return false;
  const int64_t rows = known(from_back(b, 1)), columns = is_vector ? 1 : known(from_back(b, 2));
  if (rows < 1 || columns < 1 || rows * columns > kMostRight) return false;
  if (from_back(b, !is_vector && left ? 2 : 1) != from_back(a, 1)) return false;
  for (int64_t d = 1; d <= b.dim() - own; ++d) {
    const Expr size = from_back(b, own + d);
    if (!size.is_const(1) && size != from_back(a, 2 + d)) return false;
  }
  return true;
}

// The types of a node's results, and `give` for each in turn.
struct Results {
  Rewriter& r;
  const ir::Node& n;
  SmallMatrices& all;
  std::vector<ValueId>& out;

  const TensorType& type() const { return r.type(n.outputs[out.size()]); }
  bool matrix(const Matrix& m) { return give(out, all.store(m, type())); }
  bool value(ValueId v) { return give(out, all.whole(v)); }
  bool factors(const Factors& f) { return matrix(f.lu) && pivots(f); }
  bool pivots(const Factors& f) {
    return give(out, all.store({f.pivots.size(), 1, f.pivots}, type(), true));
  }
};

bool has_false(const Args& a, size_t i) { return a.boolean(i, false) == false; }

// For a determinant ATen factors the transpose of a row-major matrix, which is as LAPACK wants it.
Factors factors_for_det(SmallMatrices& all, const TensorType& t, ValueId v) {
  const Matrix m = all.load(v);
  return all.factor(t.is_contiguous() ? m.transposed() : m);
}

bool decompose_lu_factor(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  if (!is_small(t) || a.boolean(1, true) != true || !has_false(a, 2)) return false;
  SmallMatrices all(r, t);
  const Factors f = all.factor(all.load(n.arg(0).value()));
  Results results{r, n, all, out};
  return results.factors(f) && results.value(f.info);
}

bool decompose_inverse(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  if (!is_small(t) || !has_false(Args(r.graph(), n), 1)) return false;
  SmallMatrices all(r, t);
  const Factors f = all.factor(all.load(n.arg(0).value()));
  Matrix inverse = all.identity(f.lu.rows);
  all.solve(f.lu, f.pivots, inverse, false);
  Results results{r, n, all, out};
  return results.matrix(inverse) && results.value(f.info);
}

bool decompose_det(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  if (!is_small(t)) return false;
  SmallMatrices all(r, t);
  const Factors f = factors_for_det(all, t, n.arg(0).value());
  ValueId product = f.lu.at(0, 0);
  for (size_t k = 1; k < f.lu.rows; ++k) product = r.mul(product, f.lu.at(k, k));
  Results results{r, n, all, out};
  return results.value(r.mul(all.sign(f.pivots), product)) && results.factors(f);
}

bool decompose_slogdet(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  if (!is_small(t)) return false;
  SmallMatrices all(r, t);
  const Factors f = factors_for_det(all, t, n.arg(0).value());
  ValueId sign = all.sign(f.pivots), log = all.number(0);
  for (size_t k = 0; k < f.lu.rows; ++k) {
    const ValueId x = f.lu.at(k, k);
    sign = r.mul(sign, r.unary("aten.sgn.default", x));
    log = r.add(log, r.unary("aten.log.default", r.unary("aten.abs.default", x)));
  }
  Results results{r, n, all, out};
  return results.value(sign) && results.value(log) && results.factors(f);
}

bool decompose_solve(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value()), right = r.type(n.arg(1).value());
  const auto left = a.boolean(2, true);
  const auto vector = is_vector(t, right);
  if (!is_small(t) || !left || !has_false(a, 3) || !vector || (*vector && !*left) ||
      !is_right_hand(t, right, *vector, *left))
    return false;
  SmallMatrices all(r, t);
  const Factors f = all.factor(all.load(n.arg(0).value()));
  const Matrix b = all.load(n.arg(1).value(), *vector);
  // X A = B is A^T X^T = B^T.
  Matrix x = *left ? b : b.transposed();
  all.solve(f.lu, f.pivots, x, !*left);
  Results results{r, n, all, out};
  return give(out, all.store(*left ? x : x.transposed(), results.type(), *vector)) &&
         results.factors(f) && results.value(f.info);
}

bool decompose_lu_solve(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  const auto left = a.boolean(3, true), adjoint = a.boolean(4, false);
  if (!is_small(t) || !left || !adjoint ||
      !is_right_hand(t, r.type(n.arg(2).value()), false, *left) ||
      r.type(n.arg(1).value()).dim() != t.dim() - 1)
    return false;
  SmallMatrices all(r, t);
  const Matrix lu = all.load(n.arg(0).value());
  const Matrix pivots = all.load(n.arg(1).value(), true), b = all.load(n.arg(2).value());
  Matrix x = *left ? b : b.transposed();
  all.solve(lu, pivots.elements, x, *adjoint == *left);
  return Results{r, n, all, out}.matrix(*left ? x : x.transposed());
}

bool decompose_solve_triangular(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  const auto upper = a.boolean(2), left = a.boolean(3, true), unit = a.boolean(4, false);
  if (!is_small(t) || !upper || !left || !unit ||
      !is_right_hand(t, r.type(n.arg(1).value()), false, *left))
    return false;
  SmallMatrices all(r, t);
  const Matrix m = all.load(n.arg(0).value()), b = all.load(n.arg(1).value());
  Matrix x = *left ? b : b.transposed();
  all.solve_triangular(*left ? m : m.transposed(), x, *upper == *left, *unit);
  return Results{r, n, all, out}.matrix(*left ? x : x.transposed());
}

bool decompose_cholesky(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  const auto upper = a.boolean(1, false);
  if (!is_small(t) || !upper || !has_false(a, 2)) return false;
  SmallMatrices all(r, t);
  const Matrix m = all.load(n.arg(0).value());
  ValueId info;
  const Matrix l = all.cholesky(*upper ? m.transposed() : m, info);
  Results results{r, n, all, out};
  return results.matrix(*upper ? l.transposed() : l) && results.value(info);
}

constexpr OpInfo kLinearAlgebraOps[] = {
#include "ops/linear_algebra.def"
};

}  // namespace

std::span<const OpInfo> linear_algebra_ops() { return kLinearAlgebraOps; }

}  // namespace oxy::ops
