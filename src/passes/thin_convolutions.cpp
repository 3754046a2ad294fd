// Writes a convolution that sums few products, of each channel by itself or of few channels and
// single pixels, as shifted multiplications and sums: what takes time is to read and write, and
// what stands around it fuses.
#include "passes/pass_list.h"

#include <algorithm>
#include <numeric>

#include "ops/contraction.h"
#include "passes/rewrite.h"
#include "support/tuning.h"

namespace oxy::passes {
namespace {

using ir::ValueId;
using sym::Expr;

struct Window {
  std::vector<int64_t> kernel, stride, padding, dilation;  // one a dimension of space
  int64_t groups = 1, channels = 1;                        // that one result sums

  int64_t taps() const {
    return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>());
  }
};

bool known(const std::vector<Expr>& sizes, std::vector<int64_t>& out) {
  out.clear();
  for (Expr e : sizes) {
    if (!e.is_const()) return false;
    out.push_back(e.value());
  }
  return true;
}

// A convolution of so few products, by sizes that are known, of rows.
std::optional<Window> few_products(const ir::Graph& g, const ir::Node& n) {
  if (n.target != "aten.convolution.default") return std::nullopt;
  const ops::Args a(g, n);
  const ir::TensorType *x = a.tensor(0), *w = a.tensor(1);
  if (!x || !w || x->dtype != w->dtype || !x->device.is_cpu() || !x->is_row_major() ||
      (x->dtype != ir::DType::F32 && x->dtype != ir::DType::F64) || x->dim() < 3 ||
      x->dim() != w->dim() || a.boolean(6, false) != false)
    return std::nullopt;
  const auto groups = a.integer(8, 1);
  std::vector<int64_t> weight;
  Window out;
  if (!groups || !known(w->sizes, weight) || !a.integers(3, out.stride) ||
      !a.integers(4, out.padding) || !a.integers(5, out.dilation))
    return std::nullopt;
  out.kernel.assign(weight.begin() + 2, weight.end());
  const size_t dims = out.kernel.size();
  for (auto* list : {&out.stride, &out.padding, &out.dilation})
    if (list->size() == 1) list->resize(dims, list->front());
  out.groups = *groups, out.channels = weight[1];
  const int64_t taps = out.taps();
  const bool each = out.channels == 1 && (*groups == 1 || *groups == weight[0]);
  const bool few = *groups == 1 && out.channels * taps <= tuning::gemm_few_products;
  const bool steps = std::ranges::all_of(out.stride, [](int64_t s) { return s >= 1 && s <= 2; });
  const bool filled = std::ranges::all_of(out.padding, [](int64_t p) { return p >= 0; });
  if (taps < 1 || out.channels < 1 || !steps || !filled ||
      !(few || (each && taps <= tuning::conv_few_taps)))
    return std::nullopt;
  return out;
}

class Shifted {
 public:
  Shifted(ops::Rewriter& r, const ir::Node& n, const Window& window)
      : r_(r), window_(window), result_(r.type(n.outputs[0])), x_(n.arg(0).value()) {
    w_ = n.arg(1).value();
    if (std::ranges::any_of(window.padding, [](int64_t p) { return p != 0; })) {
      std::vector<int64_t> pad;
      for (size_t d = window.padding.size(); d-- > 0;) pad.insert(pad.end(), 2, window.padding[d]);
      x_ = r.call("aten.constant_pad_nd.default", {x_, ops::list_of(pad), 0.0});
    }
  }

  ValueId sum() {
    const int64_t taps = window_.taps();
    ValueId out;
    for (int64_t c = 0; c < window_.channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const ValueId product = r_.mul(pixels(c, tap), weights(c, tap));
        out = out.valid() ? r_.add(out, product) : product;
      }
    }
    return out;
  }
  // One a channel.
  ValueId per_channel(ValueId v) {
    std::vector<Expr> sizes(window_.kernel.size() + 1, Expr(1));
    sizes[0] = result_.sizes[1];
    return r_.view(v, sizes);
  }

 private:
  // Where the tap stands, a number for each dimension.
  std::vector<int64_t> place(int64_t tap) const {
    std::vector<int64_t> at(window_.kernel.size());
    for (size_t d = at.size(); d-- > 0; tap /= window_.kernel[d]) at[d] = tap % window_.kernel[d];
    return at;
  }
  // What the tap meets of the channel, or of all.
  ValueId pixels(int64_t channel, int64_t tap) {
    ValueId v = x_;
    const auto part = [&](int64_t dim, Expr from, Expr to, int64_t step) {
      v = r_.call("aten.slice.Tensor", {v, dim, from, to, step});
    };
    if (window_.groups == 1) part(1, channel, channel + 1, 1);
    const std::vector<int64_t> at = place(tap);
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t first = at[d] * window_.dilation[d], step = window_.stride[d];
      const Expr count = result_.sizes[d + 2];
      part(static_cast<int64_t>(d) + 2, first, (count - Expr(1)) * Expr(step) + Expr(first + 1),
           step);
    }
    return v;
  }
  ValueId weights(int64_t channel, int64_t tap) {
    ValueId v = r_.call("aten.select.int", {w_, 1, channel});
    for (int64_t at : place(tap)) v = r_.call("aten.select.int", {v, 1, at});
    return per_channel(v);
  }

  ops::Rewriter& r_;
  const Window& window_;
  const ir::TensorType result_;
  ValueId x_, w_;
};

}  // namespace

bool thin_convolutions(ir::Graph& g, const Machine& machine) {
  // Among layers whose pixels are vectors of channels these are too.
  const ops::Providers providers = ops::providers_on(machine, "auto");
  for (const ir::NodeId id : g.order())
    if (!g.node(id).dead && ops::wants_channels_last(g, g.node(id), providers)) return false;
  return replace_calls(g, [&](ops::Rewriter& r, const ir::Node& n) -> std::optional<ValueId> {
    const auto window = few_products(g, n);
    if (!window || !g.tensor_type(n.outputs[0]).is_row_major()) return std::nullopt;
    Shifted shifted(r, n, *window);
    const ValueId out = shifted.sum();
    const ir::Arg bias = n.arg(2);
    return bias.is_value() ? r.add(out, shifted.per_channel(bias.value())) : out;
  });
}

}  // namespace oxy::passes
