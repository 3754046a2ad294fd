// Plans as bytes: a header (magic, version, length, hash of what follows), the plan, and the texts
// of its kernels. Attributes are tensors of whoever runs the plan and are not in the file.
//
// The numbers of a file are checked (verify, at_sizes): what runs it reads and writes in the plan's
// memory alone. Its texts are code and taken at their word, like any library's: the hash is no
// signature.
#pragma once

#include "runtime/code_table.h"

namespace oxy::runtime {

struct PlanFile {
  std::string machine;  // that the texts are for, by a name that whoever saves gives it
  Plan plan;
  std::vector<std::string> texts;  // of the plan's kernels and those of its regions, each once
};

std::string save(const Plan& plan, const CodeTable& code, std::string machine);
// Throws UserError where the bytes are no file of this version, were changed, or hold no valid
// plan.
PlanFile load(std::string_view bytes);

// What stands behind the header.
std::string save_body(const Plan& plan, const CodeTable& code, std::string machine);
PlanFile load_body(std::string_view bytes);

}  // namespace oxy::runtime
