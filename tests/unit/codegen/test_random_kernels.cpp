// Random kernels of operations that round exactly, so that every width must give the interpreter's
// bits.
#include <gtest/gtest.h>

#include <random>

#include "kernel_case.h"

namespace oxy::codegen::cpp::testing {
namespace {

// Rows of `width` elements: loads of several dtypes and kinds of index, a chain of operations, a
// reduction of the row that a second loop uses, stores.
class RandomKernel {
 public:
  explicit RandomKernel(uint32_t seed) : random_(seed) {}

  void make(KernelMaker& m) {
    rows_ = pick(1, 6);
    width_ = pick(1, 3) == 1 ? pick(1, 20) : pick(20, 90);
    make_buffers(m);
    const Expr p = m.var("p0", rows_), r = m.var("r0", width_), v = m.var("v0", width_);
    m.open(ForKind::Parallel, p, rows_);
    const DType folded = choose({DType::F32, DType::I64, DType::I32});
    const ReduceKind kind =
        choose({ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax});
    const uint32_t acc = m.init(kind, folded);
    m.open(ForKind::VectorReduce, r, width_);
    values_.clear();
    load_all(m, p, r);
    const uint32_t term =
        is_sum(kind) ? m.op(LoopOp::Cast, folded, {loaded_integer(m, p, r)}) : as(m, any(), folded);
    m.accumulate(acc, term, r);
    m.close();
    const uint32_t result = m.result(acc);
    m.open(ForKind::Vector, v, width_);
    values_.clear();
    values_.push_back({result, kind == ReduceKind::ArgMax ? DType::I64 : folded});
    load_all(m, p, v);
    for (int i = 0; i < pick(2, 9); ++i) add_operation(m);
    const uint32_t value = as(m, values_.back(), out_dtype_);
    m.store(out_dtype_, out_, Expr(width_) * p + v, value, pick(0, 1));
    m.close();
    m.close();
  }

  std::vector<int64_t> sizes() const { return sizes_; }
  long rows() const { return static_cast<long>(rows_); }

 private:
  struct Typed {
    uint32_t value;
    DType dtype;
  };
  enum class Kind : uint8_t { Element, Row, Column, Strided, Reversed };

  template <class T>
  T choose(std::initializer_list<T> list) {
    return list.begin()[pick(0, static_cast<int64_t>(list.size()) - 1)];
  }
  int64_t pick(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }
  static bool is_sum(ReduceKind k) { return k == ReduceKind::Sum; }

  void make_buffers(KernelMaker& m) {
    integers_ = m.in(DType::I32);
    sizes_.push_back(rows_ * width_);
    for (int i = 0; i < pick(1, 4); ++i) {
      dtypes_.push_back(choose({DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16,
                                DType::I64, DType::I32, DType::U8, DType::B8}));
      kinds_.push_back(choose(
          {Kind::Element, Kind::Element, Kind::Row, Kind::Column, Kind::Strided, Kind::Reversed}));
      buffers_.push_back(m.in(dtypes_.back()));
      sizes_.push_back(3 * rows_ * width_);
    }
    out_dtype_ = choose({DType::F32, DType::F64, DType::BF16, DType::I64, DType::B8});
    out_ = m.out(out_dtype_);
    sizes_.push_back(rows_ * width_);
  }

  Expr index(Kind kind, Expr p, Expr v) const {
    switch (kind) {
      case Kind::Element:
        return Expr(width_) * p + v;
      case Kind::Row:
        return p;
      case Kind::Column:
        return v;
      case Kind::Strided:
        return Expr(rows_) * v + p;
      default:
        return Expr(width_) * p + Expr(width_ - 1) - v;
    }
  }

  void load_all(KernelMaker& m, Expr p, Expr v) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      values_.push_back({m.load(dtypes_[i], buffers_[i], index(kinds_[i], p, v)), dtypes_[i]});
    }
  }

  uint32_t loaded_integer(KernelMaker& m, Expr p, Expr v) {
    return m.load(DType::I32, integers_, Expr(width_) * p + v);
  }

  Typed any() {
    return values_[static_cast<size_t>(pick(0, static_cast<int64_t>(values_.size()) - 1))];
  }

  uint32_t as(KernelMaker& m, Typed t, DType to) {
    return t.dtype == to ? t.value : m.op(LoopOp::Cast, to, {t.value});
  }

  void add_operation(KernelMaker& m) {
    const DType d = choose({DType::F32, DType::F64, DType::I64, DType::I32, DType::BF16});
    const uint32_t a = as(m, any(), d), b = as(m, any(), d);
    const int64_t which = pick(0, 4);
    if (which == 0) {
      const LoopOp op = choose({LoopOp::Eq, LoopOp::Lt, LoopOp::Ge, LoopOp::Ne});
      values_.push_back({m.op(op, DType::B8, {a, b}), DType::B8});
    } else if (which == 1) {
      const uint32_t mask = as(m, any(), DType::B8);
      values_.push_back({m.op(LoopOp::Where, d, {mask, a, b}), d});
    } else if (which == 2) {
      values_.push_back({m.op(choose({LoopOp::Neg, LoopOp::Abs, LoopOp::Sign}), d, {a}), d});
    } else {
      const LoopOp op = choose({LoopOp::Add, LoopOp::Sub, LoopOp::Max, LoopOp::Min, LoopOp::Mul});
      // Products are of loaded values only: chains of them would leave what casts to integers
      // define.
      values_.push_back(
          {m.op(op == LoopOp::Mul && values_.size() > buffers_.size() + 3 ? LoopOp::Add : op, d,
                {a, b}),
           d});
    }
  }

  std::mt19937 random_;
  int64_t rows_ = 1, width_ = 1;
  std::vector<int64_t> sizes_;
  std::vector<uint32_t> buffers_;
  std::vector<DType> dtypes_;
  std::vector<Kind> kinds_;
  std::vector<Typed> values_;
  uint32_t integers_ = 0, out_ = 0;
  DType out_dtype_ = DType::F32;
};

TEST(RandomKernels, EveryWidthGivesTheSame) {
  CaseList cases;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomKernel random(seed);
    std::vector<int64_t> sizes;
    long rows = 1;
    auto maker = [&](KernelMaker& m) {
      random.make(m);
      sizes = random.sizes();
      rows = random.rows();
    };
    cases.add_made(cat("seed ", seed), maker, sizes, rows);
  }
  cases.check();
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
