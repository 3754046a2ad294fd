// The words for what has changed, and the table of functions.
#include "python/global_state.h"

#include <c10/core/ScalarType.h>

#include "support/text.h"

namespace oxy::python {
namespace {

std::string text(bool on) { return on ? "on" : "off"; }
std::string text(uint32_t number) { return std::to_string(number); }
std::string text(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }
std::string text(caffe2::TypeMeta dtype) { return text(c10::typeMetaToScalarType(dtype)); }

}  // namespace

std::string difference(const GlobalState& now, const GlobalState& before) {
  std::string out;
  auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a == b) return;
    if (!out.empty()) out += "; ";
    cat_to(out, name, " is ", text(a), ", was ", text(b));
  };
#define OXY_MODE(type, field, words, read, write) \
  compare(words, now.modes.field, before.modes.field);
#define OXY_STATE(type, field, words, read) compare(words, now.field, before.field);
#include "python/torch_state.def"
  return out;
}

const std::map<std::string_view, Folded>& folded_functions() {
  static const auto table = [] {
    std::map<std::string_view, Folded> out;
#define OXY_FOLDED(guard, ...) \
  for (const char* function : {__VA_ARGS__}) out.emplace(function, Folded::guard);
#include "python/torch_state.def"
    return out;
  }();
  return table;
}

}  // namespace oxy::python
