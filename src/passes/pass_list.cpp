// The list of passes.
#include "passes/pass_list.h"

#include <algorithm>
#include <chrono>

#include "ir/verify.h"
#include "passes/canonicalize.h"
#include "passes/choose_attention.h"
#include "passes/choose_layouts.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/fold_constants.h"
#include "passes/remove_noops.h"
#include "passes/simplify_views.h"
#include "passes/thin_products.h"
#include "support/check.h"

namespace oxy::passes {
namespace {

constexpr Pass kAll[] = {
    {"canonicalize", canonicalize, "one way to write each thing"},
    {"choose_layouts", choose_layouts, "channels-last activations for convolutions"},
    {"cse", cse, "equal calls become one"},
    {"dce", dce, "calls that nothing reads go"},
    {"decompose", decompose, "ops in terms of simpler ones"},
    {"expand_attention", expand_attention, "small attention as products and a softmax"},
    {"fold_constants", fold_constants, "arithmetic on constants"},
    {"fuse_attention", fuse_attention, "large attention as one op"},
    {"remove_noops", remove_noops, "calls whose result is their operand go"},
    {"simplify_views", simplify_views, "chains of views become one view"},
    {"thin_products", thin_products, "products with few rows as loops"},
};
static_assert(std::ranges::is_sorted(kAll, {}, &Pass::name));

constexpr Pass kStandard[] = {
    {"canonicalize", canonicalize, "so that the rest knows one form of each op"},
    {"remove_noops", remove_noops, "so that nothing is decomposed that goes away"},
    {"fuse_attention", fuse_attention, "while softmax is one op"},
    {"expand_attention", expand_attention, "before its parts are taken apart"},
    {"canonicalize", canonicalize, "the forms that these brought in"},
    {"decompose", decompose, "to ops with loop rules and to the library's own kernels"},
    {"thin_products", thin_products, "once layers are products, while their views are plain"},
    {"canonicalize", canonicalize, "the forms that decompositions brought in"},
    {"fold_constants", fold_constants, "masks and scalars"},
    {"simplify_views", simplify_views, "what heads and decompositions piled up"},
    {"choose_layouts", choose_layouts, "while it shows what is element-wise"},
    {"remove_noops", remove_noops, "what the last four laid bare"},
    {"cse", cse, "equal by now: masks and casts of each layer"},
    {"dce", dce, "what all of them left behind"},
};

}  // namespace

std::span<const Pass> all_passes() { return kAll; }
std::span<const Pass> standard_passes() { return kStandard; }

const Pass& find_pass(std::string_view name) {
  for (const Pass& p : kAll) {
    if (p.name == name) return p;
  }
  std::string known =
      join(kAll, ", ", [](std::string& out, const Pass& p) { append(out, p.name); });
  throw UserError(cat("unknown pass '", name, "'; known are: ", known));
}

bool run_pass(const Pass& pass, ir::Graph& g) {
  bool changed = false;
  ir::for_each_region(g, [&](ir::Graph& region) { changed |= pass.run(region); });
  return pass.run(g) || changed;
}

bool run_passes(ir::Graph& g, std::span<const Pass> passes, const RunOptions& options) {
  OXY_CHECK(g.stage != ir::Stage::Torch, "passes run on ATen graphs");
  using Clock = std::chrono::steady_clock;
  bool any = false;
  for (const Pass& p : passes) {
    Clock::time_point start = Clock::now();
    bool changed = run_pass(p, g);
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    any |= changed;
    if (options.verify) {
      try {
        ir::verify(g);
      } catch (const InternalError& e) {
        throw InternalError(cat("after pass ", p.name, ": ", e.what()));
      }
    }
    if (options.after) options.after(p, g, changed, seconds);
  }
  return any;
}

}  // namespace oxy::passes
