// Which compiler kernels go through.
#pragma once

#include <memory>
#include <string>

#include "jit/compiler.h"
#include "support/settings.h"

namespace oxy::pipeline {

// The compiler that the settings ask for (`compiler`, `cxx`), the same one for equal settings; null
// where there is none, then `why` says so. `folder`: where the Clang library lies. Any thread may
// call it.
std::shared_ptr<jit::Compiler> compiler_for(const Settings& settings, const std::string& folder,
                                            std::string& why);

}  // namespace oxy::pipeline
