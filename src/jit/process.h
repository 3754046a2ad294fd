// Runs a program, without a shell.
#pragma once

#include <string>
#include <vector>

namespace oxy::jit {

struct ProcessResult {
  bool succeeded = false;  // it started and returned 0
  std::string output;      // stdout and stderr together
};

// Waits for `command` (its first word is looked up on PATH), which gets `directory` as its TMPDIR;
// its output goes through a file there.
ProcessResult run_process(const std::vector<std::string>& command, const std::string& directory);

}  // namespace oxy::jit
