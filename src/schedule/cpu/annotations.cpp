// Checks the words on a kernel.
#include "schedule/cpu/annotations.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::schedule {
namespace {

void expect(const Kernel& k, const Annotations& found,
            std::initializer_list<std::string_view> known) {
  for (const auto& [word, value] : found)
    OXY_CHECK(std::ranges::find(known, word) != known.end(), k.name, ": annotation ", word);
}

void verify(const Kernel& k, const Block& block) {
  for (const Stmt& s : block) {
    if (const auto* f = std::get_if<For>(&s.v)) {
      const bool vector = f->kind == ForKind::Vector;
      expect(k, f->annotations,
             vector ? std::initializer_list{kTiled} : std::initializer_list<std::string_view>{});
      const bool holds_loop = std::ranges::any_of(
          f->body, [](const Stmt& x) { return std::holds_alternative<For>(x.v); });
      OXY_CHECK(!vector || !holds_loop || is_tiled(*f), k.name, ": a loop inside vector loop ",
                f->var);
      verify(k, f->body);
    } else if (const auto* c = std::get_if<Compute>(&s.v)) {
      expect(k, c->annotations,
             c->op == LoopOp::Store ? std::initializer_list{kStreaming}
                                    : std::initializer_list<std::string_view>{});
    } else if (const auto* h = std::get_if<Hint>(&s.v)) {
      OXY_CHECK(h->word == kPrefetch, k.name, ": hint ", h->word);
    }
  }
}

}  // namespace

void verify_annotations(const Kernel& k) {
  expect(k, k.annotations, {kPanelLoops, kEpilogueOf});
  verify(k, k.body);
}

}  // namespace oxy::schedule
