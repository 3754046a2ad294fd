// The list of passes.
#include "passes/pass_list.h"

#include <algorithm>
#include <chrono>

#include "ir/graph.h"
#include "support/check.h"

namespace oxy::passes {
namespace {

// A pass that asks nothing about the machine.
template <bool (*run)(ir::Graph&)>
bool plain(ir::Graph& g, const Machine&) {
  return run(g);
}

constexpr Pass kAll[] = {
    {"accumulate_rows", plain<accumulate_rows>, "gradients of tied embeddings in one tensor"},
    {"canonicalize", plain<canonicalize>, "one way to write each thing"},
    {"choose_layouts", choose_layouts, "channels-last activations for convolutions"},
    {"compact_writes", plain<compact_writes>, "parts that are written are row-major"},
    {"copy_operands", copy_operands, "gemms read rows that are contiguous"},
    {"cse", plain<cse>, "equal calls become one"},
    {"dce", plain<dce>, "calls that nothing reads go"},
    {"decompose", plain<decompose>, "ops in terms of simpler ones"},
    {"expand_attention", expand_attention, "small attention as gemms and a softmax"},
    {"fold_constants", plain<fold_constants>, "arithmetic on constants"},
    {"fuse_attention", fuse_attention, "large attention as one op"},
    {"keep_checks", plain<keep_checks>, "what dead calls would raise for"},
    {"predicate_masks", plain<predicate_masks>, "what a mask selects is computed everywhere"},
    {"remove_noops", plain<remove_noops>, "calls whose result is their operand go"},
    {"simplify_views", plain<simplify_views>, "chains of views become one view"},
    {"split_complex", plain<split_complex>, "complex numbers as pairs of reals"},
    {"thin_convolutions", thin_convolutions, "convolutions of few products as loops"},
    {"thin_gemms", thin_gemms, "gemms of few rows or products as loops, of few columns transposed"},
    {"widen_convolutions", widen_convolutions, "half precision in f32 where it has no kernels"},
};
static_assert(std::ranges::is_sorted(kAll, {}, &Pass::name));

constexpr Pass kStandard[] = {
    {"canonicalize", plain<canonicalize>, "so that the rest knows one form of each op"},
    {"remove_noops", plain<remove_noops>, "so that nothing is decomposed that goes away"},
    {"fuse_attention", fuse_attention, "while softmax is one op"},
    {"expand_attention", expand_attention, "before its parts are taken apart"},
    {"predicate_masks", plain<predicate_masks>, "while a write by a mask is one call"},
    {"widen_convolutions", widen_convolutions, "while a gradient is one call"},
    {"canonicalize", plain<canonicalize>, "the forms that these brought in"},
    {"split_complex", plain<split_complex>, "before reals are taken apart"},
    {"decompose", plain<decompose>, "to ops with loop rules and to the library's own kernels"},
    {"compact_writes", plain<compact_writes>, "behind decompose, which knows a circular padding"},
    {"thin_convolutions", thin_convolutions, "before layouts are chosen"},
    {"thin_gemms", thin_gemms, "once layers are gemms, while their views are plain"},
    {"canonicalize", plain<canonicalize>, "the forms that decompositions brought in"},
    {"fold_constants", plain<fold_constants>, "masks and scalars"},
    {"simplify_views", plain<simplify_views>, "what heads and decompositions piled up"},
    {"choose_layouts", choose_layouts, "while it shows what is element-wise"},
    {"copy_operands", copy_operands, "while copies can still become one"},
    {"accumulate_rows", plain<accumulate_rows>, "once what is added is plain"},
    {"remove_noops", plain<remove_noops>, "what the last six laid bare"},
    {"cse", plain<cse>, "equal by now: masks and casts of each layer"},
    {"dce", plain<dce>, "what all of them left behind"},
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

// On every region inside of the graph, then on the graph.
static bool run_pass(const Pass& pass, ir::Graph& g, const Machine& machine) {
  bool changed = false;
  ir::for_each_region(g, [&](ir::Graph& region) { changed |= pass.run(region, machine); });
  return pass.run(g, machine) || changed;
}

bool run_passes(ir::Graph& g, std::span<const Pass> passes, const RunOptions& options) {
  OXY_CHECK(g.stage != ir::Stage::Torch, "passes run on ATen graphs");
  using Clock = std::chrono::steady_clock;
  bool any = false;
  for (const Pass& p : passes) {
    if (options.wanted && !options.wanted(p)) continue;
    Phase phase(options.timeline, p.name);
    Clock::time_point start = Clock::now();
    bool changed = run_pass(p, g, options.machine);
    if (!changed) phase.note("(unchanged)");
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
