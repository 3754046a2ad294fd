// Checks the words on a kernel.
#include "schedule/cpu/annotations.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::schedule {
namespace {

void expect(const Kernel& k, const Annotations& found, std::string_view known,
            std::string_view other = "") {
  for (const auto& [word, value] : found)
    OXY_CHECK(word == known || word == other, k.name, ": annotation ", word);
}

}  // namespace

void verify_annotations(const Kernel& k) {
  expect(k, k.annotations, kPanelLoops, kEpilogueOf);
  walk<For>(k.body, [&](const For& f) {
    const bool vector = f.kind == ForKind::Vector;
    expect(k, f.annotations, vector ? kTiled : "");
    const bool holds_loop =
        std::ranges::any_of(f.body, [](const Stmt& x) { return std::holds_alternative<For>(x.v); });
    OXY_CHECK(!vector || !holds_loop || is_tiled(f), k.name, ": a loop inside vector loop ", f.var);
  });
  walk<Compute>(k.body, [&](const Compute& c) {
    expect(k, c.annotations, c.op == LoopOp::Store ? kStreaming : "");
  });
  walk<Hint>(k.body,
             [&](const Hint& h) { OXY_CHECK(h.word == kPrefetch, k.name, ": hint ", h.word); });
}

}  // namespace oxy::schedule
