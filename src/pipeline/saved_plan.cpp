// A plan's bytes together with the texts of its kernels, which are compiled when it is loaded.
#include "pipeline/saved_plan.h"

#include <algorithm>

#include "runtime/plan_file.h"
#include "support/check.h"
#include "support/machine.h"

namespace oxy::pipeline {
namespace {

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

std::string machine_name() {
  const int bytes = host_machine().vector_bytes;
  return cat("vectors ", bytes, bytes >= 32 ? ", avx2" : "", bytes >= 64 ? ", avx512" : "");
}

std::string save_plan(const runtime::Plan& plan, const runtime::CodeTable& code) {
  return runtime::save(plan, code, machine_name());
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
