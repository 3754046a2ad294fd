// Both directions; the scores' size decides which of them applies.
//
// The forms of written-out attention that are known, in canonical ops, with q (batch, length,
// size), k the other way round, and views that leave the last two dimensions alone anywhere
// between:
//   scores = bmm(q, k)                  what is done to q and k before does not matter: scaled,
//                                       permuted, repeated
//   scores = mul(scores, number)        any number of times; div too
//   scores = add(scores, mask)          at most once, behind the scaling; a float mask that
//                                       broadcasts
//   bmm(softmax(scores, -1), v)
// These are the inference forms of Inductor's fuse_attention patterns but for those whose masks are
// selections by booleans: there a NaN under the mask would come through. Dropout is gone in
// inference. A row whose every key is masked by -inf stays NaN; one whose every score overflows to
// -inf is NaN written out and 0 by the op.
#include "passes/pass_list.h"

#include <cmath>

#include "ops/args.h"
#include "ops/contraction.h"
#include "passes/rewrite.h"
#include "support/tuning.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;

constexpr const char* kFused = "aten._scaled_dot_product_flash_attention_for_cpu.default";
constexpr const char* kGradient =
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";

// On the CPU in this dtype, with elements at every call; sizes that vary decide at their hints.
bool has_sizes(const TensorType& t, ir::DType dtype = ir::DType::F32) {
  for (ir::Expr e : t.sizes)
    if (sym::range_of(e).lo < 1 || !ops::has_hint(e)) return false;
  return t.dtype == dtype && t.device.is_cpu();
}

// Whether our kernels multiply halves of this dtype: ATen's op computes their scores and shares by
// gemms of the library.
bool multiplies(ir::DType dtype, const Machine& machine) {
  const ops::Providers p = ops::providers_on(machine, "auto");
  return p.own && !(dtype == ir::DType::BF16 ? p.fast_bf16 : p.fast_f16);
}

// Bytes of scores from which on the op is faster. Where its gemms are as fast as our kernels are,
// what scores cost is their way through the caches.
int64_t most_scores(ir::DType dtype, const Machine& machine) {
  if (dtype == ir::DType::BF16 && ops::providers_on(machine, "auto").tiles_bf16)
    return tuning::tiles_attention_of_l2 * machine.l2.bytes;
  if (dtype == ir::DType::F32 && machine.vector_bytes < 64)
    return tuning::avx2_attention_of_l2 * machine.l2.bytes;
  const bool slow = dtype == ir::DType::BF16 || (dtype == ir::DType::F16 && !machine.avx512_fp16);
  return tuning::attention_bytes(machine, slow);
}

// Of an f32 tensor of these sizes.
int64_t bytes_of(const std::vector<ir::Expr>& sizes) {
  int64_t bytes = 4;
  for (ir::Expr e : sizes)
    if (__builtin_mul_overflow(bytes, sym::hint(e), &bytes)) return INT64_MAX;
  return bytes;
}

std::optional<double> number_of(const Arg& a) {
  if (const double* d = a.get_if<double>()) return *d;
  const std::optional<int64_t> i = integer(a);
  return i ? std::optional(static_cast<double>(*i)) : std::nullopt;
}

