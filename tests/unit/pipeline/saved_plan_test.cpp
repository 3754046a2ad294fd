// Which machines a saved plan is for.
#include "pipeline/pipeline.h"

#include <gtest/gtest.h>

#include "codegen/cpp/gemm.h"
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

TEST(SavedPlan, NamesTheInstructionsThatKernelsHaveByName) {
  codegen::cpp::Gemm gemm;
  gemm.dtype = ir::DType::BF16;
  gemm.m = gemm.n = gemm.channels = gemm.a_row = gemm.b_k = gemm.c_row = 64;
  gemm.b_n = 1;
  Machine machine = host_machine();
  machine.avx2 = machine.avx512 = machine.avx512_bf16 = true;
  machine.vector_bytes = 64;
  for (const bool tiles : {false, true}) {
    machine.amx_bf16 = tiles;
    runtime::CodeTable code;
    code.add({}, {.text = std::make_shared<std::string>(codegen::cpp::emit_gemm(gemm, machine))});
    const std::string name = machine_name(code);
    EXPECT_NE(name.find("avx512_bf16"), std::string::npos) << name;
    EXPECT_EQ(name.find("amx_bf16") != std::string::npos, tiles) << name;
  }
  EXPECT_EQ(machine_name().find("bf16"), std::string::npos);
}

}  // namespace
}  // namespace oxy::pipeline
