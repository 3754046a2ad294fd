// Complex numbers as pairs of real values.
//
// A value that was computed is kept as its parts, and becomes numbers in memory (stacked, and seen
// as complex) only for what reads those: the caller, and ops without a rule here. What reads them
// of memory reads two strided views of it. So a chain of complex ops is one kernel, whose vectors
// take interleaved parts apart and put them together.
//
// Each rule is ATen's formula, with its infinities and zeros: a real operand has an imaginary part
// of 0 that is multiplied as any other (inf * 0 is NaN), and a sum multiplies by alpha.
#include "passes/pass_list.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::DType;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;

// Each a value, or a number.
struct Parts {
  Arg re, im;
};

bool has_parts(DType d) { return d == DType::C64 || d == DType::C128; }

// Arithmetic on values and numbers of one dtype.
class Reals {
 public:
  Reals(ops::Rewriter& r, DType dtype, ir::Device device) : r_(r), dtype_(dtype), device_(device) {}

  Arg mul(const Arg& a, const Arg& b) {
    if (const auto n = folded(a, b, std::multiplies<>())) return *n;
    return a.is_value() ? call("aten.mul.Tensor", {a, b}) : call("aten.mul.Tensor", {b, a});
  }
  Arg add(const Arg& a, const Arg& b) {
    if (const auto n = folded(a, b, std::plus<>())) return *n;
    return a.is_value() ? call("aten.add.Tensor", {a, b, 1}) : call("aten.add.Tensor", {b, a, 1});
  }
  Arg sub(const Arg& a, const Arg& b) {
    if (const auto n = folded(a, b, std::minus<>())) return *n;
    return call("aten.sub.Tensor", {value(a), b, 1});
  }
  Arg div(const Arg& a, const Arg& b) { return call("aten.div.Tensor", {value(a), value(b)}); }
  Arg unary(std::string_view op, const Arg& a) { return call(op, {value(a)}); }
  Arg binary(std::string_view op, const Arg& a, const Arg& b) {
    return call(op, {value(a), value(b)});
  }
  Arg where(const Arg& condition, const Arg& a, const Arg& b) {
    return call("aten.where.self", {condition, value(a), value(b)});
  }

  static double rounded(double x, DType dtype) {
    return dtype == DType::F32 ? static_cast<double>(static_cast<float>(x)) : x;
  }
  // A number as a tensor without dimensions.
  ValueId value(const Arg& a) { return a.is_value() ? a.value() : r_.full({}, a, dtype_, device_); }

 private:
  Arg call(std::string_view op, std::vector<Arg> args) { return r_.call(op, std::move(args)); }
  template <class Op>
  std::optional<Arg> folded(const Arg& a, const Arg& b, const Op& op) const {
    const double *x = a.get_if<double>(), *y = b.get_if<double>();
    if (!x || !y) return std::nullopt;
    return Arg(rounded(op(*x, *y), dtype_));
  }

  ops::Rewriter& r_;
  DType dtype_;
  ir::Device device_;
};

Parts multiplied(Reals& r, const Parts& a, const Parts& b) {
  return {r.sub(r.mul(a.re, b.re), r.mul(a.im, b.im)), r.add(r.mul(a.re, b.im), r.mul(a.im, b.re))};
}

// Smith, Algorithm 116: Complex division, Communications of the ACM 5 (1962).
Parts divided(Reals& r, const Parts& a, const Parts& b) {
  const Arg c = r.unary("aten.abs.default", b.re), d = r.unary("aten.abs.default", b.im);
  const Arg wide = r.binary("aten.ge.Tensor", c, d);
  const Arg large = r.where(wide, b.re, b.im), small = r.where(wide, b.im, b.re);
  const Arg ratio = r.div(small, large);
  const Arg scale = r.div(1.0, r.add(large, r.mul(small, ratio)));
  const Arg first = r.where(wide, a.re, a.im), second = r.where(wide, a.im, a.re);
  const Arg re = r.mul(r.add(first, r.mul(second, ratio)), scale);
  const Arg part = r.mul(first, ratio);
  const Arg im = r.mul(r.where(wide, r.sub(second, part), r.sub(part, second)), scale);
  const Arg by_zero = r.binary("aten.eq.Tensor", r.binary("aten.maximum.default", c, d), 0.0);
  return {r.where(by_zero, r.div(a.re, c), re), r.where(by_zero, r.div(a.im, d), im)};
}

// e^x beside a sine or cosine that it is multiplied with: where it leaves the range of floats,
// their product need not. The steps come first, since a sine may be a subnormal number.
struct PowerOfE {
  Arg far, rest, step, further_step;