// Attention as it was found: bmm(softmax(q k * scale + mask), v).
struct Written {
  ValueId query, key, value;  // (batch, length, size), (batch, size, keys), (batch, keys, size)
  Arg mask;                   // of the scores' shape, or broadcast to it
  double scale = 1;
  std::vector<ir::Expr> scores;  // sizes, where the mask is added
};

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), uses_(g.use_counts()) {}

  std::optional<Written> at(const Node& last) const {
    if (last.target != "aten.bmm.default" || !is_f32(last.outputs[0])) return std::nullopt;
    ValueId v = through_views(last.args[0].value());
    const Node& softmax = g_.def(v);
    if (!is_alone(v) || softmax.target != "aten._softmax.default" || !over_last(softmax))
      return std::nullopt;
    Written w;
    w.value = last.args[1].value();
    w.scores = g_.tensor_type(v).sizes;
    const Node* gemm = scores(softmax.args[0].value(), w);
    if (!gemm) return std::nullopt;
    w.query = gemm->args[0].value();
    w.key = gemm->args[1].value();
    const TensorType &q = g_.tensor_type(w.query), &x = g_.tensor_type(w.value);
    if (!has_sizes(q) || !has_sizes(x) || q.sizes[2] != x.sizes[2]) return std::nullopt;
    return w;
  }

 private:
  bool is_f32(ValueId v) const { return has_sizes(g_.tensor_type(v)); }
  bool is_alone(ValueId v) const { return uses_[v.index] == 1; }

  bool over_last(const Node& softmax) const {
    const std::optional<int64_t> dim = integer(softmax.arg(1));
    const int64_t rank = g_.tensor_type(softmax.outputs[0]).dim();
    return dim && (*dim == -1 || *dim == rank - 1) && softmax.arg(2) == Arg(false);
  }

  // A view that leaves the last two dimensions as they are.
  bool is_regrouping(const Node& n) const {
    if (n.target != "aten.view.default" && n.target != "aten._unsafe_view.default" &&
        n.target != "aten.unsqueeze.default" && n.target != "aten.squeeze.dim")
      return false;
    const auto &in = g_.tensor_type(n.args[0].value()).sizes,
               &out = g_.tensor_type(n.outputs[0]).sizes;
    return in.size() > 2 && out.size() > 2 && in.back() == out.back() &&
           in[in.size() - 2] == out[out.size() - 2];
  }

  ValueId through_views(ValueId v) const {
    while (is_alone(v) && is_regrouping(g_.def(v))) v = g_.def(v).args[0].value();
    return v;
  }

  // From the softmax up to the gemm that makes the scores.
  const Node* scores(ValueId v, Written& w) const {
    for (;;) {
      if (!is_alone(v) || !is_f32(v)) return nullptr;
      const Node& n = g_.def(v);
      if (n.target == "aten.bmm.default") return &n;
      if (is_regrouping(n))
        v = through_views(v);
      else if (n.target == "aten.add.Tensor" && w.mask.is_none() && w.scale == 1)
        v = masked(n, w);
      else
        v = scaled(n, w);
      if (!v.valid()) return nullptr;
    }
  }

  ValueId masked(const Node& n, Written& w) const {
    if (n.args.size() > 2 && n.args[2] != Arg(1)) return {};
    if (!n.arg(0).is_value() || !n.arg(1).is_value()) return {};
    if (g_.tensor_type(n.outputs[0]).sizes != w.scores || w.scores.size() > 4) return {};
    for (int side : {0, 1}) {
      const TensorType &s = g_.tensor_type(n.args[side].value()),
                       &m = g_.tensor_type(n.args[1 - side].value());
      if (s.sizes != w.scores || !is_score(n.args[side].value()) || m.dtype != ir::DType::F32 ||
          m.sizes.empty())
        continue;
      w.mask = n.args[1 - side];
      return n.args[side].value();
    }
    return {};
  }

  // Whether it leads to a gemm: tells the scores from the mask where both have the same shape.
  bool is_score(ValueId v) const {
    for (int steps = 0; steps < 8; ++steps) {
      const Node& n = g_.def(v);
      if (n.target == "aten.bmm.default") return true;
      const bool scales = n.target == "aten.mul.Tensor" || n.target == "aten.div.Tensor";
      if (!is_regrouping(n) && !(scales && number_of(n.arg(1)))) return false;
      v = n.args[0].value();
    }
    return false;
  }

  ValueId scaled(const Node& n, Written& w) const {
    const std::optional<double> number = number_of(n.arg(1));
    if (!number || !n.arg(0).is_value()) return {};
    if (n.target == "aten.mul.Tensor")
      w.scale *= *number;
    else if (n.target == "aten.div.Tensor" && *number != 0)
      w.scale /= *number;
    else
      return {};
    return n.args[0].value();
  }

  const Graph& g_;
  const std::vector<uint32_t> uses_;
};

// batch x heads in front of the last two dimensions.
std::vector<ir::Expr> four(const std::vector<ir::Expr>& scores, const std::vector<ir::Expr>& last) {
  std::vector<ir::Expr> out = {1};
  out.insert(out.end(), scores.begin(), scores.end() - 2);
  if (out.size() == 3) out.erase(out.begin());
  out.insert(out.end(), last.end() - 2, last.end());
  return out;
}

