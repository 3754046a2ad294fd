// Single statements: every op on every dtype, casts, kinds of indices, masks, checks, scatters,
// transposed tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "interpreter.h"
#include "kernel_case.h"

namespace oxy::codegen::cpp::testing {
namespace {

constexpr int64_t kSize = 45;  // vectors, then a tail, at every width

// out[i] = op(in0[i], in1[i], ..)
void apply(KernelMaker& m, LoopOp op, DType from, DType to, int operands) {
  std::vector<uint32_t> in;
  for (int i = 0; i < operands; ++i) in.push_back(m.in(from));
  const uint32_t out = m.out(to);
  const Expr v = m.var("v0");
  m.open(ForKind::Vector, v, kSize);
  std::vector<uint32_t> args;
  for (uint32_t b : in) args.push_back(m.load(from, b, v));
  m.store(to, out, v, m.op(op, to, args));
  m.close();
}

std::vector<int64_t> sizes_of(int operands) {
  return std::vector<int64_t>(static_cast<size_t>(operands) + 1, kSize);
}

double integers(size_t buffer, int64_t at) {
  const double v = static_cast<double>((at * 7919 + static_cast<int64_t>(buffer) * 131) % 100) - 50;
  return buffer == 1 && v == 0 ? 3 : v;  // no division by zero here
}

double positive(size_t buffer, int64_t at) {
  return 0.05 + static_cast<double>((at * 37 + static_cast<int64_t>(buffer) * 11) % 80) / 90;
}

TEST(Statements, ArithmeticOfEveryDtype) {
  CaseList cases;
  for (DType d : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32,
                  DType::I16, DType::I8, DType::U8}) {
    for (LoopOp op : {LoopOp::Add, LoopOp::Sub, LoopOp::Mul, LoopOp::Div, LoopOp::FloorDiv,
                      LoopOp::Mod, LoopOp::Fmod, LoopOp::Max, LoopOp::Min, LoopOp::Neg, LoopOp::Abs,
                      LoopOp::Sign, LoopOp::Gcd}) {
      if (op == LoopOp::Gcd && ir::is_floating(d)) continue;
      const int n = ops::arity(op);
      cases.add(
          cat(ops::name(op), ' ', ir::name(d)), [&](KernelMaker& m) { apply(m, op, d, d, n); },
          sizes_of(n), 2, integers);
    }
    for (LoopOp op : {LoopOp::Eq, LoopOp::Ne, LoopOp::Lt, LoopOp::Le, LoopOp::Gt, LoopOp::Ge}) {
      cases.add(
          cat(ops::name(op), ' ', ir::name(d)),
          [&](KernelMaker& m) { apply(m, op, d, DType::B8, 2); }, sizes_of(2), 0,
          [](size_t, int64_t at) { return static_cast<double>(at % 3); });
    }
  }
  cases.check();
}

TEST(Statements, FloatingPoint) {
  CaseList cases;
  for (DType d : {DType::F32, DType::F64, DType::BF16}) {
    for (int i = 0; i < static_cast<int>(LoopOp::Count); ++i) {
      const auto op = static_cast<LoopOp>(i);
      const ops::LoopClass cls = ops::class_of(op);
      const bool test = op == LoopOp::IsNan || op == LoopOp::IsInf;
      const bool iterated = cls == ops::LoopClass::Iterated;
      if (!test && !iterated && cls != ops::LoopClass::Math) continue;
      const int n = ops::arity(op);
      const auto filled = [=](size_t buffer, int64_t at) {
        if (iterated && op != LoopOp::Zeta && static_cast<int>(buffer) == n - 1)
          return static_cast<double>(at % 14 - 2);
        return positive(buffer, at) + (op == LoopOp::Acosh);
      };
      cases.add(
          cat(ops::name(op), ' ', ir::name(d)),
          [&](KernelMaker& m) { apply(m, op, d, test ? DType::B8 : d, n); }, sizes_of(n), 8,
          filled);
    }
    cases.add(
        cat("fma ", ir::name(d)), [&](KernelMaker& m) { apply(m, LoopOp::Fma, d, d, 3); },
        sizes_of(3), 2);
  }
  const auto special = [](size_t buffer, int64_t at) {
    constexpr double kValues[] = {NAN, INFINITY, -INFINITY, -0.0, 0, 1, -2.5};
    return kValues[(at / (buffer ? 7 : 1)) % 7];
  };
  for (LoopOp op :
       {LoopOp::Max, LoopOp::Min, LoopOp::Add, LoopOp::CopySign, LoopOp::Round, LoopOp::Sign}) {
    const int n = ops::arity(op);
    cases.add(
        cat("special ", ops::name(op)),
        [&](KernelMaker& m) { apply(m, op, DType::F32, DType::F32, n); }, sizes_of(n), 0, special);
  }
  for (LoopOp op : {LoopOp::IsNan, LoopOp::IsInf}) {
    cases.add(
        cat("special ", ops::name(op)),
        [&](KernelMaker& m) { apply(m, op, DType::F32, DType::B8, 1); }, sizes_of(1), 0, special);
  }
  cases.check();
}

// Lanes of one vector take different methods, or lie outside. In the tails an exponential
// multiplies roundings.
TEST(Statements, IncompleteGamma) {
  CaseList cases;
  const auto methods = [](size_t buffer, int64_t at) {
    constexpr double kA[] = {0.01, 0.3, 1, 5, 9.5, 10, 25, 250, 1e4};
    constexpr double kRatio[] = {0.1, 0.6, 0.99, 1.3, 2};
    const double a = kA[at % 9];
    return buffer ? a * kRatio[at / 9 % 5] : a;
  };
  const auto edges = [](size_t buffer, int64_t at) {
    constexpr double kValues[] = {NAN, INFINITY, -INFINITY, -0.0, 0, 1, -2.5};
    return kValues[(at / (buffer ? 7 : 1)) % 7];
  };
  for (LoopOp op : {LoopOp::GammaP, LoopOp::GammaQ}) {
    const auto make = [op](KernelMaker& m) { apply(m, op, DType::F64, DType::F64, 2); };
    cases.add(cat("methods ", ops::name(op)), make, sizes_of(2), 1e4, methods);
    cases.add(cat("edges ", ops::name(op)), make, sizes_of(2), 8, edges);
  }
  cases.check();
}

TEST(Statements, Logic) {
  CaseList cases;
  for (DType d : {DType::I64, DType::I32, DType::I16, DType::U8, DType::B8}) {
    for (LoopOp op :
         {LoopOp::And, LoopOp::Or, LoopOp::Xor, LoopOp::Not, LoopOp::Shl, LoopOp::Shr}) {
      if (d == DType::B8 && (op == LoopOp::Shl || op == LoopOp::Shr)) continue;
      const int n = ops::arity(op);
      const auto fill = [](size_t buffer, int64_t at) {
        return buffer == 1 ? static_cast<double>(at % 70 - 2) : static_cast<double>(at * 3 % 128);
      };
      cases.add(
          cat(ops::name(op), ' ', ir::name(d)), [&](KernelMaker& m) { apply(m, op, d, d, n); },
          sizes_of(n), 0, fill);
    }
  }
  for (LoopOp op : {LoopOp::Eq, LoopOp::Ne, LoopOp::Lt, LoopOp::Le, LoopOp::Gt, LoopOp::Ge}) {
    cases.add(
        cat(ops::name(op), " b8"), [&](KernelMaker& m) { apply(m, op, DType::B8, DType::B8, 2); },
        sizes_of(2), 0);
  }
  cases.check();
}

TEST(Statements, Casts) {
  CaseList cases;
  const DType all[] = {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64,
                       DType::I32, DType::I16, DType::I8,   DType::U8,  DType::B8};
  for (DType from : all) {
    for (DType to : all) {
      if (from == to) continue;
      const bool to_unsigned = to == DType::U8;
      const auto fill = [=](size_t, int64_t at) {
        return to_unsigned ? static_cast<double>(at) * 1.7 : static_cast<double>(at - 20) * 1.37;
      };
      cases.add(
          cat(ir::name(from), " to ", ir::name(to)),
          [&](KernelMaker& m) { apply(m, LoopOp::Cast, from, to, 1); }, sizes_of(1), 0, fill);
    }
  }
  for (DType d : {DType::BF16, DType::F16}) {  // every exponent, ties, denormals, overflow
    cases.add(
        cat("round to ", ir::name(d)),
        [&](KernelMaker& m) { apply(m, LoopOp::Cast, DType::F32, d, 1); }, sizes_of(1), 0,
        [](size_t, int64_t at) {
          return std::ldexp(1 + 1.0 / 2048 + static_cast<double>(at % 5) / 256,
                            static_cast<int>(at) - 26);
        });
  }
  cases.add(
      "bitcast", [&](KernelMaker& m) { apply(m, LoopOp::Bitcast, DType::F32, DType::I32, 1); },
      sizes_of(1), 0);
  cases.add(
      "bitcast 64", [&](KernelMaker& m) { apply(m, LoopOp::Bitcast, DType::I64, DType::F64, 1); },
      sizes_of(1), 0);
  cases.check();
}

// out[i] = in[index(i)] and out[index(i)] = in[i]
TEST(Statements, Indices) {
  CaseList cases;
  for (DType d : {DType::F32, DType::F64, DType::BF16, DType::U8, DType::B8}) {
    const auto both = [&](const char* what, const std::function<Expr(Expr)>& index, int64_t span) {
      const auto load = [&](KernelMaker& m) {
        const uint32_t x = m.in(d), y = m.out(d);
        const Expr v = m.var("v0", kSize);
        m.open(ForKind::Vector, v, kSize);
        m.store(d, y, v, m.load(d, x, index(v)));
        m.close();
      };
      const auto store = [&](KernelMaker& m) {
        const uint32_t x = m.in(d), y = m.out(d);
        const Expr v = m.var("v0", kSize);
        m.open(ForKind::Vector, v, kSize);
        m.store(d, y, index(v), m.load(d, x, v));
        m.close();
      };
      cases.add(cat("load ", what, ' ', ir::name(d)), load, {span, kSize}, 0);
      if (std::string_view(what) != "uniform")
        cases.add(cat("store ", what, ' ', ir::name(d)), store, {kSize, span}, 0);
    };
    both("uniform", [](Expr) { return Expr(3); }, kSize);
    both("contiguous", [](Expr v) { return v + Expr(2); }, kSize + 2);
    both("reversed", [](Expr v) { return Expr(kSize - 1) - v; }, kSize);
    both("strided", [](Expr v) { return Expr(3) * v + Expr(1); }, 3 * kSize);
    both("blocks", [](Expr v) { return sym::floordiv(v, 7) * Expr(20) + sym::mod(v, 7); }, 160);
  }
  cases.check();
}

// Lanes that read within a vector of each other, in order, backwards, far apart, up to the buffer's
// end; with a mask.
TEST(Statements, Gathers) {
  constexpr int64_t kSpan = 400;
  const auto place = [](int64_t way, int64_t at) {
    if (way == 0) return kSpan - 1 - (kSize - 1 - at) / 2;  // in order, twice each
    if (way == 1) return kSpan - 1 - at;
    if (way == 2) return at * 137 % kSpan;
    if (way == 3) return at % 8 == 5 ? kSpan - 1 : at;  // one lane far away
    return at % 16 < 9 ? int64_t{20} : int64_t{35};
  };
  CaseList cases;
  for (DType d : {DType::F32, DType::I32, DType::F64, DType::I64, DType::BF16, DType::B8}) {
    for (int64_t way = 0; way < 5; ++way) {
      const auto lookup = [&](KernelMaker& m) {
        const uint32_t at = m.in(DType::I64), x = m.in(d), y = m.out(d), z = m.out(d);
        const Expr v = m.var("v0", kSize), s = m.pool.symbol("s0", {0, kSpan - 1});
        m.open(ForKind::Vector, v, kSize);
        const uint32_t i = m.load(DType::I64, at, v);
        m.check(i, kSpan);
        m.symbol(i, s);
        const uint32_t some =
            m.op(LoopOp::Lt, DType::B8, {m.index(sym::mod(v, 5)), m.constant(DType::I64, 3)});
        m.store(d, y, v, m.load(d, x, Expr(2) * s + v + Expr(3)));
        m.store(d, z, v, m.load(d, x, s, {some, m.constant(d, 7)}));
        m.close();
      };
      cases.add(cat("gather ", ir::name(d), ' ', way), lookup,
                {kSize, 2 * kSpan + kSize + 3, kSize, kSize}, 0, [=](size_t b, int64_t at) {
                  return static_cast<double>(b == 0 ? place(way, at) : at % 120);
                });
    }
  }
  cases.check();
}

// Rows read at the places of a table, the same at each iteration or each iteration's own: near to
// each other but for any one place, in a vector, narrower than one, farther apart, backwards.
TEST(Statements, GathersAtPlacesOfTables) {
  constexpr int64_t kOff[] = {20, -20, -2, -3};  // for which one place is off
  constexpr int64_t kVectors = 48;               // places, no rest at any width
  constexpr int64_t kOneOff = 4 * kVectors, kWays = kOneOff + 6, kSpan = 400, kRows = 4;
  const auto place = [](int64_t way, int64_t at) {
    const int64_t near = 25 + at * 3 / 4;
    if (way < kOneOff) return near + (at == way / 4 ? kOff[way % 4] : 0);
    switch (way - kOneOff) {
      case 0:
        return near;
      case 1:
        return at;
      case 2:
        return at + (at >= 37);
      case 3:
        return at / 8;
      case 4:
        return at * 7;
      default:
        return kSpan - 1 - at;
    }
  };
  CaseList cases;
  const auto rows = [&](KernelMaker& m, DType d, int64_t size, bool own) {
    const uint32_t at = m.in(DType::I64), x = m.in(d), y = m.out(d);
    const uint32_t table = m.local(DType::I32, size);
    const Expr p = m.var("p0", kWays), r = m.var("r0", kRows), v = m.var("v0", size);
    const Expr s = m.pool.symbol("s0", {0, kSpan - 1});
    m.open(ForKind::Parallel, p, kWays);
    m.open(ForKind::Vector, v, size);
    const uint32_t entry = m.load(DType::I64, at, own ? Expr(size) * p + v : v);
    m.store(DType::I32, table, v, m.op(LoopOp::Cast, DType::I32, {entry}));
    m.close();
    m.open(ForKind::Serial, r, kRows);
    m.open(ForKind::Vector, v, size);
    m.symbol(m.op(LoopOp::Cast, DType::I64, {m.load(DType::I32, table, v)}), s);
    const uint32_t here = m.load(d, x, Expr(10) * r + s), next = m.load(d, x, Expr(10) * r + s + 1);
    m.store(d, y, Expr(size * kRows) * p + Expr(size) * r + v,
            d == DType::B8 ? here : m.op(LoopOp::Sub, d, {here, next}));
    m.close();
    m.close();
    m.close();
  };
  const auto add = [&](DType d, int64_t size, int64_t way) {
    cases.add(
        cat("table ", ir::name(d), ' ', size, ' ', way),
        [&](KernelMaker& m) { rows(m, d, size, way < 0); },
        {kWays * size, kSpan + 10 * kRows, kWays * kRows * size}, 0,
        [=](size_t b, int64_t at) {
          if (b == 0) return static_cast<double>(place(way < 0 ? at / size : way, at % size));
          return static_cast<double>(at * at % 113);
        },
        kWays);
  };
  for (DType d : {DType::F32, DType::I32, DType::F64, DType::BF16, DType::U8, DType::B8}) {
    for (int64_t size : {kSize, kVectors}) {
      add(d, size, -1);
      for (int64_t way = 0; way < 6; way += 2) add(d, size, kOneOff + way);
    }
  }
  cases.check();
}

// Gathered rows: a loaded index, checked, and a mask that keeps the others from being read.
TEST(Statements, IndirectAndMasked) {
  CaseList cases;
  const auto lookup = [](KernelMaker& m) {
    const uint32_t at = m.in(DType::I64), x = m.in(DType::F32), y = m.out(DType::F32);
    const Expr v = m.var("v0"), s = m.pool.symbol("s0", {0, 9});
    m.open(ForKind::Vector, v, kSize);
    const uint32_t i = m.load(DType::I64, at, v);
    m.check(i, 10);
    m.symbol(i, s);
    m.store(DType::F32, y, v, m.load(DType::F32, x, Expr(2) * s + Expr(1)));
    m.close();
  };
  cases.add("lookup", lookup, {kSize, 20, kSize}, 0,
            [](size_t b, int64_t at) { return static_cast<double>(b == 0 ? at * 7 % 10 : at); });
  cases.add("lookup out of range", lookup, {kSize, 20, kSize}, 0, [](size_t b, int64_t at) {
    return static_cast<double>(b == 0 ? (at == kSize - 1 ? 10 : 3) : at);
  });
  const auto rows = [](KernelMaker& m) {
    const uint32_t at = m.in(DType::I64), x = m.in(DType::F32), y = m.out(DType::F32);
    const Expr p = m.var("p0"), v = m.var("v0"), s = m.pool.symbol("s0", {0, 9});
    m.open(ForKind::Parallel, p, 5);
    m.open(ForKind::Vector, v, kSize);
    const uint32_t i = m.load(DType::I64, at, p);
    m.check(i, 10);
    m.symbol(i, s);
    m.store(DType::F32, y, Expr(kSize) * p + v, m.load(DType::F32, x, Expr(kSize) * s + v));
    m.close();
    m.close();
  };
  cases.add(
      "rows", rows, {5, 10 * kSize, 5 * kSize}, 0,
      [](size_t b, int64_t at) { return static_cast<double>(b == 0 ? at * 7 % 10 : at); }, 5);
  for (DType d : {DType::F32, DType::BF16, DType::I64, DType::B8}) {
    const auto padded = [&](KernelMaker& m) {
      const uint32_t x = m.in(d), y = m.out(d);
      const Expr v = m.var("v0");
      m.open(ForKind::Vector, v, kSize);
      const uint32_t i = m.index(v - Expr(4));
      const uint32_t low = m.op(LoopOp::Ge, DType::B8, {i, m.constant(DType::I64, 0)});
      const uint32_t high = m.op(LoopOp::Lt, DType::B8, {i, m.constant(DType::I64, 30)});
      const uint32_t inside = m.op(LoopOp::And, DType::B8, {low, high});
      const uint32_t zero = m.constant(d, 0);
      m.store(d, y, v, m.load(d, x, v - Expr(4), {inside, zero}));
      m.close();
    };
    cases.add(cat("padded ", ir::name(d)), padded, {30, kSize}, 0);
  }
  // Every second element: up to the buffer's end; of those within bounds, without one between them.
  for (DType d : {DType::F32, DType::I32, DType::BF16, DType::I64, DType::B8}) {
    const auto seconds = [&](KernelMaker& m) {
      const uint32_t x = m.in(d), y = m.out(d), z = m.out(d);
      const Expr v = m.var("v0");
      m.open(ForKind::Vector, v, kSize);
      const uint32_t i = m.index(Expr(2) * v - Expr(3));
      const uint32_t low = m.op(LoopOp::Ge, DType::B8, {i, m.constant(DType::I64, 0)});
      const uint32_t high = m.op(LoopOp::Lt, DType::B8, {i, m.constant(DType::I64, 60)});
      const uint32_t hole = m.op(LoopOp::Ne, DType::B8, {i, m.constant(DType::I64, 35)});
      const uint32_t some =
          m.op(LoopOp::And, DType::B8, {m.op(LoopOp::And, DType::B8, {low, high}), hole});
      m.store(d, y, v, m.load(d, x, Expr(2) * v - Expr(3), {some, m.constant(d, 7)}));
      m.store(d, z, v, m.load(d, x, Expr(2) * v));
      m.close();
    };
    cases.add(cat("every second ", ir::name(d)), seconds, {2 * kSize - 1, kSize, kSize}, 0);
  }
  const auto where = [](KernelMaker& m) {
    const uint32_t c = m.in(DType::B8), x = m.in(DType::F64), y = m.out(DType::F64);
    const Expr v = m.var("v0");
    m.open(ForKind::Vector, v, kSize);
    const uint32_t chosen =
        m.op(LoopOp::Where, DType::F64,
             {m.load(DType::B8, c, v), m.load(DType::F64, x, v), m.constant(DType::F64, 7)});
    m.store(DType::F64, y, v, chosen);
    m.close();
  };
  cases.add("where", where, {kSize, kSize, kSize}, 0);
  const auto scatter = [](KernelMaker& m) {
    const uint32_t at = m.in(DType::I64), x = m.in(DType::F32);
    const uint32_t y = m.buffer(schedule::KernelBuffer::Kind::ReadWrite, DType::F32);
    const Expr v = m.var("v0"), s = m.pool.symbol("s0", {0, 9});
    m.open(ForKind::Vector, v, kSize);
    const uint32_t i = m.load(DType::I64, at, v);
    m.check(i, 10);
    m.symbol(i, s);
    m.store(DType::F32, y, s, m.load(DType::F32, x, v), false, LoopOp::StoreAdd);
    m.close();
  };
  cases.add("scatter", scatter, {kSize, kSize, 10}, 0,
            [](size_t, int64_t at) { return static_cast<double>(at % 10); });
  cases.check();
}

TEST(Statements, DivisionByZeroSetsTheStatus) {
  CaseList cases;
  for (LoopOp op : {LoopOp::Div, LoopOp::FloorDiv, LoopOp::Mod}) {
    cases.add(
        cat(ops::name(op), " by zero"),
        [&](KernelMaker& m) { apply(m, op, DType::I64, DType::I64, 2); }, sizes_of(2), 0,
        [](size_t b, int64_t at) { return static_cast<double>(b ? at % 5 : at + 1); });
  }
  cases.add(
      "smallest by -1", [&](KernelMaker& m) { apply(m, LoopOp::Div, DType::I32, DType::I32, 2); },
      sizes_of(2), 0, [](size_t b, int64_t) { return b ? -1.0 : -2147483648.0; });
  cases.check();
}

// Rows that begin anywhere in a line: their first lanes are stored apart.
TEST(Statements, StreamedRows) {
  CaseList cases;
  for (DType d : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::U8, DType::B8}) {
    for (int64_t columns : {64, 67, 129}) {
      const auto make = [&](KernelMaker& m) {
        const uint32_t x = m.in(d), y = m.out(d);
        const Expr p = m.var("p0"), v = m.var("v0");
        m.open(ForKind::Parallel, p, 17);
        m.open(ForKind::Vector, v, columns);
        const uint32_t w = m.load(d, x, Expr(columns) * p + v);
        m.store(d, y, Expr(columns + 3) * p + v + 1, w, true);
        m.close();
        m.close();
      };
      cases.add(cat("streamed ", ir::name(d), ' ', columns), make,
                {17 * columns, 17 * (columns + 3)}, 0, {}, 17);
    }
  }
  cases.check();
}

