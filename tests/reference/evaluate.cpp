// The evaluator: a LoopBuilder whose scalars have values.
#include "reference/evaluate.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/element.h"
#include "ops/promote.h"
#include "reference/inverse_erf.h"
#include "reference/iterated.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

int64_t size_of(Expr e) {
  if (!e.is_const()) throw Unsupported("evaluation of a symbolic shape");
  return e.value();
}

int64_t linear_index(const TensorType& t, const Index& index) {
  OXY_CHECK(index.size() == t.sizes.size(), "an index of ", index.size(), " dimensions");
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    const int64_t size = size_of(t.sizes[d]), i = size_of(index[d]);
    OXY_CHECK(i >= 0 && i < size, "index ", i, " of a dimension of size ", size);
    at = at * size + i;
  }
  return at;
}

// Calls `f` with every index of a tensor of these sizes, row by row.
template <class F>
void for_each_index(const std::vector<Expr>& sizes, F&& f) {
  for (Expr s : sizes) {
    if (size_of(s) == 0) return;
  }
  Index index(sizes.size(), Expr(0));
  for (;;) {
    f(index);
    size_t d = sizes.size();
    while (d > 0) {
      index[d - 1] = index[d - 1] + Expr(1);
      if (index[d - 1].value() < size_of(sizes[d - 1])) break;
      index[--d] = Expr(0);
    }
    if (d == 0) return;
  }
}

// ---- operations on numbers ----

double lowest_nan(double a, double b) { return std::isnan(a) ? a : b; }

double real_op(LoopOp op, double a, double b, double c) {
  const bool nan = std::isnan(a) || std::isnan(b);
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
    case LoopOp::Max:
      return nan ? lowest_nan(a, b) : std::max(a, b);
    case LoopOp::Min:
      return nan ? lowest_nan(a, b) : std::min(a, b);
    case LoopOp::Neg:
      return -a;
    case LoopOp::Abs:
      return std::abs(a);
    case LoopOp::Sign:
      return static_cast<double>((a > 0) - (a < 0));
    case LoopOp::Fma:
      return std::fma(a, b, c);
    case LoopOp::Exp:
      return std::exp(a);
    case LoopOp::Exp2:
      return std::exp2(a);
    case LoopOp::Expm1:
      return std::expm1(a);
    case LoopOp::Log:
      return std::log(a);
    case LoopOp::Log2:
      return std::log2(a);
    case LoopOp::Log10:
      return std::log10(a);
    case LoopOp::Log1p:
      return std::log1p(a);
    case LoopOp::Sin:
      return std::sin(a);
    case LoopOp::Cos:
      return std::cos(a);
    case LoopOp::Tan:
      return std::tan(a);
    case LoopOp::Asin:
      return std::asin(a);
    case LoopOp::Acos:
      return std::acos(a);
    case LoopOp::Atan:
      return std::atan(a);
    case LoopOp::Atan2:
      return std::atan2(a, b);
    case LoopOp::Sinh:
      return std::sinh(a);
    case LoopOp::Cosh:
      return std::cosh(a);
    case LoopOp::Tanh:
      return std::tanh(a);
    case LoopOp::Asinh:
      return std::asinh(a);
    case LoopOp::Acosh:
      return std::acosh(a);
    case LoopOp::Atanh:
      return std::atanh(a);
    case LoopOp::Erf:
      return std::erf(a);
    case LoopOp::Gelu:
      return a / 2 * (1 + std::erf(a * 0.7071067811865476));
    case LoopOp::GeluSlope:
      return (1 + std::erf(a * 0.7071067811865476)) / 2 +
             a * 0.3989422804014327 * std::exp(-a * a / 2);
    case LoopOp::Erfinv:
      return inverse_erf(a);
    case LoopOp::Erfc:
      return std::erfc(a);
    case LoopOp::Sqrt:
      return std::sqrt(a);
    case LoopOp::Rsqrt:
      return 1.0 / std::sqrt(a);
    case LoopOp::Reciprocal:
      return 1.0 / a;
    case LoopOp::Pow:
      return std::pow(a, b);
    case LoopOp::Hypot:
      return std::hypot(a, b);
    case LoopOp::LogAddExp:
      return std::isinf(a) && a == b ? a : std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
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
    case LoopOp::Lgamma:
      return std::lgamma(a);
    default:
      OXY_FAIL("no real operation ", name(op));
  }
}