// Attention by the one op, as the gemm that it replaces lies.
ValueId fused(ops::Rewriter& r, const Written& w) {
  auto as_four = [&](ValueId v) { return r.view(v, four(w.scores, r.type(v).sizes)); };
  const ValueId key = r.call("aten.permute.default", {w.key, Arg(ir::List{{0, 2, 1}})});
  Arg mask;
  if (w.mask.is_value()) {
    const ValueId wide = r.call("aten.expand.default", {w.mask, Arg(list_of(w.scores)), false});
    mask = w.scores.size() == 4 ? wide : r.call("aten.unsqueeze.default", {wide, 0});
  }
  ValueId out = r.call_multi(
      kFused, {as_four(w.query), as_four(key), as_four(w.value), 0.0, false, mask, w.scale})[0];
  if (mask.is_value()) {  // eager's softmax of a row of nothing but -inf; the op gives 0
    const int64_t last = r.type(w.mask.value()).dim() - 1;
    const ValueId most = r.amax(w.mask.value(), {last}, true);
    const ValueId empty = r.call("aten.eq.Scalar", {most, -INFINITY});
    out = r.call("aten.masked_fill.Scalar", {out, empty, Arg(std::nan(""))});
  }
  if (!r.type(out).is_contiguous())
    out = r.call("aten.clone.default", {out, Arg(ir::MemoryFormat{0})});
  return r.view(out, r.type(w.query).sizes);
}

// One batch dimension instead of two: a copy where the strides do not allow it.
ValueId merged(ops::Rewriter& r, ValueId v) {
  if (r.type(v).sizes[0].is_const(1)) return r.call("aten.squeeze.dim", {v, 0});
  if (const TensorType& t = r.type(v); t.strides[0] != t.strides[1] * t.sizes[1])
    v = r.call("aten.clone.default", {v, Arg(ir::MemoryFormat{0})});
  const TensorType& t = r.type(v);
  return r.view(v, {t.sizes[0] * t.sizes[1], t.sizes[2], t.sizes[3]});
}

// Scores with what the op does to them: top-left causal, or a mask to add.
ValueId masked_scores(ops::Rewriter& r, ValueId scores, bool causal, const Arg& mask) {
  const std::vector<ir::Expr> sizes = r.type(scores).sizes;
  const ir::Device device = r.type(scores).device;
  if (causal) {
    auto count = [&](ir::Expr n) {
      return r.call("aten.arange.default", {n, ir::DType::I64, ir::None{}, device});
    };
    const ValueId rows = r.call("aten.unsqueeze.default", {count(sizes[2]), 1});
    const ValueId later = r.call("aten.gt.Tensor", {count(sizes[3]), rows});
    scores = r.call("aten.masked_fill.Scalar", {scores, later, -INFINITY});
  }
  return mask.is_value() ? r.add(scores, r.widen(mask.value())) : scores;
}

struct Fused {
  TensorType query, key;
  double scale;
  bool causal;
};

// The op's call, where it is one whose scores are small.
std::optional<Fused> small_attention(const Graph& g, const Node& n, const Machine& machine,
                                     int64_t most) {
  const ops::Args a(g, n);
  const TensorType *q = a.tensor(0), *k = a.tensor(1), *v = a.tensor(2), *mask = a.tensor(5);
  const auto scale = a.number(6, 0.0), dropout = a.number(3, 0.0);
  const auto causal = a.boolean(4, false);
  if (!q || (q->dtype != ir::DType::F32 &&
             !(ir::is_reduced_float(q->dtype) && multiplies(q->dtype, machine))))
    return std::nullopt;
  const ir::DType dtype = q->dtype;
  if (!k || !v || !has_sizes(*q, dtype) || !has_sizes(*k, dtype) || !has_sizes(*v, dtype) ||
      !scale || !causal || dropout != 0.0 || (!a.missing(5) && (!mask || mask->dtype != q->dtype)))
    return std::nullopt;
  // Scores that are masked are scaled as well there.
  const auto factor = static_cast<float>(*scale);
  if (!a.missing(6) && !(factor > 0 && std::isfinite(factor))) return std::nullopt;
  const ir::Expr length = q->sizes[2], keys = k->sizes[2];
  if (sym::known_equal(keys, v->sizes[2]) == false) return std::nullopt;
  if (q->sizes[1] != k->sizes[1] || !q->sizes[3].is_const() ||
      sym::hint(length) < tuning::gemm_few_rows ||
      bytes_of({q->sizes[0], q->sizes[1], length, keys}) > most)
    return std::nullopt;
  const double usual = 1.0 / std::sqrt(static_cast<double>(q->sizes[3].value()));
  return Fused{*q, *k, a.missing(6) ? usual : *scale, *causal};
}