TEST(Statements, TransposedTiles) {
  CaseList cases;
  for (DType d : {DType::F32, DType::I32, DType::F64, DType::BF16, DType::U8, DType::B8}) {
    for (auto [rows, columns] :
         {std::pair<int64_t, int64_t>{70, 131}, {5, 3}, {64, 64}, {129, 16}}) {
      for (ForKind outer : {ForKind::Parallel, ForKind::Serial}) {
        const auto make = [&, rows = rows, columns = columns](KernelMaker& m) {
          const uint32_t x = m.in(d), z = m.in(d), y = m.out(d);
          const Expr p = m.var("p0"), v = m.var("v0");
          m.open(outer, p, rows);
          m.open(ForKind::Vector, v, columns, true);
          const uint32_t across = m.load(d, x, Expr(rows) * v + p);
          const uint32_t along = m.load(d, z, Expr(columns) * p + v);
          const LoopOp both = d == DType::B8 ? LoopOp::Or : LoopOp::Add;
          m.store(d, y, Expr(columns) * p + v, m.op(both, d, {across, along}), rows > columns);
          m.close();
          m.close();
        };
        cases.add(cat("tiles ", ir::name(d), ' ', rows, " x ", columns), make,
                  {rows * columns, rows * columns, rows * columns}, 0, {},
                  outer == ForKind::Parallel ? rows : 1);
      }
    }
  }
  cases.check();
}

