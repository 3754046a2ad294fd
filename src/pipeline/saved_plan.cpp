#include "pipeline/saved_plan.h"

#include "runtime/plan_file.h"
#include "support/check.h"
#include "support/machine.h"

namespace oxy::pipeline {

std::string machine_name() { return cat("vectors ", host_machine().vector_bytes); }

std::string save_plan(const runtime::Plan& plan, const runtime::CodeTable& code) {
  return runtime::save(plan, code, machine_name());
}

Compiled load_plan(std::string_view bytes, const Settings& settings,
                   const std::function<std::shared_ptr<jit::Compiler>()>& compiler) {
  runtime::PlanFile file = runtime::load(bytes);
  if (file.machine != machine_name())
    throw UserError(cat("the plan is for another machine: ", file.machine));
  Compiled out{std::move(file.plan), {}};
  if (!file.texts.empty()) out.code = compile_texts(file.texts, settings, *compiler());
  return out;
}

}  // namespace oxy::pipeline
