#include "pipeline/compilers.h"

#include <map>
#include <mutex>

#include "support/text.h"

namespace oxy::pipeline {
namespace {

struct Choice {
  std::shared_ptr<jit::Compiler> compiler;
  std::string why;
};

Choice choose(const Settings& settings, const std::string& folder) {
  Choice c;
  if (settings.compiler == "none") {
    c.why = "the setting compiler is none";
    return c;
  }
  if (settings.compiler != "external") {
    c.compiler = jit::load_clang(folder + "/liboxyfuel_clang.so", c.why);
    if (c.compiler || settings.compiler == "clang") return c;
  }
  std::string why;
  c.compiler = jit::find_external(settings.cxx, why);
  if (!c.compiler) c.why = c.why.empty() ? why : cat(c.why, "; ", why);
  return c;
}

}  // namespace

std::shared_ptr<jit::Compiler> compiler_for(const Settings& settings, const std::string& folder,
                                            std::string& why) {
  static std::mutex mutex;
  static std::map<std::string, Choice> choices;
  std::lock_guard lock(mutex);
  auto [it, fresh] = choices.try_emplace(cat(settings.compiler, "\n", settings.cxx, "\n", folder));
  if (fresh) it->second = choose(settings, folder);
  why = it->second.why;
  return it->second.compiler;
}

}  // namespace oxy::pipeline