// Softmax of f32 scores times values that are halves, as the op rounds: shares before they are
// divided by their sum, of which the largest is 1 exactly, and the result. A row of nothing but
// -inf gives 0.
ValueId mixed_halves(ops::Rewriter& r, ValueId scores, ValueId value, ir::DType dtype) {
  auto replaced = [&](ValueId v, double from, double to) {
    return r.call("aten.masked_fill.Scalar", {v, r.call("aten.eq.Scalar", {v, from}), to});
  };
  const std::vector<ir::Expr> sizes = r.type(scores).sizes, &values = r.type(value).sizes;
  const std::vector<ir::Expr> flat{values[0], sizes[2], sizes[3]}, rows{values[0], sizes[2], 1};
  const ValueId most = replaced(r.amax(scores, {3}, true), -INFINITY, 0.0);
  const ValueId shares = r.unary("aten.exp.default", r.sub(scores, most));
  const ValueId sum = replaced(r.sum(shares, {3}, true), 0.0, 1.0);
  const ValueId mixed = r.call(ops::kBmmToF32, {r.cast(r.view(shares, flat), dtype), value});
  return r.cast(r.div(mixed, r.view(sum, rows)), dtype);
}

// The op's operands with one batch dimension each.
struct Operands {
  ValueId query, key, value;
};

Operands operands(ops::Rewriter& r, const Arg& query, const Arg& key, const Arg& value) {
  const ValueId q = merged(r, query.value()), k = merged(r, key.value());
  return {q, k, merged(r, value.value())};
}

ValueId turned(ops::Rewriter& r, ValueId v) {
  return r.call("aten.permute.default", {v, Arg(ir::List{{0, 2, 1}})});
}

ValueId multiplied(ops::Rewriter& r, ValueId a, ValueId b) {
  return r.call("aten.bmm.default", {a, b});
}

// What scores of halves are, as in the op: f32.
ValueId scores_of(ops::Rewriter& r, const Operands& o, const Node& n, const Fused& f) {
  const ValueId key = turned(r, o.key);
  const bool halves = f.query.dtype != ir::DType::F32;
  const ValueId scores = r.call(halves ? ops::kBmmToF32 : "aten.bmm.default", {o.query, key});
  const std::vector<ir::Expr> flat = r.type(scores).sizes;
  const ValueId four = r.view(scores, {f.query.sizes[0], f.query.sizes[1], flat[1], flat[2]});
  return masked_scores(r, r.call("aten.mul.Tensor", {four, f.scale}), f.causal, n.arg(5));
}

// What each row of f32 scores takes of the values, with one batch dimension.
ValueId shares_of(ops::Rewriter& r, ValueId scores, const Node& n) {
  ValueId shares = r.call("aten._softmax.default", {scores, 3, false});
  if (n.arg(5).is_value())  // a row of nothing but -inf is 0 here, where softmax gives NaN
    shares = r.call("aten.masked_fill.Scalar",
                    {shares, r.call("aten.eq.Scalar", {scores, -INFINITY}), 0.0});
  const std::vector<ir::Expr> sizes = r.type(shares).sizes;
  return r.view(shares, {sizes[0] * sizes[1], sizes[2], sizes[3]});
}

// As the op's output, or gradient, of this number lies.
std::optional<ValueId> as_output(ops::Rewriter& r, ValueId v, const Node& n, size_t number) {
  const TensorType like = r.type(n.outputs[number]);
  return copy_laid_out(r, r.view(v, like.sizes), like);
}

std::optional<ValueId> expanded(ops::Rewriter& r, const Node& n, const Fused& f) {
  const Operands o = operands(r, n.arg(0), n.arg(1), n.arg(2));
  const ValueId scores = scores_of(r, o, n, f);
  const ir::DType dtype = f.query.dtype;
  return as_output(r,
                   dtype == ir::DType::F32 ? multiplied(r, shares_of(r, scores, n), o.value)
                                           : mixed_halves(r, scores, o.value, dtype),
                   n, 0);
}

// The calls of the op and of its gradient, and what takes the place of their results.
struct Trained {
  NodeId forward, backward;
  std::vector<std::pair<ValueId, std::optional<ValueId>>> results;
};

// Of the op, whose shares the gradient takes.
ValueId expand_forward(Graph& g, const Fused& f, Trained& t) {
  ops::Rewriter r(g, t.forward);
  const Node n = g.node(t.forward);
  const Operands o = operands(r, n.arg(0), n.arg(1), n.arg(2));
  const ValueId shares = shares_of(r, scores_of(r, o, n, f), n);
  t.results.emplace_back(n.outputs[0], as_output(r, multiplied(r, shares, o.value), n, 0));
  return shares;
}