// The remainder with the sign of the divisor.
double real_mod(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

// ATen's div_floor, each step rounded to `d`.
double real_floordiv(double a, double b, DType d) {
  if (b == 0) return round_to(a / b, d);
  const double m = std::fmod(a, b);
  double q = round_to((a - m) / b, d);
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(q);
  return q - f > 0.5 ? f + 1 : f;
}

int64_t floor_quotient(int64_t a, int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// Two's complement: unsigned arithmetic wraps.
int64_t wrapped(uint64_t v) { return static_cast<int64_t>(v); }

int64_t integer_op(LoopOp op, int64_t a, int64_t b, int64_t c) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case LoopOp::Add:
      return wrapped(x + y);
    case LoopOp::Sub:
      return wrapped(x - y);
    case LoopOp::Mul:
      return wrapped(x * y);
    case LoopOp::Fma:
      return wrapped(x * y + static_cast<uint64_t>(c));
    case LoopOp::Div:
      return a / b;
    case LoopOp::FloorDiv:
      return floor_quotient(a, b);
    case LoopOp::Mod:
      return wrapped(x - static_cast<uint64_t>(floor_quotient(a, b)) * y);
    case LoopOp::Fmod:
      return a % b;
    case LoopOp::Gcd:
      return std::gcd(a, b);
    case LoopOp::Max:
      return std::max(a, b);
    case LoopOp::Min:
      return std::min(a, b);
    case LoopOp::Neg:
      return wrapped(-x);
    case LoopOp::Abs:
      return a < 0 ? wrapped(-x) : a;
    case LoopOp::Sign:
      return (a > 0) - (a < 0);
    case LoopOp::And:
      return a & b;
    case LoopOp::Or:
      return a | b;
    case LoopOp::Xor:
      return a ^ b;
    case LoopOp::Shl:
      return wrapped(x << b);
    case LoopOp::Shr:
      return a >> b;
    default:
      OXY_FAIL("no integer operation ", name(op));
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
    case LoopOp::Ge:
      return a >= b;
    default:
      OXY_FAIL("no comparison ", name(op));
  }
}

bool is_comparison(LoopOp op) { return op >= LoopOp::Eq && op <= LoopOp::Ge; }

Number convert(Number v, DType from, DType to) {
  const bool real_from = ir::is_floating(from), real_to = ir::is_floating(to);
  Number r;
  if (real_from && real_to) {
    r.real = round_to(v.real, to);
  } else if (real_to) {
    r.real = round_to(static_cast<double>(v.integer), to);
  } else if (to == DType::B8) {
    r.integer = real_from ? v.real != 0 : v.integer != 0;
  } else {
    r.integer = wrap_to(real_from ? static_cast<int64_t>(v.real) : v.integer, to);
  }
  return r;
}

// ---- the builder ----

class Evaluator : public LoopBuilder {
 public:
  Evaluator(const ir::Graph& g, const std::vector<Elements>& values) : graph_(g), values_(values) {}