  Arg times(Reals& r, const Arg& x, const Arg& last) const {
    return r.mul(r.mul(r.mul(x, step), further_step), last);
  }
};

PowerOfE power_of_e(Reals& r, const Arg& x, DType dtype) {
  const double step = dtype == DType::F32 ? 88 : 709;
  const Arg far = r.binary("aten.gt.Tensor", x, step);
  const Arg further = r.binary("aten.gt.Tensor", x, 2 * step);
  const Arg left = r.where(far, r.sub(x, r.where(further, 2 * step, step)), x);
  return {far, r.unary("aten.exp.default", left), r.where(far, std::exp(step), 1.0),
          r.where(further, std::exp(step), 1.0)};
}

// As C's cexp.
Parts exponential(Reals& r, const Parts& a, DType dtype) {
  const PowerOfE e = power_of_e(r, a.re, dtype);
  // 0 and infinity times what an angle that is no number gives are 0 and infinity.
  const double inf = std::numeric_limits<double>::infinity();
  const Arg ends = r.binary("aten.eq.Tensor", r.unary("aten.abs.default", a.re), inf);
  const Arg finite = r.binary("aten.eq.Tensor", r.sub(a.im, a.im), 0.0);
  const Arg zero = r.binary("aten.copysign.Tensor", 0.0, a.im);
  const Arg angle = r.where(ends, r.where(finite, a.im, zero), a.im);
  const auto part = [&](std::string_view op) { return e.times(r, r.unary(op, angle), e.rest); };
  const Arg real = r.binary("aten.eq.Tensor", a.im, 0.0);
  return {part("aten.cos.default"), r.where(real, a.im, part("aten.sin.default"))};
}

// As C's csqrt. A number whose size leaves the range of floats, or half of which does, is brought
// into it first, by a power of 4.
Parts root(Reals& r, const Parts& a, DType dtype) {
  const Arg whole_re = r.unary("aten.abs.default", a.re);
  const Arg whole_im = r.unary("aten.abs.default", a.im);
  const Arg largest = r.binary("aten.maximum.default", whole_re, whole_im);
  const int bits = dtype == DType::F32 ? 100 : 1000;
  const Arg huge = r.binary("aten.gt.Tensor", largest, std::ldexp(1.0, bits));
  const Arg tiny = r.binary("aten.lt.Tensor", largest, std::ldexp(1.0, -bits));
  const Arg factor = r.where(huge, std::ldexp(1.0, -4), r.where(tiny, std::ldexp(1.0, 54), 1.0));
  const Arg root_of_it = r.where(huge, 4.0, r.where(tiny, std::ldexp(1.0, -27), 1.0));
  const Arg re = r.mul(whole_re, factor), im = r.mul(whole_im, factor);
  const Arg size = r.binary("aten.hypot.default", re, im);
  const Arg endless = r.binary("aten.eq.Tensor", im, std::numeric_limits<double>::infinity());
  const Arg half = r.add(r.mul(size, 0.5), r.mul(re, 0.5));
  const Arg large = r.where(endless, im, r.unary("aten.sqrt.default", half));
  const Arg none = r.binary("aten.eq.Tensor", large, 0.0);
  const Arg quotient = r.where(none, 0.0, r.div(im, r.mul(large, 2.0)));
  const Arg small = r.where(endless, im, quotient);
  const Arg right = r.binary("aten.ge.Tensor", a.re, 0.0);
  const Arg signed_im = r.binary("aten.copysign.Tensor", r.where(right, small, large), a.im);
  return {r.mul(r.where(right, large, small), root_of_it), r.mul(signed_im, root_of_it)};
}

// cosh and sinh, without the steps of the power of e.
struct Hyperbolic {
  Arg cosh, sinh;
  PowerOfE e;
};

Hyperbolic hyperbolic(Reals& r, const Arg& x, DType dtype) {
  PowerOfE e = power_of_e(r, r.unary("aten.abs.default", x), dtype);
  e.step = r.where(e.far, r.mul(e.step, 0.5), 1.0);
  return {
      r.where(e.far, e.rest, r.unary("aten.cosh.default", x)),
      r.where(e.far, r.binary("aten.copysign.Tensor", e.rest, x), r.unary("aten.sinh.default", x)),
      e};
}

// Sines and cosines of what is no finite number are none: their products with 0 and infinity, which
// C's csin and ccos have, are told apart by these.
struct Ends {
  Arg angle, none, endless;  // x is no finite number; y is 0, infinite
};

Ends ends_of(Reals& r, const Parts& a) {
  const double inf = std::numeric_limits<double>::infinity();
  return {r.binary("aten.ne.Tensor", r.sub(a.re, a.re), 0.0), r.binary("aten.eq.Tensor", a.im, 0.0),
          r.binary("aten.eq.Tensor", r.unary("aten.abs.default", a.im), inf)};
}

