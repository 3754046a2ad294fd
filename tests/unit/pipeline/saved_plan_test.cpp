// Which machines a saved plan is for.
#include "pipeline/pipeline.h"

#include <gtest/gtest.h>

#include "runtime/plan_file.h"
#include "support/check.h"
#include "support/machine.h"

namespace oxy::pipeline {
namespace {

std::string why_refused(const std::string& machine) {
  const runtime::Plan plan = runtime::parse_plan("plan arena=0 { }");
  try {
    load_plan(runtime::save(plan, {}, machine), Settings(), {});
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(SavedPlan, IsForMachinesThatHaveWhatItNeeds) {
  EXPECT_EQ(why_refused(machine_name()), "");
  const std::string width = cat("vectors ", host_machine().vector_bytes);
  EXPECT_TRUE(machine_name().starts_with(width));
  EXPECT_EQ(why_refused(width), "");
  for (const std::string other : {"vectors 16", "amx_int8", "avx", ""}) {
    const std::string why = why_refused(cat(width, ", ", other));
    EXPECT_NE(why.find(cat("another machine: it needs ", other, ", here is ")), std::string::npos)
        << why;
  }
}

TEST(SavedPlan, NamesTheInstructionsOfItsVectors) {
  const Machine& host = host_machine();
  EXPECT_EQ(machine_name().find("avx512") != std::string::npos, host.vector_bytes == 64);
  EXPECT_EQ(machine_name().find("avx2") != std::string::npos, host.vector_bytes >= 32);
}

}  // namespace
}  // namespace oxy::pipeline