TEST(Statements, NestedParallelLoops) {
  CaseList cases;
  const auto make = [](KernelMaker& m) {
    const uint32_t x = m.in(DType::F32), y = m.out(DType::F32);
    const Expr p = m.var("p0"), q = m.var("p1"), r = m.var("p2"), v = m.var("v0");
    m.open(ForKind::Parallel, p, 3);
    m.open(ForKind::Parallel, q, 4);
    m.open(ForKind::Parallel, r, 5);
    m.open(ForKind::Vector, v, 9);
    const Expr from = Expr(9 * 5) * (Expr(4) * p + q) + Expr(9) * r + v;
    const Expr to = Expr(9 * 3) * (Expr(4) * r + q) + Expr(9) * p + v;
    m.store(DType::F32, y, to, m.load(DType::F32, x, from));
    m.close();
    m.close();
    m.close();
    m.close();
  };
  cases.add("three loops", make, {540, 540}, 0, {}, 60);
  cases.check();
}

// Names of loop variables and buffers are numbered, and there are types i8, i16, i32, i64 and b8.
TEST(Statements, ManyLoops) {
  CaseList cases;
  constexpr DType kTo[] = {DType::F32, DType::I64, DType::I32, DType::I16, DType::I8, DType::B8};
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 11; ++i) sizes.push_back(7 * kSize);
  const auto make = [&](KernelMaker& m) {
    std::vector<uint32_t> to;
    for (size_t i = 0; i < sizes.size(); ++i) to.push_back(m.out(kTo[i % std::size(kTo)]));
    for (size_t i = 0; i < 66; ++i) {
      const Expr row = m.var(cat("r", i).c_str(), 7), v = m.var(cat("v", i).c_str(), kSize);
      const DType dtype = kTo[i % to.size() % std::size(kTo)];
      m.open(ForKind::Serial, row, 7);
      m.open(ForKind::Vector, v, kSize);
      const Expr place = Expr(kSize) * row + v;
      const uint32_t sum = m.op(LoopOp::Add, DType::I64, {m.index(row), m.index(v)});
      m.store(dtype, to[i % to.size()], place,
              dtype == DType::I64 ? sum : m.op(LoopOp::Cast, dtype, {sum}));
      m.close();
      m.close();
    }
  };
  cases.add("many loops", make, sizes, 0);
  cases.check();
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
