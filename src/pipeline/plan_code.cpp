// The code of plans: the compiler that makes it, loaded once for each choice of the settings, and
// plans as files, with the texts of their kernels.
#include <algorithm>
#include <map>
#include <thread>

#include "pipeline/pipeline.h"
#include "runtime/plan_file.h"
#include "support/check.h"
#include "support/fork_mutex.h"
#include "support/machine.h"

namespace oxy::pipeline {
namespace {

int threads_of(const Settings& settings) {
  if (settings.compile_threads > 0) return settings.compile_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Clang in the process, or an external compiler.
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

// Entries of a machine's name or text.
std::vector<std::string_view> entries(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find(", ", begin)) != text.npos; begin = end + 2)
    out.push_back(text.substr(begin, end - begin));
  out.push_back(text.substr(begin));
  return out;
}

void require_host(const std::string& machine) {
  const std::string here = cat(print(host_machine()), ", vectors ", host_machine().vector_bytes);
  const std::vector<std::string_view> has = entries(here);
  for (const std::string_view needed : entries(machine))
    if (std::ranges::find(has, needed) == has.end())
      throw UserError(
          cat("the plan is for another machine: it needs ", needed, ", here is ", here));
}

}  // namespace

runtime::CodeTable compile_texts(const std::vector<std::string>& texts, const Settings& settings,
                                 jit::Compiler& compiler) {
  runtime::CodeTable table;
  const auto code = compiler.compile(texts, threads_of(settings));
  for (size_t i = 0; i < code.size(); i++)
    table.add(content_hash(texts[i]),
              {code[i]->entry(), code[i], std::make_shared<const std::string>(texts[i])});
  return table;
}

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

std::string machine_name(const runtime::CodeTable& code) {
  const int bytes = host_machine().vector_bytes;
  // Instructions that kernels have by name.
  return cat("vectors ", bytes, bytes >= 32 ? ", avx2" : "", bytes >= 64 ? ", avx512" : "",
             code.mentions("dpbf16ps") ? ", avx512_bf16" : "",
             code.mentions("tdpbf16ps") ? ", amx_bf16" : "");
}

std::string save_plan(const runtime::Plan& plan, const runtime::CodeTable& code) {
  return runtime::save(plan, code, machine_name(code));
}

Compiled load_plan(std::string_view bytes, const Settings& settings,
                   const std::function<std::shared_ptr<jit::Compiler>()>& compiler) {
  runtime::PlanFile file = runtime::load(bytes);
  require_host(file.machine);
  Compiled out{std::move(file.plan), {}};
  if (!file.texts.empty()) out.code = compile_texts(file.texts, settings, *compiler());
  return out;
}

}  // namespace oxy::pipeline
