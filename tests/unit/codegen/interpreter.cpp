// Each statement and operation on scalars, with checks of every access.
#include "interpreter.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "reference/inverse_erf.h"
#include "reference/iterated.h"
#include "support/check.h"

namespace oxy::codegen::cpp::testing {

namespace {

using ir::DType;
using ops::LoopOp;
using ops::ReduceKind;
using schedule::Accumulate;
using schedule::Block;
using schedule::Compute;
using schedule::For;
using schedule::Init;
using schedule::Result;
using schedule::Stmt;
using sym::Expr;

// A number of either kind: `f` for floating dtypes, `i` for the others.
struct Number {
  double f = 0;
  int64_t i = 0;
};

float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return static_cast<float>(mantissa ? NAN : sign * INFINITY);
  if (exponent == 0) return static_cast<float>(sign * std::ldexp(mantissa, -24));
  return static_cast<float>(sign * std::ldexp(1024 + mantissa, exponent - 25));
}

uint16_t float_to_half(double v) {
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return 0x7e00;
  const double size = std::fabs(static_cast<double>(static_cast<float>(v)));
  if (size >= 65520) return sign | 0x7c00;
  if (size == 0) return sign;
  int exponent = std::max(std::ilogb(size), -14);
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + mantissa));
}

uint16_t float_to_bf16(double v) {
  const float f = static_cast<float>(v);
  if (std::isnan(f)) return 0x7fc0;
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t low = bits & 0xffff;
  const uint32_t up = low > 0x8000 || (low == 0x8000 && (bits >> 16 & 1));
  return static_cast<uint16_t>((bits >> 16) + up);
}

// Rounds to what the dtype holds.
Number rounded(DType d, Number v) {
  switch (d) {
    case DType::F32:
      v.f = static_cast<float>(v.f);
      break;
    case DType::BF16:
      v.f = std::bit_cast<float>(static_cast<uint32_t>(float_to_bf16(v.f)) << 16);
      break;
    case DType::F16:
      v.f = half_to_float(float_to_half(v.f));
      break;
    case DType::I32:
      v.i = static_cast<int32_t>(v.i);
      break;
    case DType::I16:
      v.i = static_cast<int16_t>(v.i);
      break;
    case DType::I8:
      v.i = static_cast<int8_t>(v.i);
      break;
    case DType::U8:
      v.i = static_cast<uint8_t>(v.i);
      break;
    case DType::B8:
      v.i = v.i != 0;
      break;
    default:
      break;
  }
  return v;
}

Number read(DType d, const void* memory, int64_t at) {
  Number v;
  const auto get = [&](auto zero) {
    std::memcpy(&zero, static_cast<const char*>(memory) + at * static_cast<int64_t>(sizeof zero),
                sizeof zero);
    return zero;
  };
  switch (d) {
    case DType::F32:
      v.f = get(0.0f);
      break;
    case DType::F64:
      v.f = get(0.0);
      break;
    case DType::F16:
      v.f = half_to_float(get(uint16_t{}));
      break;
    case DType::BF16:
      v.f = std::bit_cast<float>(static_cast<uint32_t>(get(uint16_t{})) << 16);
      break;
    case DType::I64:
      v.i = get(int64_t{});
      break;
    case DType::I32:
      v.i = get(int32_t{});
      break;
    case DType::I16:
      v.i = get(int16_t{});
      break;
    case DType::I8:
      v.i = get(int8_t{});
      break;
    case DType::U8:
      v.i = get(uint8_t{});
      break;
    case DType::B8:
      v.i = get(uint8_t{}) != 0;
      break;
    default:
      OXY_FAIL("dtype of a test");
  }
  return v;
}

void write(DType d, void* memory, int64_t at, Number v) {
  const auto put = [&](auto x) {
    std::memcpy(static_cast<char*>(memory) + at * static_cast<int64_t>(sizeof x), &x, sizeof x);
  };
  switch (d) {
    case DType::F32:
      return put(static_cast<float>(v.f));
    case DType::F64:
      return put(v.f);
    case DType::F16:
      return put(float_to_half(v.f));
    case DType::BF16:
      return put(float_to_bf16(v.f));
    case DType::I64:
      return put(v.i);
    case DType::I32:
      return put(static_cast<int32_t>(v.i));
    case DType::I16:
      return put(static_cast<int16_t>(v.i));
    case DType::I8:
      return put(static_cast<int8_t>(v.i));
    case DType::U8:
      return put(static_cast<uint8_t>(v.i));
    case DType::B8:
      return put(static_cast<uint8_t>(v.i != 0));
    default:
      OXY_FAIL("dtype of a test");
  }
}

