// Gradients that are views of what arrives.
#include "autograd/hand_on_views.h"

#include <algorithm>

#include "passes/pass_list.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::OutputSpec;
using ir::ValueId;

// What a chain of views is of.
ValueId memory_of(const Graph& g, ValueId v) {
  while (passes::is_view(g.def(v)) && g.def(v).arg(0).is_value()) v = g.def(v).args[0].value();
  return v;
}

bool lie_apart(const Graph& g, const std::vector<size_t>& outputs) {
  if (outputs.size() == 1) return true;
  std::vector<std::pair<int64_t, int64_t>> parts;  // the first element, and the one behind the last
  for (const size_t o : outputs) {
    const ir::TensorType& t = g.tensor_type(g.outputs[o].value);
    const ir::Expr count = t.numel();
    if (!t.offset.is_const() || !count.is_const()) return false;
    parts.emplace_back(t.offset.value(), t.offset.value() + count.value());
  }
  std::ranges::sort(parts);
  for (size_t i = 1; i < parts.size(); i++)
    if (parts[i].first < parts[i - 1].second) return false;
  return true;
}

}  // namespace

void hand_on_views(Graph& g, size_t first, size_t gradients) {
  bool any = false;
  for (size_t i = first; i < g.inputs().size(); i++) {
    const ValueId tangent = g.inputs()[i];
    std::vector<size_t> views;
    bool is_own = true;
    for (size_t o = 0; o < g.outputs.size(); o++) {
      const OutputSpec& out = g.outputs[o];
      const bool is_view =
          out.kind == OutputSpec::Kind::Value && memory_of(g, out.value) == tangent;
      if (is_view) views.push_back(o);
      is_own &= !(out.kind == OutputSpec::Kind::Input && out.index == i);
      // Others are read in their layouts, and what has gaps is copied by who accumulates it.
      if (is_view) is_own &= o < gradients && g.tensor_type(out.value).is_dense();
    }
    if (!is_own || views.empty() || !lie_apart(g, views)) continue;
    any = true;
    for (const size_t o : views) {
      OutputSpec& out = g.outputs[o];
      out = {.kind = OutputSpec::Kind::ViewOfInput,
             .index = static_cast<uint32_t>(i),
             .type = g.tensor_type(out.value)};
    }
  }
  if (any) passes::dce(g);
}

}  // namespace oxy::autograd
