// Writes convolutions of half precision in f32, where the library has no kernels for them.
#include <algorithm>
#include <ranges>

#include "ops/contraction.h"
#include "ops/rewriter.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"
#include "support/tuning.h"

namespace oxy::passes {
namespace {

using ir::ValueId;

// Of the forward's numbers; one without a hint counts as many.
double multiplications(const ir::Graph& g, const ir::Node& n) {
  const bool backward = n.target == "aten.convolution_backward.default";
  const ir::TensorType& x = *tensor_of(g, n.arg(backward ? 1 : 0));
  const ir::TensorType& w = *tensor_of(g, n.arg(backward ? 2 : 1));
  const bool* transposed = n.arg(backward ? 7 : 6).get_if<bool>();
  const ir::TensorType& y = backward ? *tensor_of(g, n.arg(0)) : g.tensor_type(n.outputs[0]);
  double product = 1;
  const auto times = [&](ir::Expr e) { product *= ops::has_hint(e) ? sym::hint(e) : 1e6; };
  std::ranges::for_each(transposed && *transposed ? x.sizes : y.sizes, times);
  std::ranges::for_each(w.sizes | std::views::drop(1), times);
  return product;
}

class Widening {
 public:
  Widening(ir::Graph& g, const Machine& machine) : g_(g), machine_(machine), replacements_(g) {}

  bool run() {
    for (const ir::NodeId id : std::vector(g_.order())) {
      const ir::Node& n = g_.node(id);
      if (n.target != "aten.convolution.default" && n.target != "aten.convolution_backward.default")
        continue;
      const ir::TensorType* x = tensor_of(g_, n.arg(0));
      if (!x || !x->device.is_cpu() || !ir::is_reduced_float(x->dtype) ||
          ops::library_convolves(x->dtype, machine_) ||
          multiplications(g_, n) < tuning::widen_fewest_products)
        continue;
      const size_t first = g_.node_count();
      if (!widen(id)) kill_from(g_, first);
    }
    const bool changed = replacements_.apply();
    g_.compact();
    return changed;
  }

 private:
  // Nothing changes where a shape rule does not know what the wide call gives.
  bool widen(ir::NodeId id) try {
    const ir::Node n = g_.node(id);  // a copy: inserting nodes can move the graph's own
    ops::Rewriter r(g_, id);
    std::vector<ir::Arg> args = n.args;
    for (ir::Arg& a : args)
      if (tensor_of(g_, a)) a = plain(r, a.value());
    std::vector<ValueId> out = r.call_multi(n.target, std::move(args));
    for (size_t i = 0; i < out.size(); ++i) {
      const ir::Type recorded = g_.value(n.outputs[i]).type;
      if (!recorded.is_tensor()) continue;
      const auto narrowed = r.as(out[i], recorded.tensor);
      if (!narrowed || !same_place(g_.value(*narrowed).type, recorded)) return false;
      out[i] = *narrowed;
    }
    for (size_t i = 0; i < out.size(); ++i) replacements_.replace_unchecked(n.outputs[i], out[i]);
    g_.kill(id);
    return true;
  } catch (const ops::UnknownShape&) {
    return false;
  }

  // In f32, row-major.
  static ValueId plain(ops::Rewriter& r, ValueId v) {
    const ir::Arg none;
    return r.call("aten._to_copy.default",
                  {v, ir::DType::F32, none, none, none, false, ir::MemoryFormat{0}});
  }

  ir::Graph& g_;
  const Machine& machine_;
  Replacements replacements_;
};

}  // namespace

bool widen_convolutions(ir::Graph& g, const Machine& machine) { return Widening(g, machine).run(); }

}  // namespace oxy::passes