// sin(x + iy) = sin x cosh y + i cos x sinh y
Parts sine(Reals& r, const Parts& a, DType dtype) {
  const Hyperbolic h = hyperbolic(r, a.im, dtype);
  const Ends ends = ends_of(r, a);
  const Arg re = h.e.times(r, r.unary("aten.sin.default", a.re), h.cosh);
  const Arg im = h.e.times(r, r.unary("aten.cos.default", a.re), h.sinh);
  const Arg size = r.unary("aten.abs.default", a.im);
  const Arg at_end = r.where(ends.none, a.im, r.where(ends.endless, size, im));
  return {r.where(r.binary("aten.eq.Tensor", a.re, 0.0), a.re, re),
          r.where(ends.angle, at_end, im)};
}

// cos(x + iy) = cos x cosh y - i sin x sinh y
Parts cosine(Reals& r, const Parts& a, DType dtype) {
  const Hyperbolic h = hyperbolic(r, a.im, dtype);
  const Ends ends = ends_of(r, a);
  const Arg re = h.e.times(r, r.unary("aten.cos.default", a.re), h.cosh);
  const Arg im = h.e.times(r, r.unary("aten.sin.default", a.re), h.sinh);
  const Arg zero = r.mul(a.re, r.binary("aten.copysign.Tensor", 1.0, a.im));
  const Arg real = r.binary("aten.eq.Tensor", a.re, 0.0);
  const Arg size = r.where(ends.endless, r.unary("aten.abs.default", a.im), re);
  const Arg minus = r.unary("aten.neg.default", r.where(real, zero, im));
  return {r.where(ends.angle, size, re),
          r.where(ends.angle, r.where(ends.none, 0.0, minus), minus)};
}

class Splitter {
 public:
  explicit Splitter(Graph& g) : g_(g), escapes_(g) {}

  bool run() {
    bool changed = false;
    note_readers();
    const std::vector<NodeId> order = g_.order();
    for (NodeId id : order) {
      if (g_.node(id).dead) continue;
      at_ = id;
      const bool split = where_shapes_are_known(g_, [&] { return rewrites(g_.node(id)); });
      changed |= split;
      if (split)
        g_.kill(id);
      else
        read_numbers(g_.node(id));
    }
    for (ir::OutputSpec& o : g_.outputs)
      if (o.kind == ir::OutputSpec::Kind::Value) o.value = in_memory(o.value);
    for (ir::Mutation& m : g_.mutations) m.value = in_memory(m.value);
    g_.replace_uses([&](ValueId v) {
      const auto it = reals_.find(v.index);
      return it == reals_.end() ? v : it->second;
    });
    g_.compact();
    return changed;
  }

 private:
  using Rule = bool (Splitter::*)(const Node&);

  ops::Rewriter rewriter() { return {g_, at_}; }

  bool is_complex(ValueId v) const {
    const ir::Type& t = g_.value(v).type;
    return t.is_tensor() && has_parts(t.tensor.dtype) && t.tensor.device.is_cpu();
  }
  bool is_split(ValueId v) const { return split_.contains(v.index); }

  // ---- between numbers and parts ----

  TensorType type_of_parts(const TensorType& t) const {
    TensorType out = t;
    out.dtype = part_of(t.dtype);
    out.requires_grad = false;
    for (Expr& s : out.strides) s = s * Expr(2);
    out.offset = t.offset * Expr(2);
    out.sizes.push_back(2);
    out.strides.push_back(1);
    return out;
  }

  Parts parts(ValueId v) {
    if (const auto it = split_.find(v.index); it != split_.end()) return it->second;
    if (const auto it = read_.find(v.index); it != read_.end()) return it->second;
    if (std::optional<Parts> of = parts_of_view(v))
      return read_.emplace(v.index, *std::move(of)).first->second;
    const TensorType pairs = type_of_parts(g_.tensor_type(v));
    return read_of_pairs(v, rewriter().call("aten.view_as_real.default", {v}, pairs));
  }
  // Of a view of numbers in memory: the views of their parts, which loops look through.
  std::optional<Parts> parts_of_view(ValueId v) {
    const Node n = g_.def(v);
    const Row* row = row_of(n);
    const bool moves =
        row && (row->rule == Rule(&Splitter::per_part) || row->rule == Rule(&Splitter::select));
    if (!moves || !is_view(n) || !n.arg(0).is_value() || !is_complex(n.arg(0).value()))
      return std::nullopt;
    const Parts of = parts(n.arg(0).value());
    ops::Rewriter r = rewriter();
    const auto seen = [&](const Arg& part) {
      std::vector<Arg> args = n.args;
      args[0] = part;
      return Arg(r.call(n.target, std::move(args)));
    };
    try {
      return Parts{seen(of.re), seen(of.im)};
    } catch (const ops::UnknownShape&) {
      return std::nullopt;
    }
  }
  const Parts& read_of_pairs(ValueId v, ValueId pairs) {
    ops::Rewriter r = rewriter();
    const int64_t last = r.type(pairs).dim() - 1;
    const ValueId re = r.call("aten.select.int", {pairs, last, 0});
    const ValueId im = r.call("aten.select.int", {pairs, last, 1});
    return read_.emplace(v.index, Parts{re, im}).first->second;
  }