  Scalar load(ValueId value, const Index& index) override {
    const TensorType& t = graph_.tensor_type(value);
    return make(values_[value.index][static_cast<size_t>(linear_index(t, index))], t.dtype);
  }
  Scalar load_masked(ValueId value, const Index& index, Scalar mask, Scalar other) override {
    OXY_CHECK(other.dtype == graph_.tensor_type(value).dtype, "masked load of another dtype");
    return number(mask).integer ? load(value, index) : other;
  }
  Scalar constant(double v, DType dtype) override {
    OXY_CHECK(ir::is_floating(dtype), "a real constant of an integer dtype");
    Number n;
    n.real = v;
    return make(n, dtype);
  }
  Scalar constant_int(int64_t v, DType dtype) override {
    OXY_CHECK(!ir::is_floating(dtype), "an integer constant of a real dtype");
    return make(Number{.integer = v}, dtype);
  }
  Scalar index(Expr e) override { return make(Number{.integer = size_of(e)}, DType::I64); }
  Expr indirect(Scalar i, Expr size, bool wrap) override {
    const int64_t n = size_of(size);
    int64_t at = number(i).integer;
    if (wrap && at < 0) at += n;
    if (at < 0 || at >= n) throw UserError("index out of range");
    return Expr(at);
  }
  Expr computed_index(Scalar i, Expr size) override {
    OXY_CHECK(number(i).integer >= 0 && number(i).integer < size_of(size), "a computed index");
    return Expr(number(i).integer);
  }
  Scalar op(LoopOp op, std::initializer_list<Scalar> args) override {
    OXY_CHECK(static_cast<int>(args.size()) == arity(op), name(op), " of ", args.size());
    const Scalar* a = args.begin();
    if (op == LoopOp::Where) {
      OXY_CHECK(a[0].dtype == DType::B8 && a[1].dtype == a[2].dtype, "where of mixed dtypes");
      return number(a[0]).integer ? a[1] : a[2];
    }
    for (const Scalar& s : args) {
      OXY_CHECK(s.dtype == a[0].dtype, name(op), " of ", ir::name(a[0].dtype), " and ",
                ir::name(s.dtype));
    }
    return make(apply(op, args), class_of(op) == LoopClass::Compare ? DType::B8 : a[0].dtype);
  }
  Scalar cast(Scalar v, DType dtype) override {
    return v.dtype == dtype ? v : make(convert(number(v), v.dtype, dtype), dtype);
  }
  Scalar bitcast(Scalar v, DType dtype) override {
    Number r;
    if (v.dtype == DType::F32 && dtype == DType::I32) {
      r.integer = std::bit_cast<int32_t>(static_cast<float>(number(v).real));
    } else if (v.dtype == DType::I32 && dtype == DType::F32) {
      r.real = std::bit_cast<float>(static_cast<int32_t>(number(v).integer));
    } else if (v.dtype == DType::F16 && dtype == DType::I16) {
      r.integer = std::bit_cast<int16_t>(static_cast<_Float16>(number(v).real));
    } else if (v.dtype == DType::I16 && dtype == DType::F16) {
      r.real = std::bit_cast<_Float16>(static_cast<int16_t>(number(v).integer));
    } else if (v.dtype == DType::BF16 && dtype == DType::I16) {
      r.integer = std::bit_cast<int32_t>(static_cast<float>(number(v).real)) >> 16;
    } else if (v.dtype == DType::I16 && dtype == DType::BF16) {
      r.real = std::bit_cast<float>(static_cast<int32_t>(number(v).integer << 16));
    } else {
      throw Unsupported("evaluation of this bitcast");
    }
    return make(r, dtype);
  }
  const ir::Graph& graph() const override { return graph_; }

  Number number(Scalar s) const { return scalars_[s.id]; }
  Scalar make(Number n, DType dtype) {
    scalars_.push_back(n);
    return Scalar{static_cast<uint32_t>(scalars_.size() - 1), dtype};
  }
  void clear() { scalars_.clear(); }

 private:
  Number apply(LoopOp op, std::initializer_list<Scalar> args) const {
    Number x[3];
    size_t n = 0;
    for (const Scalar& s : args) x[n++] = number(s);
    const DType d = args.begin()->dtype;
    Number r;
    if (op == LoopOp::IsNan) return Number{.integer = std::isnan(x[0].real)};
    if (op == LoopOp::IsInf) return Number{.integer = std::isinf(x[0].real)};
    if (is_comparison(op)) {
      r.integer = ir::is_floating(d) ? compare(op, x[0].real, x[1].real)
                                     : compare(op, x[0].integer, x[1].integer);
    } else if (op == LoopOp::Not) {
      r.integer = d == DType::B8 ? !x[0].integer : wrap_to(~x[0].integer, d);
    } else if (!ir::is_floating(d)) {
      r.integer = wrap_to(integer_op(op, x[0].integer, x[1].integer, x[2].integer), d);
    } else if (class_of(op) == LoopClass::Iterated) {
      r.real = round_to(iterated(op, d, x[0].real, x[1].real, x[2].real), d);
    } else if (op == LoopOp::Mod) {
      r.real = round_to(real_mod(x[0].real, x[1].real), d);
    } else if (op == LoopOp::FloorDiv) {
      r.real = round_to(real_floordiv(x[0].real, x[1].real, d), d);
    } else {
      r.real = round_to(real_op(op, x[0].real, x[1].real, x[2].real), d);
    }
    return r;
  }

  const ir::Graph& graph_;
  const std::vector<Elements>& values_;
  std::vector<Number> scalars_;
};

// ---- nodes ----

class Run {
 public:
  explicit Run(const ir::Graph& g) : g_(g), values_(g.value_count()), builder_(g, values_) {}

