// Clang in the process or an external compiler, loaded once for each choice of the settings.
#include "pipeline/compilers.h"

#include <map>
#include <optional>

#include "support/fork_mutex.h"
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
  static ForkMutex mutex;
  static std::map<std::string, Choice> choices;
  const std::string key = cat(settings.compiler, "\n", settings.cxx, "\n", folder);
  auto known = [&](std::optional<Choice> made) {
    const std::lock_guard lock(mutex);
    if (made) choices.try_emplace(key, std::move(*made));  // unless another thread was faster
    const auto it = choices.find(key);
    return it == choices.end() ? std::nullopt : std::optional(it->second);
  };
  std::optional<Choice> found = known({});
  if (!found) found = known(choose(settings, folder));
  why = found->why;
  return found->compiler;
}

}  // namespace oxy::pipeline