  // The value for who reads numbers; made where it was computed.
  ValueId in_memory(ValueId v) {
    if (!is_split(v)) return v;
    if (const auto it = numbers_.find(v.index); it != numbers_.end()) return it->second;
    ops::Rewriter r(g_, g_.def(v).id);
    const TensorType type = g_.tensor_type(v), pairs = type_of_parts(type);
    const Node def = g_.def(v);
    if (is_view(def)) {
      std::vector<Arg> args;
      for (const Arg& a : def.args)
        args.push_back(map_values(a, [&](ValueId of) { return in_memory(of); }));
      return numbers_.emplace(v.index, r.call(def.target, std::move(args), type)).first->second;
    }
    Reals reals(r, pairs.dtype, pairs.device);
    const auto part = [&](const Arg& a) { return expanded(r, reals.value(a), type.sizes); };
    const Parts of = split_.at(v.index);
    // One that lies row by row decides how the pairs lie.
    const ValueId re = r.row_major(part(of.re)), im = part(of.im);
    ValueId out = r.call("aten.stack.default", {ir::List{{re, im}}, type.dim()});
    if (r.type(out).strides != pairs.strides) out = r.copy(out, pairs.strides);
    TensorType made = type;
    made.offset = 0;
    out = r.call("aten.view_as_complex.default", {out}, made);
    return numbers_.emplace(v.index, out).first->second;
  }

  void read_numbers(Node& n) {
    const auto f = [&](ValueId v) { return in_memory(v); };
    for (Arg& a : n.args) a = map_values(a, f);
    for (auto& [key, a] : n.kwargs) a = map_values(a, f);
  }

  // ---- operands and results ----

  std::optional<Parts> operand(const Arg& a, DType part) {
    if (a.is_value()) {
      const ValueId v = a.value();
      const ir::Type& t = g_.value(v).type;
      if (!t.is_tensor() || !t.tensor.device.is_cpu()) return std::nullopt;
      ops::Rewriter r = rewriter();
      if (is_complex(v)) {
        const Parts of = parts(v);
        const auto cast = [&](const Arg& x) {
          return x.is_value() ? Arg(r.cast(x.value(), part)) : x;
        };
        return Parts{cast(of.re), cast(of.im)};
      }
      if (!ops::is_computable(t.tensor.dtype)) return std::nullopt;
      return Parts{r.cast(v, part), 0.0};
    }
    const auto rounded = [&](double x) { return Arg(Reals::rounded(x, part)); };
    if (const auto* b = a.get_if<bool>()) return Parts{*b ? 1.0 : 0.0, 0.0};
    if (const auto* d = a.get_if<double>()) return Parts{rounded(*d), 0.0};
    if (const auto* c = a.get_if<std::complex<double>>())
      return Parts{rounded(c->real()), rounded(c->imag())};
    if (const auto i = integer(a)) return Parts{rounded(static_cast<double>(*i)), 0.0};
    return std::nullopt;
  }

  bool give(const Node& n, const Parts& parts) {
    split_.emplace(n.outputs[0].index, parts);
    return true;
  }

  bool give_real(const Node& n, const Arg& value) {
    const ValueId from = n.outputs[0];
    const TensorType& want = g_.tensor_type(from);
    ops::Rewriter r = rewriter();
    ValueId v = value.value();
    if (r.type(v).sizes != want.sizes || r.type(v).dtype != want.dtype) return false;
    if (r.type(v).strides != want.strides) v = r.copy(v, want.strides);
    reals_.emplace(from.index, v);
    return true;
  }

  // ---- rules ----

  struct Row {
    std::string_view op;
    Rule rule;
  };

  static const Row* row_of(const Node& n);
  bool rewrites(const Node& n);
  void note_readers();