  void set(ValueId v, Elements e) { values_[v.index] = std::move(e); }
  const Elements& get(ValueId v) const { return values_[v.index]; }

  void run(const ir::Node& n) {
    if (n.target == "aten.mm.default") return product(n);
    const OpInfo* info = find(n);
    if (!info || !info->element || (info->applies && !info->applies(g_, n))) {
      throw Unsupported(cat("no rule for ", n.target));
    }
    if (info->reduction) {
      info->has(Scan) ? scan(*info, n) : fold(*info, n);
      return;
    }
    for (uint32_t out = 0; out < n.outputs.size(); ++out) {
      const TensorType& t = g_.tensor_type(n.outputs[out]);
      Elements e;
      for_each_index(t.sizes, [&](const Index& index) {
        builder_.clear();
        Element element(builder_, n, out, index);
        const Scalar s = info->element(element);
        OXY_CHECK(s.dtype == t.dtype, n.target, " gives ", ir::name(s.dtype), " for ",
                  ir::name(t.dtype));
        e.push_back(builder_.number(s));
      });
      set(n.outputs[out], std::move(e));
    }
    if (info->scatter) scatter(*info, n);
  }

 private:
  // Of floating matrices.
  void product(const ir::Node& n) {
    const TensorType& type = g_.tensor_type(n.outputs[0]);
    const Elements &a = get(n.args[0].value()), &b = get(n.args[1].value());
    const auto rows = static_cast<size_t>(size_of(type.sizes[0]));
    const auto columns = static_cast<size_t>(size_of(type.sizes[1]));
    const size_t inner = a.size() / std::max<size_t>(rows, 1);
    Elements out(rows * columns);
    for (size_t i = 0; i < out.size(); ++i) {
      double sum = 0;
      for (size_t k = 0; k < inner; ++k)
        sum += a[i / columns * inner + k].real * b[k * columns + i % columns].real;
      out[i].real = round_to(sum, type.dtype);
    }
    set(n.outputs[0], std::move(out));
  }

  // On top of what the element rule gave.
  void scatter(const OpInfo& info, const ir::Node& n) {
    ScatterSpec spec;
    if (!info.scatter(g_, n, spec)) throw Unsupported(cat("no scatter for ", n.target));
    const TensorType& t = g_.tensor_type(n.outputs[0]);
    const ReductionSpec fold{.kind = spec.kind, .accumulate = opmath(t.dtype)};
    Elements& e = values_[n.outputs[0].index];
    for_each_index(spec.sizes, [&](const Index& point) {
      builder_.clear();
      Element element(builder_, n, 0, point);
      const ScatterUpdate u = info.update(element);
      Number& slot = e[static_cast<size_t>(linear_index(t, u.place))];
      const Number v = convert(builder_.number(u.value), u.value.dtype, t.dtype);
      slot = spec.kind == ReduceKind::Last
                 ? v
                 : convert(combine(fold, slot, v), fold.accumulate, t.dtype);
    });
  }

  void fold(const OpInfo& info, const ir::Node& n) {
    ReductionSpec spec;
    if (!info.reduction(g_, n, spec)) throw Unsupported(cat("no reduction for ", n.target));
    const TensorType& t = g_.tensor_type(n.arg(0).value());
    const TensorType& result = g_.tensor_type(n.outputs[0]);
    const bool position = spec.kind == ReduceKind::ArgMax || spec.kind == ReduceKind::ArgMin;
    std::vector<Number> folded(static_cast<size_t>(size_of(result.numel())), start(spec));
    std::vector<Number> at(folded.size());
    for_each_index(t.sizes, [&](const Index& index) {
      Index kept;
      for (size_t d = 0; d < index.size(); ++d) {
        const bool reduced = std::binary_search(spec.dims.begin(), spec.dims.end(), d);
        if (!reduced) kept.push_back(index[d]);
        if (reduced && spec.keepdim) kept.push_back(Expr(0));
      }
      builder_.clear();
      Element element(builder_, n, 0, index);
      const Scalar s = info.element(element);
      OXY_CHECK(s.dtype == spec.accumulate, n.target, " folds ", ir::name(s.dtype));
      const auto slot = static_cast<size_t>(linear_index(result, kept));
      const Number v = builder_.number(s);
      if (!position) {
        folded[slot] = combine(spec, folded[slot], v);
        return;
      }
      const int64_t i = index[static_cast<size_t>(spec.dims[0])].value();
      if (i == 0 || beats(spec, v, folded[slot])) {
        folded[slot] = v;
        at[slot].integer = i;
      }
    });
    if (position) {
      set(n.outputs[0], std::move(at));
      return;
    }
    for (Number& v : folded) v = convert(v, spec.accumulate, spec.result);
    set(n.outputs[0], std::move(folded));
  }