double float_op(LoopOp op, double a, double b, double c) {
  switch (op) {
    case LoopOp::Add:
      return a + b;
    case LoopOp::Sub:
      return a - b;
    case LoopOp::Mul:
      return a * b;
    case LoopOp::Div:
      return a / b;
    case LoopOp::Fmod:
      return std::fmod(a, b);
    case LoopOp::Mod: {
      const double r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case LoopOp::FloorDiv:
      return b == 0 ? a / b : std::floor(a / b);
    case LoopOp::Max:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case LoopOp::Min:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case LoopOp::Neg:
      return -a;
    case LoopOp::Abs:
      return std::fabs(a);
    case LoopOp::Sign:
      return (a > 0) - (a < 0);
    case LoopOp::Fma:
      return std::fma(a, b, c);
    case LoopOp::Sqrt:
      return std::sqrt(a);
    case LoopOp::Rsqrt:
      return 1 / std::sqrt(a);
    case LoopOp::Reciprocal:
      return 1 / a;
    case LoopOp::Floor:
      return std::floor(a);
    case LoopOp::Ceil:
      return std::ceil(a);
    case LoopOp::Round:
      return std::nearbyint(a);
    case LoopOp::Trunc:
      return std::trunc(a);
    case LoopOp::CopySign:
      return std::copysign(a, b);
#define MATH(op, f) \
  case LoopOp::op:  \
    return std::f(a)
      MATH(Exp, exp);
      MATH(Exp2, exp2);
      MATH(Expm1, expm1);
      MATH(Log, log);
      MATH(Log2, log2);
      MATH(Log10, log10);
      MATH(Log1p, log1p);
      MATH(Sin, sin);
      MATH(Cos, cos);
      MATH(Tan, tan);
      MATH(Asin, asin);
      MATH(Acos, acos);
      MATH(Atan, atan);
      MATH(Sinh, sinh);
      MATH(Cosh, cosh);
      MATH(Tanh, tanh);
      MATH(Asinh, asinh);
      MATH(Acosh, acosh);
      MATH(Atanh, atanh);
      MATH(Erf, erf);
      MATH(Erfc, erfc);
    case LoopOp::Erfinv:
      return ops::inverse_erf(a);
    case LoopOp::Gelu:
      return a / 2 * (1 + std::erf(a * 0.7071067811865476));
    case LoopOp::GeluSlope:
      return (1 + std::erf(a * 0.7071067811865476)) / 2 +
             a * 0.3989422804014327 * std::exp(-a * a / 2);
      MATH(Lgamma, lgamma);
#undef MATH

    case LoopOp::Atan2:
      return std::atan2(a, b);
    case LoopOp::Pow:
      return std::pow(a, b);
    case LoopOp::Hypot:
      return std::hypot(a, b);
    case LoopOp::LogAddExp:
      return std::isinf(a) && a == b ? a : std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
    default:
      OXY_FAIL(ops::name(op));
  }
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

int64_t int_op(LoopOp op, int64_t a, int64_t b, int bits, int& status) {
  const auto wrap = [](uint64_t v) { return static_cast<int64_t>(v); };
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case LoopOp::Add:
      return wrap(ua + ub);
    case LoopOp::Sub:
      return wrap(ua - ub);
    case LoopOp::Mul:
      return wrap(ua * ub);
    case LoopOp::Gcd:
      return std::gcd(a, b);
    case LoopOp::Max:
      return std::max(a, b);
    case LoopOp::Min:
      return std::min(a, b);
    case LoopOp::Neg:
      return wrap(0 - ua);
    case LoopOp::Abs:
      return a < 0 ? wrap(0 - ua) : a;
    case LoopOp::Sign:
      return (a > 0) - (a < 0);
    case LoopOp::And:
      return a & b;
    case LoopOp::Or:
      return a | b;
    case LoopOp::Xor:
      return a ^ b;
    case LoopOp::Not:
      return ~a;
    case LoopOp::Shl:
      return b < 0 || b >= bits ? 0 : wrap(ua << b);
    case LoopOp::Shr:
      return a >> (b < 0 || b >= bits ? bits - 1 : b);
    default:
      break;
  }
  if (b == 0) {
    status |= 2;
    return op == LoopOp::Mod || op == LoopOp::Fmod ? a : 0;
  }
  if (b == -1) return op == LoopOp::Div || op == LoopOp::FloorDiv ? wrap(0 - ua) : 0;
  switch (op) {
    case LoopOp::Div:
      return a / b;
    case LoopOp::FloorDiv:
      return floor_div(a, b);
    case LoopOp::Fmod:
      return a % b;
    case LoopOp::Mod:
      return a - floor_div(a, b) * b;
    default:
      OXY_FAIL(ops::name(op));
  }
}

template <class T>
bool compare(LoopOp op, T a, T b) {
  switch (op) {
    case LoopOp::Eq:
      return a == b;
    case LoopOp::Ne:
      return a != b;
    case LoopOp::Lt:
      return a < b;
    case LoopOp::Le:
      return a <= b;
    case LoopOp::Gt:
      return a > b;
    default:
      return a >= b;
  }
}

struct Accumulator {
  Init init;
  Number value;
  int64_t at = -1;
};

class Interpreter {
 public:
  Interpreter(const schedule::Kernel& k, const std::vector<void*>& buffers)
      : kernel_(k), values_(k.value_count), dtypes_(k.value_count), accumulators_(k.acc_count) {
    size_t position = 0;
    locals_.resize(k.buffers.size());
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      const schedule::KernelBuffer& b = k.buffers[i];
      if (b.kind == schedule::KernelBuffer::Kind::Local) {
        locals_[i].resize(static_cast<size_t>(b.elements.value() * 8));
        memory_.push_back(locals_[i].data());
      } else {
        memory_.push_back(buffers[position++]);
      }
    }
  }

  int run() {
    block(kernel_.body);
    return status_;
  }

 private:
  void block(const Block& statements) {
    for (const Stmt& s : statements) {
      if (status_ & 1) return;
      std::visit([&](const auto& x) { statement(x); }, s.v);
    }
  }

  void statement(const schedule::Hint&) {}

  void statement(const For& loop) {
    const int64_t n = evaluate(loop.size);
    for (int64_t i = 0; i < n && !(status_ & 1); ++i) {
      symbols_[loop.var] = i;
      block(loop.body);
    }
  }

  void statement(const Init& init) {
    Accumulator& a = accumulators_[init.acc];
    a.init = init;
    const double extreme = init.kind == ReduceKind::Max ? -INFINITY : INFINITY;
    const bool least = init.kind == ReduceKind::Max;
    Number first;
    if (init.kind == ReduceKind::Prod || init.kind == ReduceKind::All) first = {1, 1};
    if (init.kind == ReduceKind::Max || init.kind == ReduceKind::Min) {
      const int bits = 8 * ir::byte_size(init.dtype);
      const bool u = init.dtype == DType::U8 || init.dtype == DType::B8;
      const int64_t top = u ? 255 : static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
      first = {extreme, least ? (u ? 0 : -top - 1) : top};
    }
    a.value = first;
    a.at = -1;
  }

  void statement(const Accumulate& s) {
    Accumulator& a = accumulators_[s.acc];
    const DType from = dtypes_[s.value];
    Number v = values_[s.value];
    Number& to = a.value;
    const bool f = ir::is_floating(from);
    switch (a.init.kind) {
      case ReduceKind::Sum:
        to.f += v.f, to.i += v.i;
        return;
      case ReduceKind::Prod:
        to.f *= v.f, to.i *= v.i;
        return;
      case ReduceKind::Max:
        to.f = float_op(LoopOp::Max, to.f, v.f, 0), to.i = std::max(to.i, v.i);
        return;
      case ReduceKind::Min:
        to.f = float_op(LoopOp::Min, to.f, v.f, 0), to.i = std::min(to.i, v.i);
        return;
      case ReduceKind::Any:
        to.i |= f ? v.f != 0 : v.i != 0;
        return;
      case ReduceKind::All:
        to.i &= f ? v.f != 0 : v.i != 0;
        return;
      default:
        break;
    }
    const double x = f ? v.f : static_cast<double>(v.i),
                 best = f ? to.f : static_cast<double>(to.i);
    const bool more = a.init.kind == ReduceKind::ArgMax ? x > best : x < best;
    int64_t& at = a.at;
    if (at < 0 || more || (std::isnan(x) && !std::isnan(best))) {
      to = v;
      at = evaluate(s.index);
    }
  }

  void statement(const Result& r) {
    const Accumulator& a = accumulators_[r.acc];
    const bool arg = a.init.kind == ReduceKind::ArgMax || a.init.kind == ReduceKind::ArgMin;
    set(r.value, arg ? DType::I64 : a.init.dtype, arg ? Number{0, a.at} : a.value);
  }

  void statement(const Compute& c) {
    const auto arg = [&](size_t i) { return values_[c.args[i]]; };
    switch (c.op) {
      case LoopOp::Const:
        return set(c.value, c.dtype, {c.number, c.integer});
      case LoopOp::Index:
        return set(c.value, DType::I64, {0, evaluate(c.index)});
      case LoopOp::Load:
        if (!c.args.empty() && !arg(0).i) return set(c.value, c.dtype, arg(1));
        return set(c.value, c.dtype, read(c.dtype, memory_[c.buffer], evaluate(c.index)));
      case LoopOp::Store:
        return write(c.dtype, memory_[c.buffer], evaluate(c.index), arg(0));
      case LoopOp::StoreAdd: {
        const int64_t at = evaluate(c.index);
        Number sum = read(c.dtype, memory_[c.buffer], at);
        sum.f += arg(0).f;
        sum.i += arg(0).i;
        return write(c.dtype, memory_[c.buffer], at, sum);
      }
      case LoopOp::Check:
        if (arg(0).i < 0 || arg(0).i >= evaluate(c.index)) status_ |= 1;
        return;
      case LoopOp::Symbol:
        symbols_[c.index] = arg(0).i;
        return;
      case LoopOp::Where:
        return set(c.value, c.dtype, arg(0).i ? arg(1) : arg(2));
      case LoopOp::Cast:
        return set(c.value, c.dtype, cast(dtypes_[c.args[0]], c.dtype, arg(0)));
      case LoopOp::Bitcast: {
        int64_t bits = 0;
        write(dtypes_[c.args[0]], &bits, 0, arg(0));
        return set(c.value, c.dtype, read(c.dtype, &bits, 0));
      }
      default:
        return set(c.value, c.dtype, compute(c));
    }
  }

  static Number cast(DType from, DType to, Number v) {
    const bool f = ir::is_floating(from);
    if (to == DType::B8) return {0, f ? v.f != 0 : v.i != 0};
    if (ir::is_floating(to)) return {f ? v.f : static_cast<double>(v.i), 0};
    return {0, f ? static_cast<int64_t>(v.f) : v.i};
  }

  Number compute(const Compute& c) {
    const DType d = dtypes_[c.args[0]];
    const Number a = values_[c.args[0]];
    const Number b = c.args.size() > 1 ? values_[c.args[1]] : Number{};
    const Number third = c.args.size() > 2 ? values_[c.args[2]] : Number{};
    const bool f = ir::is_floating(d);
    if (c.op >= LoopOp::Eq && c.op <= LoopOp::Ge)
      return {0, f ? compare(c.op, a.f, b.f) : compare(c.op, a.i, b.i)};
    if (c.op == LoopOp::IsNan) return {0, f && std::isnan(a.f)};
    if (c.op == LoopOp::IsInf) return {0, f && std::isinf(a.f)};
    if (d == DType::B8 && c.op == LoopOp::Not) return {0, !a.i};
    if (ops::class_of(c.op) == ops::LoopClass::Iterated)
      return {ops::iterated(c.op, d, a.f, b.f, third.f), 0};
    if (f) return {float_op(c.op, a.f, b.f, third.f), 0};
    return {0, int_op(c.op, a.i, b.i, 8 * ir::byte_size(d), status_)};
  }

  void set(uint32_t id, DType d, Number v) {
    values_[id] = rounded(d, v);
    dtypes_[id] = d;
  }

  int64_t evaluate(Expr e) {
    return sym::evaluate(e, [&](Expr s) { return symbols_.at(s); });
  }

  const schedule::Kernel& kernel_;
  std::vector<Number> values_;
  std::vector<DType> dtypes_;
  std::vector<Accumulator> accumulators_;
  std::vector<void*> memory_;
  std::vector<std::vector<char>> locals_;
  std::unordered_map<Expr, int64_t> symbols_;
  int status_ = 0;
};

}  // namespace

int interpret(const schedule::Kernel& kernel, const std::vector<void*>& buffers) {
  return Interpreter(kernel, buffers).run();
}

double read_number(DType dtype, const void* memory, int64_t at) {
  const Number v = read(dtype, memory, at);
  return ir::is_floating(dtype) ? v.f : static_cast<double>(v.i);
}

void write_number(DType dtype, void* memory, int64_t at, double v) {
  write(dtype, memory, at, {v, ir::is_floating(dtype) ? 0 : static_cast<int64_t>(v)});
}

}  // namespace oxy::codegen::cpp::testing