  // The result of a rule on the parts of all operands of an elementwise op.
  template <class F>
  bool elementwise(const Node& n, size_t operands, const F& f) {
    const ValueId v = n.outputs[0];
    return is_complex(v) && elementwise(n, operands, part_of(g_.tensor_type(v).dtype), f);
  }
  template <class F>
  bool elementwise(const Node& n, size_t operands, DType part, const F& f) {
    std::vector<Parts> of;
    for (size_t i = 0; i < operands; i++) {
      const auto found = operand(n.arg(i), part);
      if (!found) return false;
      of.push_back(*found);
    }
    ops::Rewriter r = rewriter();
    Reals reals(r, part, g_.tensor_type(n.outputs[0]).device);
    return f(reals, of);
  }

  // a + alpha b
  bool sum(const Node& n, double sign) {
    const bool has_alpha = n.args.size() > 2 && !n.args[2].is_none();
    return elementwise(n, has_alpha ? 3 : 2, [&](Reals& r, const std::vector<Parts>& of) {
      Parts alpha = has_alpha ? of[2] : Parts{1.0, 0.0};
      if (sign < 0) alpha = {r.sub(0.0, alpha.re), r.sub(0.0, alpha.im)};
      const Parts b = multiplied(r, of[1], alpha);
      return give(n, {r.add(of[0].re, b.re), r.add(of[0].im, b.im)});
    });
  }
  bool add(const Node& n) { return sum(n, 1); }
  bool sub(const Node& n) {
    const auto is_bool = [&](const Arg& a) {
      const TensorType* t = tensor_of(g_, a);
      return a.get_if<bool>() != nullptr || (t && t->dtype == DType::B8);
    };
    return !is_bool(n.arg(0)) && !is_bool(n.arg(1)) && sum(n, -1);  // eager refuses bools
  }

