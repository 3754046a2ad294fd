#include "python/global_state.h"

#include <c10/core/ScalarType.h>

#include "support/text.h"

namespace oxy::python {
namespace {

std::string text(bool on) { return on ? "on" : "off"; }
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
  compare("autocast on the CPU", now.modes.autocast, before.modes.autocast);
  compare("autocast's dtype on the CPU", now.modes.autocast_dtype, before.modes.autocast_dtype);
  compare("autocast's cache", now.modes.autocast_cache, before.modes.autocast_cache);
  compare("the default dtype", now.default_dtype, before.default_dtype);
  compare("grad mode", now.modes.grad, before.modes.grad);
  compare("use_deterministic_algorithms", now.deterministic, before.deterministic);
  compare("flash attention", now.flash, before.flash);
  compare("attention by plain ops", now.math, before.math);
  return out;
}

}  // namespace oxy::python