  void scan(const OpInfo& info, const ir::Node& n) {
    ReductionSpec spec;
    if (!info.reduction(g_, n, spec)) throw Unsupported(cat("no scan for ", n.target));
    const TensorType& t = g_.tensor_type(n.outputs[0]);
    std::vector<Number> sums(static_cast<size_t>(size_of(t.numel())), start(spec));
    Elements e;
    for_each_index(t.sizes, [&](const Index& index) {
      Index first = index;
      first[static_cast<size_t>(spec.dims[0])] = Expr(0);
      Number& sum = sums[static_cast<size_t>(linear_index(t, first))];
      builder_.clear();
      Element element(builder_, n, 0, index);
      const Scalar s = info.element(element);
      sum = combine(spec, sum, convert(builder_.number(s), s.dtype, spec.accumulate));
      e.push_back(convert(sum, spec.accumulate, spec.result));
    });
    set(n.outputs[0], std::move(e));
  }

  static Number start(const ReductionSpec& spec) {
    const bool real = ir::is_floating(spec.accumulate);
    const double inf = std::numeric_limits<double>::infinity();
    Number n;
    auto either = [&](double r, int64_t i) { real ? void(n.real = r) : void(n.integer = i); };
    switch (spec.kind) {
      case ReduceKind::Prod:
        either(1, 1);
        break;
      case ReduceKind::All:
        n.integer = 1;
        break;
      case ReduceKind::LogSumExp:
      case ReduceKind::Max:
        either(-inf, std::numeric_limits<int64_t>::min());
        break;
      case ReduceKind::Min:
        either(inf, std::numeric_limits<int64_t>::max());
        break;
      default:
        either(0, 0);
    }
    return n;
  }

  static Number combine(const ReductionSpec& spec, Number a, Number b) {
    const DType d = spec.accumulate;
    LoopOp op = LoopOp::Add;
    switch (spec.kind) {
      case ReduceKind::Prod:
        op = LoopOp::Mul;
        break;
      case ReduceKind::Max:
        op = LoopOp::Max;
        break;
      case ReduceKind::Min:
        op = LoopOp::Min;
        break;
      case ReduceKind::Any:
        op = LoopOp::Or;
        break;
      case ReduceKind::LogSumExp:
        op = LoopOp::LogAddExp;
        break;
      case ReduceKind::All:
        op = LoopOp::And;
        break;
      default:
        break;
    }
    Number r;
    if (ir::is_floating(d)) {
      r.real = round_to(real_op(op, a.real, b.real, 0), d);
    } else {
      r.integer = wrap_to(integer_op(op, a.integer, b.integer, 0), d);
    }
    return r;
  }

  // Whether `v` takes the place of the best so far: NaN beats all, the first of equals stays.
  static bool beats(const ReductionSpec& spec, Number v, Number best) {
    const bool max = spec.kind == ReduceKind::ArgMax;
    if (!ir::is_floating(spec.accumulate)) {
      return max ? v.integer > best.integer : v.integer < best.integer;
    }
    if (std::isnan(best.real)) return false;
    if (std::isnan(v.real)) return true;
    return max ? v.real > best.real : v.real < best.real;
  }

  const ir::Graph& g_;
  std::vector<Elements> values_;
  Evaluator builder_;
};

}  // namespace

std::vector<Elements> evaluate(const ir::Graph& g, const std::vector<Elements>& inputs) {
  OXY_CHECK(inputs.size() == g.inputs().size(), inputs.size(), " inputs for ", g.inputs().size());
  Run run(g);
  for (size_t i = 0; i < inputs.size(); ++i) run.set(g.inputs()[i], inputs[i]);
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    if (!n.dead && n.kind == ir::NodeKind::CallOp) run.run(n);
  }
  std::vector<Elements> out;
  for (const ir::OutputSpec& o : g.outputs) {
    if (o.kind != ir::OutputSpec::Kind::Value) throw Unsupported("evaluation of this output");
    out.push_back(run.get(o.value));
  }
  return out;
}

}  // namespace oxy::ops