  bool mul(const Node& n) {
    return elementwise(n, 2, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, multiplied(r, of[0], of[1]));
    });
  }
  bool div(const Node& n) {
    if (n.args.size() > 2) return false;
    return elementwise(n, 2, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, divided(r, of[0], of[1]));
    });
  }
  bool power(const Node& n) {
    if (integer(n.arg(1)) != 2) return false;
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, multiplied(r, of[0], of[0]));
    });
  }
  bool neg(const Node& n) {
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, {r.sub(0.0, of[0].re), r.sub(0.0, of[0].im)});
    });
  }
  bool conj(const Node& n) {
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, {of[0].re, r.unary("aten.neg.default", of[0].im)});
    });
  }
  bool reciprocal(const Node& n) {
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, divided(r, {1.0, 0.0}, of[0]));
    });
  }
  template <Parts (*f)(Reals&, const Parts&, DType)>
  bool function(const Node& n) {
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      return give(n, f(r, of[0], part_of(g_.tensor_type(n.outputs[0]).dtype)));
    });
  }
  // In double precision: near 1 a logarithm of |z| is what rounding |z| has lost.
  bool log(const Node& n) {
    if (g_.tensor_type(n.outputs[0]).dtype != DType::C64) return false;
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      ops::Rewriter rewrite = rewriter();
      const auto wide = [&](const Arg& a) { return rewrite.cast(r.value(a), DType::F64); };
      const ValueId size = rewrite.call("aten.hypot.default", {wide(of[0].re), wide(of[0].im)});
      const ValueId log = rewrite.unary("aten.log.default", size);
      return give(
          n, {rewrite.cast(log, DType::F32), r.binary("aten.atan2.default", of[0].im, of[0].re)});
    });
  }
  bool sgn(const Node& n) {
    return elementwise(n, 1, [&](Reals& r, const std::vector<Parts>& of) {
      const Arg size = r.binary("aten.hypot.default", of[0].re, of[0].im);
      const Arg none = r.binary("aten.eq.Tensor", size, 0.0);
      const auto part = [&](const Arg& x) { return r.where(none, 0.0, r.div(x, size)); };
      return give(n, {part(of[0].re), part(of[0].im)});
    });
  }
  bool to_copy(const Node& n) {
    return elementwise(n, 1, [&](Reals&, const std::vector<Parts>& of) { return give(n, of[0]); });
  }
  bool same(const Node& n) { return moves(n) && to_copy(n); }
  bool copy(const Node& n) { return moves(n) && fill(n); }
  bool fill(const Node& n) {
    if (!is_complex(n.outputs[0])) return false;
    const TensorType& t = g_.tensor_type(n.outputs[0]);
    const auto of = operand(n.arg(1), part_of(t.dtype));
    if (!of) return false;
    ops::Rewriter r = rewriter();
    Reals reals(r, part_of(t.dtype), t.device);
    const auto part = [&](const Arg& a) { return expanded(r, reals.value(a), t.sizes); };
    return give(n, {part(of->re), part(of->im)});
  }
  bool where(const Node& n) {
    if (!is_complex(n.outputs[0])) return false;
    const DType part = part_of(g_.tensor_type(n.outputs[0]).dtype);
    const auto a = operand(n.arg(1), part), b = operand(n.arg(2), part);
    if (!a || !b) return false;
    ops::Rewriter r = rewriter();
    Reals reals(r, part, g_.tensor_type(n.outputs[0]).device);
    return give(n, {reals.where(n.arg(0), a->re, b->re), reals.where(n.arg(0), a->im, b->im)});
  }

  // Of two reals.
  bool complex(const Node& n) {
    return elementwise(
        n, 2, [&](Reals&, const std::vector<Parts>& of) { return give(n, {of[0].re, of[1].re}); });
  }
  bool polar(const Node& n) {
    return elementwise(n, 2, [&](Reals& r, const std::vector<Parts>& of) {
      const auto part = [&](std::string_view op) { return r.mul(of[0].re, r.unary(op, of[1].re)); };
      return give(n, {part("aten.cos.default"), part("aten.sin.default")});
    });
  }

  // To reals.
  bool to_real(const Node& n, std::string_view op, bool imaginary_first) {
    if (!is_complex(n.arg(0).value())) return false;
    const DType part = part_of(g_.tensor_type(n.arg(0).value()).dtype);
    return elementwise(n, 1, part, [&](Reals& r, const std::vector<Parts>& of) {
      const Parts& a = of[0];
      return give_real(n, imaginary_first ? r.binary(op, a.im, a.re) : r.binary(op, a.re, a.im));
    });
  }
  bool abs(const Node& n) { return to_real(n, "aten.hypot.default", false); }
  bool angle(const Node& n) { return to_real(n, "aten.atan2.default", true); }

  bool compare(const Node& n, std::string_view op, std::string_view both) {
    // Tensors without dimensions do not widen others.
    DType part = DType::F32;
    int64_t dims = 0;
    for (const Arg& a : n.args)
      if (const TensorType* t = tensor_of(g_, a)) dims = std::max(dims, t->dim());
    for (const Arg& a : n.args) {
      const TensorType* t = tensor_of(g_, a);
      const bool wide = t && (t->dtype == DType::C128 || t->dtype == DType::F64);
      if (wide && (t->dim() > 0 || dims == 0)) part = DType::F64;
    }
    return elementwise(n, 2, part, [&](Reals& r, const std::vector<Parts>& of) {
      return give_real(
          n, r.binary(both, r.binary(op, of[0].re, of[1].re), r.binary(op, of[0].im, of[1].im)));
    });
  }
  bool eq(const Node& n) { return compare(n, "aten.eq.Tensor", "aten.bitwise_and.Tensor"); }
  bool ne(const Node& n) { return compare(n, "aten.ne.Tensor", "aten.bitwise_or.Tensor"); }

  // Views of the parts as reals. What escapes is a view of the numbers.
  bool view_as_real(const Node& n) {
    const ValueId v = n.arg(0).value();
    if (!is_split(v) || escapes_.escapes(n.outputs[0])) return false;
    const TensorType& want = g_.tensor_type(n.outputs[0]);
    const ValueId view = rewriter().call("aten.view_as_real.default", {in_memory(v)}, want);
    pairs_.emplace(n.outputs[0].index, v);
    reals_.emplace(n.outputs[0].index, view);
    return true;
  }
  bool select(const Node& n) {
    const auto of = n.arg(0).is_value() ? pairs_.find(n.arg(0).value().index) : pairs_.end();
    if (of == pairs_.end() || escapes_.escapes(n.outputs[0])) return per_part(n);
    const auto dim = integer(n.arg(1)), index = integer(n.arg(2));
    if (!dim || !index || *dim != g_.tensor_type(n.arg(0).value()).dim() - 1) return false;
    const Parts& parts = split_.at(of->second.index);
    ops::Rewriter r = rewriter();
    const TensorType& want = g_.tensor_type(n.outputs[0]);
    Reals reals(r, want.dtype, want.device);
    return give_real(n, reals.value(*index == 0 ? parts.re : parts.im));
  }
  bool view_as_complex(const Node& n) {
    const ValueId pairs = n.arg(0).value();
    const Node& def = g_.def(pairs);
    const auto* of = def.target == "aten.stack.default" ? def.arg(0).items() : nullptr;
    if (of && of->size() == 2 && integer(def.arg(1)) == g_.tensor_type(n.outputs[0]).dim())
      read_.emplace(n.outputs[0].index, Parts{(*of)[0], (*of)[1]});
    else
      read_of_pairs(n.outputs[0], pairs);
    return false;
  }

  // An op that does to each part what it does to numbers: it moves them, or adds them up.
  bool per_part(const Node& n) { return moves(n) && add_up(n); }
  bool add_up(const Node& n) {
    return per_part(n, [](ops::Rewriter&, ValueId v, Arg Parts::*) { return v; });
  }
  // A real piece between complex ones has an imaginary part of zeros.
  bool pieces(const Node& n) {
    if (!moves(n)) return false;
    const DType part = part_of(g_.tensor_type(n.outputs[0]).dtype);
    return per_part(n, [&](ops::Rewriter& r, ValueId v, Arg Parts::* which) {
      const TensorType of = g_.tensor_type(v);
      return which == &Parts::re ? v : expanded(r, r.full({}, 0.0, part, of.device), of.sizes);
    });
  }
  // The numbers with a part replaced, of which ATen makes several copies: in any case, and of
  // operands that loops can have the layout of.
  bool scatter(const Node& n) {
    const ValueId out = n.outputs[0];
    if (!per_part(n, [](ops::Rewriter&, ValueId v, Arg Parts::*) { return v; }, true)) return false;
    // What an input becomes is read from there, so that the kernel that writes it is one.
    if (std::ranges::find(g_.mutations, out, &ir::Mutation::value) != g_.mutations.end()) {
      reals_.emplace(out.index, in_memory(out));
      split_.erase(out.index);
    }
    return true;
  }
  // `real` gives what stands in a part for an operand that is no complex number.
  template <class F>
  bool per_part(const Node& n, const F& real, bool rows = false) {
    const ops::OpInfo* info = ops::find(n);
    if (!info || !info->shape || n.outputs.size() != 1 || !is_complex(n.outputs[0])) return false;
    const auto is_dtype = [](const Arg& a) { return a.get_if<DType>() != nullptr; };
    if (std::ranges::any_of(n.args, is_dtype)) return false;
    ops::Rewriter r = rewriter();
    const DType part = part_of(g_.tensor_type(n.outputs[0]).dtype);
    Reals reals(r, part, g_.tensor_type(n.outputs[0]).device);
    const auto made = [&](Arg Parts::* which) {
      std::vector<Arg> args;
      for (const Arg& a : n.args)
        args.push_back(map_values(a, [&](ValueId v) {
          if (!is_complex(v)) return real(r, v, which);
          const ValueId part = expanded(r, reals.value(parts(v).*which), g_.tensor_type(v).sizes);
          return rows ? r.compact(part) : part;
        }));
      return Arg(r.call(n.target, std::move(args)));
    };
    try {
      const Arg re = made(&Parts::re);
      return give(n, {re, made(&Parts::im)});
    } catch (const ops::UnknownShape&) {
      return false;  // parts may lie otherwise than the numbers: not every view is one of theirs
    }
  }
  // What only moves numbers that are in memory, for who reads numbers, stays what it is.
  bool moves(const Node& n) const {
    bool any = false;
    for (const Arg& a : n.args) for_each_value(a, [&](ValueId v) { any |= is_split(v); });
    return any || (!is_read_[n.outputs[0].index] && !is_view(n));
  }
  ValueId expanded(ops::Rewriter& r, ValueId v, const std::vector<Expr>& sizes) {
    return r.type(v).sizes == sizes ? v : r.call("aten.expand.default", {v, list_of(sizes)});
  }

  static constexpr Row kRows[] = {
      {"aten._conj.default", &Splitter::conj},
      {"aten._conj_physical.default", &Splitter::conj},
      {"aten._to_copy.default", &Splitter::to_copy},
      {"aten.abs.default", &Splitter::abs},
      {"aten.add.Scalar", &Splitter::add},
      {"aten.add.Tensor", &Splitter::add},
      {"aten.alias.default", &Splitter::per_part},
      {"aten.angle.default", &Splitter::angle},
      {"aten.cat.default", &Splitter::pieces},
      {"aten.clone.default", &Splitter::same},
      {"aten.complex.default", &Splitter::complex},
      {"aten.conj_physical.default", &Splitter::conj},
      {"aten.copy.default", &Splitter::copy},
      {"aten.cos.default", &Splitter::function<cosine>},
      {"aten.diagonal.default", &Splitter::per_part},
      {"aten.diagonal_scatter.default", &Splitter::scatter},
      {"aten.div.Scalar", &Splitter::div},
      {"aten.div.Tensor", &Splitter::div},
      {"aten.eq.Scalar", &Splitter::eq},
      {"aten.eq.Tensor", &Splitter::eq},
      {"aten.exp.default", &Splitter::function<exponential>},
      {"aten.expand.default", &Splitter::per_part},
      {"aten.fill.Scalar", &Splitter::fill},
      {"aten.fill.Tensor", &Splitter::fill},
      {"aten.flip.default", &Splitter::per_part},
      {"aten.full.default", &Splitter::copy},
      {"aten.gather.default", &Splitter::per_part},
      {"aten.index.Tensor", &Splitter::per_part},
      {"aten.index_select.default", &Splitter::per_part},
      {"aten.log.default", &Splitter::log},
      {"aten.mean.dim", &Splitter::per_part},
      {"aten.mul.Scalar", &Splitter::mul},
      {"aten.mul.Tensor", &Splitter::mul},
      {"aten.ne.Scalar", &Splitter::ne},
      {"aten.ne.Tensor", &Splitter::ne},
      {"aten.neg.default", &Splitter::neg},
      {"aten.permute.default", &Splitter::per_part},
      {"aten.polar.default", &Splitter::polar},
      {"aten.pow.Tensor_Scalar", &Splitter::power},
      {"aten.reciprocal.default", &Splitter::reciprocal},
      {"aten.repeat.default", &Splitter::per_part},
      {"aten.roll.default", &Splitter::per_part},
      {"aten.select.int", &Splitter::select},
      {"aten.select_scatter.default", &Splitter::scatter},
      {"aten.sgn.default", &Splitter::sgn},
      {"aten.sin.default", &Splitter::function<sine>},
      {"aten.slice.Tensor", &Splitter::per_part},
      {"aten.slice_scatter.default", &Splitter::scatter},
      {"aten.sqrt.default", &Splitter::function<root>},
      {"aten.squeeze.dims", &Splitter::per_part},
      {"aten.stack.default", &Splitter::pieces},
      {"aten.sub.Scalar", &Splitter::sub},
      {"aten.sub.Tensor", &Splitter::sub},
      {"aten.sum.default", &Splitter::add_up},
      {"aten.sum.dim_IntList", &Splitter::per_part},
      {"aten.tril.default", &Splitter::per_part},
      {"aten.triu.default", &Splitter::per_part},
      {"aten.unsqueeze.default", &Splitter::per_part},
      {"aten.view.default", &Splitter::per_part},
      {"aten.view_as_complex.default", &Splitter::view_as_complex},
      {"aten.view_as_real.default", &Splitter::view_as_real},
      {"aten.where.self", &Splitter::where},
  };
  static_assert(std::ranges::is_sorted(kRows, {}, &Row::op));

  Graph& g_;
  Replacements escapes_;
  NodeId at_;
  std::vector<bool> is_read_;  // by value: as numbers, by the caller or an op without a rule
  // By value.
  std::unordered_map<uint32_t, Parts> split_, read_;
  std::unordered_map<uint32_t, ValueId> numbers_;  // of those in split_, in memory
  std::unordered_map<uint32_t, ValueId> reals_;    // what takes the place of a value as it is
  std::unordered_map<uint32_t, ValueId> pairs_;    // of which split value it is the parts
};

