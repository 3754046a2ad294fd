// LoopOps as C++ expressions of one operator or one call.
#include "codegen/cpp/operator_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "support/check.h"

namespace oxy::codegen::cpp {

using ir::DType;
using ops::LoopClass;
using ops::LoopOp;

namespace {

bool is_inlined(LoopOp op, DType dtype) {
  if (schedule::is_any(op, LoopOp::Exp, LoopOp::Log, LoopOp::Log2, LoopOp::Log10, LoopOp::Log1p,
                       LoopOp::Sin, LoopOp::Cos, LoopOp::Tan, LoopOp::Asin, LoopOp::Acos,
                       LoopOp::Atan, LoopOp::Atanh, LoopOp::Tanh, LoopOp::Erf, LoopOp::Erfc,
                       LoopOp::Expm1)) {
    return dtype == DType::F32 || dtype == DType::F64;
  }
  return dtype == DType::F32 && schedule::is_any(op, LoopOp::Exp2, LoopOp::Gelu, LoopOp::GeluSlope);
}

constexpr std::pair<LoopOp, std::string_view> kInfix[] = {
    {LoopOp::Add, " + "}, {LoopOp::Sub, " - "}, {LoopOp::Mul, " * "}, {LoopOp::Div, " / "},
    {LoopOp::Eq, " == "}, {LoopOp::Ne, " != "}, {LoopOp::Lt, " < "},  {LoopOp::Le, " <= "},
    {LoopOp::Gt, " > "},  {LoopOp::Ge, " >= "}, {LoopOp::And, " & "}, {LoopOp::Or, " | "},
    {LoopOp::Xor, " ^ "}};
constexpr std::pair<LoopOp, std::string_view> kRounding[] = {{LoopOp::Floor, "floor"},
                                                             {LoopOp::Ceil, "ceil"},
                                                             {LoopOp::Round, "roundeven"},
                                                             {LoopOp::Trunc, "trunc"}};

std::string_view text_in(std::span<const std::pair<LoopOp, std::string_view>> table, LoopOp op) {
  const auto it = std::ranges::find(table, op, [](const auto& row) { return row.first; });
  return it == table.end() ? "" : it->second;
}

std::string_view infix(LoopOp op) {
  const std::string_view text = text_in(kInfix, op);
  OXY_CHECK(!text.empty(), ops::name(op), " is not an infix operator");
  return text;
}

// The functions of the math table that an iterated operation calls, in the order of its last
// parameters.
std::span<const LoopOp> callees(LoopOp op) {
  static constexpr LoopOp kZeta[] = {LoopOp::Pow};
  static constexpr LoopOp kGamma[] = {LoopOp::Exp,    LoopOp::Log,  LoopOp::Log1p,
                                      LoopOp::Lgamma, LoopOp::Erfc, LoopOp::Expm1};
  if (op == LoopOp::Zeta) return kZeta;
  if (op == LoopOp::GammaP || op == LoopOp::GammaQ) return kGamma;
  return {};
}

std::string float_literal(double v, DType dtype) {
  const bool f64 = dtype == DType::F64;
  if (std::isnan(v)) return f64 ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
  if (std::isinf(v)) return cat(v < 0 ? "-" : "", f64 ? "__builtin_inf()" : "__builtin_inff()");
  std::string s = f64 ? cat(v) : cat(static_cast<float>(v));
  if (!f64 && std::isinf(static_cast<float>(v)))
    return float_literal(v < 0 ? -INFINITY : INFINITY, dtype);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return f64 ? s : s + 'f';
}

std::string int_literal(int64_t v, DType dtype) {
  if (v == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807l - 1)";
  return cat('(', memory_type(dtype), ')', v, 'l');
}

// The element type of a value in registers, where pieces are looked up.
std::string element(DType dtype, int lanes) {
  return dtype == DType::B8 ? (lanes == 1 ? "b8" : "i32") : memory_type(dtype);
}

std::string unsigned_element(DType dtype) { return cat('u', 8 * ir::byte_size(dtype)); }

}  // namespace

std::string OperatorText::type(DType dtype) {
  return prelude_.type(element(dtype, lanes_), lanes_);
}

std::string OperatorText::fn(std::string_view piece, DType dtype) {
  return prelude_.fn(piece, element(dtype, lanes_), lanes_);
}

std::string OperatorText::call(std::string_view piece, DType dtype, const std::string& args) {
  return cat(fn(piece, dtype), '(', args, ')');
}

std::string OperatorText::splat(const std::string& scalar, DType dtype) {
  if (lanes_ == 1) return scalar;
  if (dtype == DType::B8) return call("splat", dtype, cat("-(i32)", scalar));
  return call("splat", dtype, scalar);
}

std::string OperatorText::select(const std::string& mask, const std::string& a,
                                 const std::string& b, DType dtype) {
  return call("select", dtype, cat(mask, ", ", a, ", ", b));
}

std::string OperatorText::constant(double number, int64_t integer, DType dtype) {
  if (dtype == DType::B8) return integer ? "true" : "false";
  if (!ir::is_floating(dtype)) return int_literal(integer, dtype);
  if (!ir::is_reduced_float(dtype)) return float_literal(number, dtype);
  return cat(prelude_.fn(dtype == DType::BF16 ? "bf16_of_f32" : "f16_of_f32", "f32", 1), '(',
             float_literal(number, DType::F32), ')');
}

std::string OperatorText::apply(LoopOp op, DType result, const std::vector<Operand>& args) {
  if (op == LoopOp::Cast) return cast(args[0], result);
  if (op == LoopOp::Bitcast) return bitcast(args[0], result);
  if (op == LoopOp::Where) return select(args[0].text, args[1].text, args[2].text, result);
  if (ir::is_reduced_float(args[0].dtype)) {
    if (op == LoopOp::Neg || op == LoopOp::Abs) return of_sign_bit(op, result, args[0].text);
    std::vector<Operand> wide;
    for (const Operand& a : args) wide.push_back({cast(a, DType::F32), DType::F32});
    if (!ir::is_reduced_float(result)) return apply(op, result, wide);
    return cast({apply(op, DType::F32, wide), DType::F32}, result);
  }
  switch (ops::class_of(op)) {
    case LoopClass::Compare:
      return args.size() == 1 ? kind_of_number(op, args[0]) : compare(op, args[0], args[1]);
    case LoopClass::Logic:
      return logic(op, result, args);
    case LoopClass::Math:
      return math(op, args[0].dtype, args);
    case LoopClass::Iterated:
      return iterated(op, args[0].dtype, args);
    default:
      break;
  }
  if (op == LoopOp::Fma) {
    OXY_CHECK(ir::is_floating(result), "fma of integers");
    return call("fma", result, cat(args[0].text, ", ", args[1].text, ", ", args[2].text));
  }
  return args.size() == 1 ? unary(op, result, args[0].text)
                          : arithmetic(op, result, args[0].text, args[1].text);
}

std::string OperatorText::arithmetic(LoopOp op, DType dtype, const std::string& a,
                                     const std::string& b) {
  const std::string both = cat(a, ", ", b);
  if (dtype == DType::B8) {
    if (op == LoopOp::Add || op == LoopOp::Max) return cat(a, " | ", b);
    if (op == LoopOp::Mul || op == LoopOp::Min) return cat(a, " & ", b);
    OXY_CHECK(op == LoopOp::Sub, ops::name(op), " of b8");
    return cat(a, " ^ ", b);
  }
  if (ir::is_floating(dtype)) {
    if (op == LoopOp::Max) return call("max_nan", dtype, both);
    if (op == LoopOp::Min) return call("min_nan", dtype, both);
    if (op == LoopOp::FloorDiv || op == LoopOp::Mod || op == LoopOp::Fmod)
      return float_division(op, dtype, a, b);
    return cat(a, infix(op), b);
  }
  if (op == LoopOp::Max || op == LoopOp::Min || op == LoopOp::Gcd) {
    return call(ops::name(op), dtype, both);
  }
  if (op == LoopOp::Div || op == LoopOp::FloorDiv || op == LoopOp::Mod || op == LoopOp::Fmod) {
    return call(ops::name(op), dtype, cat(both, ", &status, ", active_));
  }
  const std::string u = prelude_.type(unsigned_element(dtype), lanes_);
  return cat('(', type(dtype), ")((", u, ')', a, infix(op), '(', u, ')', b, ')');
}

std::string OperatorText::float_division(LoopOp op, DType dtype, const std::string& a,
                                         const std::string& b) {
  const bool inlined = lanes_ > 1 && prelude_.target().vector_bytes > 0;
  const std::string operands = cat(a, ", ", b, ", ", table_entry(LoopOp::Fmod, dtype));
  if (op == LoopOp::FloorDiv && inlined) return call("floordiv_near", dtype, operands);
  const std::string r = call(inlined ? "fmod_near" : "fmod_of", dtype, operands);
  if (op == LoopOp::Fmod) return r;
  return call(op == LoopOp::Mod ? "fmod_mod" : "fmod_floordiv", dtype, cat(a, ", ", b, ", ", r));
}

std::string OperatorText::unary(LoopOp op, DType dtype, const std::string& x) {
  if (op == LoopOp::Sign) return dtype == DType::B8 ? x : call("sign", dtype, x);
  if (dtype == DType::B8) return x;
  if (op == LoopOp::Neg && ir::is_floating(dtype)) return cat('-', x);
  if (op == LoopOp::Abs && ir::is_floating(dtype)) return call("abs", dtype, x);
  const bool is_unsigned = memory_type(dtype)[0] == 'u';
  if (op == LoopOp::Abs && is_unsigned) return x;
  const std::string u = prelude_.type(unsigned_element(dtype), lanes_);
  const std::string negated = cat('(', type(dtype), ")(-(", u, ')', x, ')');
  if (op == LoopOp::Neg) return negated;
  OXY_CHECK(op == LoopOp::Abs, ops::name(op));
  return call("max", dtype, cat(x, ", ", negated));
}

// Of a half, in its bits.
std::string OperatorText::of_sign_bit(LoopOp op, DType dtype, const std::string& x) {
  const std::string changed = op == LoopOp::Neg ? cat(x, " ^ ", splat("(u16)0x8000", dtype))
                                                : cat(x, " & ", splat("(u16)0x7fff", dtype));
  return lanes_ == 1 ? cat("(u16)(", changed, ')') : changed;
}

std::string OperatorText::compare(LoopOp op, const Operand& a, const Operand& b) {
  if (a.dtype == DType::B8) return bool_compare(op, a.text, b.text);
  const std::string plain = cat(a.text, infix(op), b.text);
  if (lanes_ == 1 || ir::byte_size(a.dtype) == 4) return plain;
  const std::string wide = cat('i', 8 * ir::byte_size(a.dtype));
  return cat(prelude_.fn("narrow", wide, lanes_), '(', plain, ')');
}

std::string OperatorText::bool_compare(LoopOp op, const std::string& a, const std::string& b) {
  if (lanes_ == 1) return cat(a, infix(op), b);
  if (op == LoopOp::Eq) return cat("~(", a, " ^ ", b, ')');
  if (op == LoopOp::Ne) return cat(a, " ^ ", b);
  if (op == LoopOp::Lt) return cat('~', a, " & ", b);
  if (op == LoopOp::Le) return cat('~', a, " | ", b);
  return cat(a, op == LoopOp::Gt ? " & ~" : " | ~", b);
}

std::string OperatorText::logic(LoopOp op, DType dtype, const std::vector<Operand>& args) {
  const std::string& a = args[0].text;
  if (op == LoopOp::Not) return cat(dtype == DType::B8 && lanes_ == 1 ? '!' : '~', a);
  if (op == LoopOp::Shl || op == LoopOp::Shr)
    return call(ops::name(op), dtype, cat(a, ", ", args[1].text));
  const std::string plain = cat(a, infix(op), args[1].text);
  if (lanes_ == 1) return cat('(', value_type(dtype, 1), ")(", plain, ')');
  return dtype == DType::B8 ? plain : call("apart", dtype, plain);
}

std::string OperatorText::table_entry(LoopOp op, DType dtype) {
  const auto row = math_row(op, dtype);
  OXY_CHECK(row, "no host function for ", ops::name(op));
  return cat("math[", *row, ']');
}

// Is it NaN, is it infinite?
std::string OperatorText::kind_of_number(LoopOp op, const Operand& x) {
  if (!ir::is_floating(x.dtype)) return splat("false", DType::B8);
  if (op == LoopOp::IsNan) return compare(LoopOp::Ne, x, x);
  const std::string infinity = splat(float_literal(INFINITY, x.dtype), x.dtype);
  return compare(LoopOp::Eq, {call("abs", x.dtype, x.text), x.dtype}, {infinity, x.dtype});
}

// A number in the lanes that are not in use, by which no function leaves its usual way: what was
// divided by nothing there would.
std::string OperatorText::used(const std::string& x, DType dtype) {
  if (active_.empty() || active_ == cat(lanes_)) return x;
  const DType place = dtype == DType::F64 ? DType::I64 : DType::I32;
  return cat("(", fn("iota", place), "() < ", splat(active_, place), " ? ", x, " : ",
             splat(float_literal(1, dtype), dtype), ')');
}

std::string OperatorText::math(LoopOp op, DType dtype, const std::vector<Operand>& args) {
  const std::string& x = args[0].text;
  if (const std::string_view piece = text_in(kRounding, op); !piece.empty())
    return ir::is_floating(dtype) ? call(piece, dtype, x) : x;
  OXY_CHECK(ir::is_floating(dtype), ops::name(op), " of ", ir::name(dtype));
  const std::string one = splat(float_literal(1, dtype), dtype);
  if (op == LoopOp::Sqrt) return call("root", dtype, x);
  if (op == LoopOp::Rsqrt) return cat(one, " / ", call("root", dtype, x));
  if (op == LoopOp::Reciprocal) return cat(one, " / ", x);
  if (op == LoopOp::CopySign) return call("copysign", dtype, cat(x, ", ", args[1].text));
  if (is_inlined(op, dtype) && prelude_.target().vector_bytes > 0) {
    const bool far =
        dtype == DType::F64 || schedule::is_any(op, LoopOp::Sin, LoopOp::Cos, LoopOp::Tan);
    return call(ops::name(op), dtype, far ? cat(used(x, dtype), ", ", table_entry(op, dtype)) : x);
  }
  if (op == LoopOp::Erfinv) {
    const std::string rest = cat('(', one, " - ", x, ") * (", one, " + ", x, ')');
    return call("erfinv", dtype, cat(x, ", -", math(LoopOp::Log, dtype, {{rest, dtype}})));
  }
  if (op == LoopOp::Gelu || op == LoopOp::GeluSlope) {
    const auto times = [&](double c) {
      return cat(x, " * ", splat(float_literal(c, dtype), dtype));
    };
    const std::string erf = math(LoopOp::Erf, dtype, {{times(0.7071067811865476), dtype}});
    if (op == LoopOp::Gelu) return cat(times(0.5), " * (", one, " + ", erf, ')');
    const std::string half = splat(float_literal(0.5, dtype), dtype);
    const std::string power = math(LoopOp::Exp, dtype, {{cat(x, " * ", times(-0.5)), dtype}});
    return cat(half, " * (", one, " + ", erf, ") + ", times(0.3989422804014327), " * ", power);
  }
  if (op == LoopOp::LogAddExp) {
    return call("logaddexp", dtype,
                cat(x, ", ", args[1].text, ", ", table_entry(LoopOp::Exp, dtype), ", ",
                    table_entry(LoopOp::Log1p, dtype)));
  }
  if (op == LoopOp::Asinh || op == LoopOp::Acosh) {
    return call(ops::name(op), dtype,
                cat(x, ", ", table_entry(op, dtype), ", ", table_entry(LoopOp::Log, dtype)));
  }
  if (args.size() == 1) return call("call1", dtype, cat(x, ", ", table_entry(op, dtype)));
  return call("call2", dtype, cat(x, ", ", args[1].text, ", ", table_entry(op, dtype)));
}

// A function of the prelude by the op's name, with the functions of the table that it calls.
std::string OperatorText::iterated(LoopOp op, DType dtype, const std::vector<Operand>& args) {
  std::string list = join(args, ", ", [](std::string& s, const Operand& a) { s += a.text; });
  const DType inside = op == LoopOp::Zeta ? dtype : DType::F64;
  for (LoopOp callee : callees(op)) cat_to(list, ", ", table_entry(callee, inside));
  return call(ops::name(op), dtype, list);
}

std::string OperatorText::truth(const Operand& x) {
  const Operand zero{
      splat(ir::is_floating(x.dtype) ? float_literal(0, x.dtype) : int_literal(0, x.dtype),
            x.dtype),
      x.dtype};
  return compare(LoopOp::Ne, x, zero);
}

std::string OperatorText::convert(const std::string& x, DType from, DType to) {
  if (from == to) return x;
  if (lanes_ == 1) return cat('(', type(to), ')', x);
  return cat("__builtin_convertvector(", x, ", ", type(to), ')');
}

std::string OperatorText::cast(const Operand& x, DType to) {
  if (x.dtype == to) return x.text;
  if (to == DType::B8) {
    return ir::is_reduced_float(x.dtype) ? truth({cast(x, DType::F32), DType::F32}) : truth(x);
  }
  if (ir::is_reduced_float(x.dtype)) {
    const char* piece = x.dtype == DType::BF16 ? "f32_of_bf16" : "f32_of_f16";
    return cast({call(piece, x.dtype, x.text), DType::F32}, to);
  }
  if (ir::is_reduced_float(to)) {
    return call(to == DType::BF16 ? "bf16_of_f32" : "f16_of_f32", DType::F32, cast(x, DType::F32));
  }
  if (x.dtype == DType::B8) {
    const std::string as_int = lanes_ == 1 ? cat("(i32)", x.text) : cat("(-", x.text, ')');
    return convert(as_int, DType::I32, to);
  }
  if (ir::is_floating(x.dtype) && !ir::is_floating(to)) {
    return cat(prelude_.fn(cat(memory_type(to), "_of"), memory_type(x.dtype), lanes_), '(', x.text,
               ')');
  }
  return convert(x.text, x.dtype, to);
}

std::string OperatorText::bitcast(const Operand& x, DType to) {
  OXY_CHECK(ir::byte_size(x.dtype) == ir::byte_size(to), "bitcast ", ir::name(x.dtype), " to ",
            ir::name(to));
  OXY_CHECK(x.dtype != DType::B8 && to != DType::B8, "bitcast of b8");
  return cat("__builtin_bit_cast(", type(to), ", ", x.text, ')');
}

}  // namespace oxy::codegen::cpp