// d scores = shares * (d shares - sum(d out * out)): FlashAttention's formula.
void expand_backward(Graph& g, const Fused& f, ValueId shares, Trained& t) {
  ops::Rewriter r(g, t.backward);
  const Node n = g.node(t.backward);
  const Operands o = operands(r, n.arg(1), n.arg(2), n.arg(3));
  const ValueId grad = merged(r, n.arg(0).value());
  const ValueId weights = r.sum(r.mul(n.arg(0).value(), n.arg(4).value()), {3}, true);
  const std::vector<ir::Expr> rows = r.type(grad).sizes;
  const ValueId of_shares = multiplied(r, grad, turned(r, o.value));
  const ValueId rest = r.sub(of_shares, r.view(weights, {rows[0], rows[1], 1}));
  const ValueId of_scores = r.call("aten.mul.Tensor", {r.mul(shares, rest), f.scale});
  const ValueId gradients[] = {multiplied(r, of_scores, o.key),
                               multiplied(r, turned(r, of_scores), o.query),
                               multiplied(r, turned(r, shares), grad)};
  for (size_t i = 0; i < 3; ++i)
    t.results.emplace_back(n.outputs[i], as_output(r, gradients[i], n, i));
}

// Whether the shares take no more memory than what the op keeps in any case: its operands and its
// result.
bool are_few(const Fused& f) {
  const auto& q = f.query.sizes;
  const auto& k = f.key.sizes;
  return sym::hint(q[2]) * sym::hint(k[2]) <=
         2 * sym::hint(q[3]) * (sym::hint(q[2]) + sym::hint(k[2]));
}

// A call of the op's gradient, with the op's, whose logsumexp nobody else reads.
std::optional<Trained> trained(const Graph& g, const Node& n, const std::vector<uint32_t>& uses) {
  if (n.target != kGradient || n.dead || !n.arg(5).is_value()) return std::nullopt;
  const ir::Value& kept = g.value(n.arg(5).value());
  const Node& f = g.node(kept.def);
  if (f.target != kFused || uses[n.arg(5).value().index] != 1 || n.arg(4) != Arg(f.outputs[0]))
    return std::nullopt;
  for (size_t i = 0; i < 3; ++i)
    if (n.arg(i + 1) != f.arg(i)) return std::nullopt;
  return Trained{kept.def, g.value(n.outputs[0]).def, {}};
}

}  // namespace

bool fuse_attention(Graph& g, const Machine& machine) {
  const Finder finder(g);
  return replace_calls(g, [&](ops::Rewriter& r, const Node& n) -> std::optional<ValueId> {
    const std::optional<Written> w = finder.at(n);
    if (!w) return std::nullopt;
    const std::vector<ir::Expr>& s = w->scores;
    if (bytes_of(s) <= most_scores(ir::DType::F32, machine) ||
        sym::hint(s[s.size() - 2]) < tuning::gemm_few_rows)
      return std::nullopt;
    return fused(r, *w);
  });
}

bool expand_attention(Graph& g, const Machine& machine) {
  const std::vector<uint32_t> uses = g.use_counts();
  return replace_calls(g, [&](ops::Rewriter& r, const Node& n) -> std::optional<ValueId> {
    if (n.target != kFused || uses[n.outputs[1].index] > 0) return std::nullopt;
    const ops::Args a(g, n);
    const std::optional<Fused> f =
        small_attention(g, n, machine, most_scores(a.tensor(0)->dtype, machine));
    return f ? expanded(r, n, *f) : std::nullopt;
  });
}

bool expand_trained_attention(Graph& g, std::vector<bool>& formulas, const Machine& machine) {
  const std::vector<uint32_t> uses = g.use_counts();
  const std::vector<NodeId> order = g.order();
  Replacements replacements(g);
  const bool known = !formulas.empty();
  const auto mark = [&](bool called) {  // what is new
    if (known) formulas.resize(g.node_count(), called);
  };
  for (NodeId id : order) {
    std::optional<Trained> t = trained(g, g.node(id), uses);
    if (!t) continue;
    const auto f =
        small_attention(g, g.node(t->forward), machine, tuning::attention_bytes(machine));
    if (!f || f->query.dtype != ir::DType::F32 || !are_few(*f)) continue;
    const size_t first = g.node_count();
    mark(false);
    const bool made = where_shapes_are_known(g, [&] {
      const ValueId shares = expand_forward(g, *f, *t);
      mark(false);
      expand_backward(g, *f, shares, *t);
      return true;
    });
    mark(true);
    if (!made || std::ranges::any_of(t->results, [&](const auto& pair) {
          return !pair.second || !same_place(g.value(*pair.second).type, g.value(pair.first).type);
        })) {
      kill_from(g, first);
      continue;
    }
    for (const auto& [from, to] : t->results) replacements.replace_unchecked(from, *to);
    g.kill(t->backward);
    g.kill(t->forward);
  }
  return replacements.apply();
}

}  // namespace oxy::passes
