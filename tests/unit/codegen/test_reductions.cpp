// Reductions of rows, columns and of everything, each kind and dtype.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_case.h"

namespace oxy::codegen::cpp::testing {
namespace {

constexpr ReduceKind kKinds[] = {ReduceKind::Sum,    ReduceKind::Prod,  ReduceKind::Max,
                                 ReduceKind::Min,    ReduceKind::Any,   ReduceKind::All,
                                 ReduceKind::ArgMax, ReduceKind::ArgMin};

bool is_arg(ReduceKind k) { return k == ReduceKind::ArgMax || k == ReduceKind::ArgMin; }
bool is_logical(ReduceKind k) { return k == ReduceKind::Any || k == ReduceKind::All; }

DType result_dtype(ReduceKind k, DType d) {
  return is_arg(k) ? DType::I64 : is_logical(k) ? DType::B8 : d;
}

// y[p] = fold over r of x[n p + r]
void rows(KernelMaker& m, ReduceKind kind, DType d, int64_t n, int64_t count) {
  const uint32_t x = m.in(d);
  const uint32_t y = m.out(result_dtype(kind, d));
  const Expr p = m.var("p0"), r = m.var("r0");
  m.open(ForKind::Parallel, p, count);
  const uint32_t acc = m.init(kind, is_logical(kind) ? DType::B8 : d);
  m.open(ForKind::VectorReduce, r, n);
  m.accumulate(acc, m.load(d, x, Expr(n) * p + r), r);
  m.close();
  m.store(result_dtype(kind, d), y, p, m.result(acc));
  m.close();
}

double small_integers(size_t, int64_t at) { return static_cast<double>((at * 7919 + 13) % 11) - 5; }
double nearly_one(size_t, int64_t at) { return 1 + static_cast<double>((at * 31) % 7 - 3) / 64; }
double with_nan(size_t, int64_t at) {
  return at % 37 == 20 ? NAN : static_cast<double>((at * 7919) % 101);
}

TEST(Reductions, RowsOfEveryKind) {
  CaseList cases;
  for (ReduceKind kind : kKinds) {
    for (DType d : {DType::F32, DType::F64, DType::I64, DType::I32, DType::U8}) {
      for (int64_t n : {1, 7, 8, 37, 67}) {
        const auto fill = kind == ReduceKind::Prod ? nearly_one : small_integers;
        if (kind == ReduceKind::Prod && d == DType::U8) continue;
        cases.add(
            cat("rows ", ops::name(kind), ' ', ir::name(d), ' ', n),
            [&](KernelMaker& m) { rows(m, kind, d, n, 3); }, {3 * n, 3}, 64, fill, 3);
      }
    }
  }
  cases.check();
}

TEST(Reductions, RowsOfHalfPrecision) {
  CaseList cases;
  for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax}) {
    for (DType d : {DType::BF16, DType::F16}) {
      cases.add(
          cat("rows ", ops::name(kind), ' ', ir::name(d)),
          [&](KernelMaker& m) { rows(m, kind, d, 43, 3); }, {129, 3}, 0, small_integers, 3);
    }
  }
  cases.check();
}

TEST(Reductions, NanIsTheExtreme) {
  CaseList cases;
  for (ReduceKind kind :
       {ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax, ReduceKind::ArgMin}) {
    cases.add(
        cat("nan ", ops::name(kind)), [&](KernelMaker& m) { rows(m, kind, DType::F32, 75, 4); },
        {300, 4}, 0, with_nan, 4);
  }
  cases.check();
}

TEST(Reductions, LongSumsAreAccurate) {
  CaseList cases;
  const int64_t n = 300'001;
  cases.add(
      "long sum", [&](KernelMaker& m) { rows(m, ReduceKind::Sum, DType::F32, n, 1); }, {n, 1}, 64,
      [](size_t, int64_t at) { return 0.1 + static_cast<double>(at % 3) * 0.01; });
  cases.check();
}