const Splitter::Row* Splitter::row_of(const Node& n) {
  const auto row = std::ranges::lower_bound(kRows, n.target, {}, &Row::op);
  return row == std::end(kRows) || row->op != n.target ? nullptr : row;
}

bool Splitter::rewrites(const Node& n) {
  if (n.kind != ir::NodeKind::CallOp || n.outputs.size() != 1) return false;
  const Row* row = row_of(n);
  if (!row) return false;
  bool any = is_complex(n.outputs[0]);
  for (const Arg& a : n.args)
    for_each_value(a, [&](ValueId v) { any |= is_complex(v) || pairs_.contains(v.index); });
  if (!any || !g_.value(n.outputs[0]).type.is_tensor()) return false;
  const Node call = n;  // inserting nodes can move the graph's own
  return (this->*row->rule)(call);
}

void Splitter::note_readers() {
  is_read_.resize(g_.value_count());
  for (NodeId id : g_.order()) {
    const Node& n = g_.node(id);
    if (n.dead || row_of(n)) continue;
    for_each_value(n, [&](ValueId v) { is_read_[v.index] = true; });
  }
  for (uint32_t v = 0; v < is_read_.size(); v++)
    if (escapes_.escapes(ValueId(v))) is_read_[v] = true;
}

}  // namespace

bool split_complex(Graph& g) {
  const auto is_complex = [&](ValueId v) {
    const ir::Type& t = g.value(v).type;
    return t.is_tensor() && has_parts(t.tensor.dtype);
  };
  const bool any = std::ranges::any_of(g.order(), [&](NodeId id) {
    return !g.node(id).dead && std::ranges::any_of(g.node(id).outputs, is_complex);
  });
  return any && Splitter(g).run();
}

}  // namespace oxy::passes
