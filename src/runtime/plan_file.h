// Plans as bytes: a header (magic, version, length, hash of what follows), the plan, and the texts of
// its kernels. Attributes are tensors of whoever runs the plan and are not in the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/code_table.h"
#include "runtime/plan.h"

namespace oxy::runtime {

struct PlanFile {
  Plan plan;
  std::vector<std::string> texts;  // of the plan's kernels and those of its regions, each once
};

std::string save(const Plan& plan, const CodeTable& code);
// Throws UserError where the bytes are no file of this version, were changed, or hold no valid plan.
PlanFile load(std::string_view bytes);

// What stands behind the header.
std::string save_body(const Plan& plan, const CodeTable& code);
PlanFile load_body(std::string_view bytes);

}  // namespace oxy::runtime