// Softmax of rows with the exponentials kept in a local buffer.
void softmax(KernelMaker& m, int64_t n, int64_t count) {
  const uint32_t x = m.in(DType::F32), y = m.out(DType::F32), t = m.local(DType::F32, n);
  const Expr p = m.var("p0"), r = m.var("r0"), q = m.var("r1"), v = m.var("v0");
  m.open(ForKind::Parallel, p, count);
  const uint32_t top = m.init(ReduceKind::Max, DType::F32);
  m.open(ForKind::VectorReduce, r, n);
  m.accumulate(top, m.load(DType::F32, x, Expr(n) * p + r));
  m.close();
  const uint32_t most = m.result(top);
  const uint32_t total = m.init(ReduceKind::Sum, DType::F32);
  m.open(ForKind::VectorReduce, q, n);
  const uint32_t shifted =
      m.op(LoopOp::Sub, DType::F32, {m.load(DType::F32, x, Expr(n) * p + q), most});
  const uint32_t e = m.op(LoopOp::Exp, DType::F32, {shifted});
  m.store(DType::F32, t, q, e);
  m.accumulate(total, e);
  m.close();
  const uint32_t sum = m.result(total);
  m.open(ForKind::Vector, v, n);
  m.store(DType::F32, y, Expr(n) * p + v,
          m.op(LoopOp::Div, DType::F32, {m.load(DType::F32, t, v), sum}));
  m.close();
  m.close();
}

TEST(Reductions, Softmax) {
  CaseList cases;
  for (int64_t n : {1, 9, 64, 101}) {
    cases.add(
        cat("softmax ", n), [&](KernelMaker& m) { softmax(m, n, 3); }, {3 * n, 3 * n}, 16, {}, 3);
  }
  cases.check();
}

// A window of three along rows: the accumulator belongs to a lane.
TEST(Reductions, InsideAVectorLoop) {
  CaseList cases;
  for (int64_t n : {3, 8, 29}) {
    const auto make = [&](KernelMaker& m) {
      const uint32_t x = m.in(DType::F32), y = m.out(DType::F32);
      const Expr v = m.var("v0"), r = m.var("r0");
      m.open(ForKind::Vector, v, n);
      const uint32_t acc = m.init(ReduceKind::Max, DType::F32);
      m.open(ForKind::Reduce, r, 3);
      m.accumulate(acc, m.load(DType::F32, x, v + r));
      m.close();
      m.store(DType::F32, y, v, m.result(acc));
      m.close();
    };
    cases.add(cat("window ", n), make, {n + 2, n}, 0);
  }
  cases.check();
}

// y[p, r, c] = fold over c' <= c of x[p, r, c'] * s[r] + c: rows are lanes, the last block of each
// iteration has fewer.
void row_scans(KernelMaker& m, ReduceKind kind, DType d, int64_t rows, int64_t columns,
               bool streaming) {
  const uint32_t x = m.in(d), s = m.in(d), y = m.out(d);
  const Expr p = m.var("p0"), b = m.var("p1"), v = m.var("v0", 8), c = m.var("i0");
  const Expr row = b * 8 + v, at = (p * rows + row) * columns + c;
  m.open(ForKind::Parallel, p, 2);
  m.open(ForKind::Parallel, b, (rows + 7) / 8);
  m.open(ForKind::Vector, v, rows % 8 ? sym::min(8, Expr(rows) - b * 8) : Expr(8), true);
  const uint32_t acc = m.init(kind, d);
  m.open(ForKind::Serial, c, columns);
  const uint32_t scaled = m.op(LoopOp::Mul, d, {m.load(d, x, at), m.load(d, s, row)});
  m.accumulate(acc, m.op(LoopOp::Add, d, {scaled, m.op(LoopOp::Cast, d, {m.index(c)})}));
  m.store(d, y, at, m.result(acc), streaming);
  m.close();
  m.close();
  m.close();
  m.close();
}

TEST(Reductions, ScansWithRowsAsLanes) {
  CaseList cases;
  for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max}) {
    for (DType d :
         {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::I16, DType::U8}) {
      if (kind != ReduceKind::Sum && d != DType::F32 && d != DType::I16) continue;
      for (int64_t columns : {7, 64, 75}) {
        for (int64_t rows : {8, 21}) {
          const long iterations = 2 * ((rows + 7) / 8);
          cases.add(
              cat("scan ", ops::name(kind), ' ', ir::name(d), ' ', rows, " x ", columns),
              [&](KernelMaker& m) { row_scans(m, kind, d, rows, columns, columns % 2 == 0); },
              {2 * rows * columns, rows, 2 * rows * columns}, 0,
              [=](size_t buffer, int64_t i) {
                return static_cast<double>(buffer ? i % 2 : kind == ReduceKind::Prod ? -1 : i % 3);
              },
              iterations);
        }
      }
    }
  }
  cases.check();
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
