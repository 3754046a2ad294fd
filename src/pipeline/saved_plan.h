// Plans as files of one machine: saved with its name, and compiled from their texts where they are
// loaded.
#pragma once

#include <string_view>

#include "pipeline/pipeline.h"

namespace oxy::pipeline {

// What kernels' texts depend on: the width of vectors and the instruction sets that vectors of this
// width are made of, as print(Machine) calls them: "vectors 64, avx2, avx512".
std::string machine_name();
std::string save_plan(const runtime::Plan& plan, const runtime::CodeTable& code);
// `compiler`: gives the compiler where there are kernels, or throws. UserError where the bytes are
// no plan, or one of another machine.
Compiled load_plan(std::string_view bytes, const Settings& settings,
                   const std::function<std::shared_ptr<jit::Compiler>()>& compiler);

}  // namespace oxy::pipeline
