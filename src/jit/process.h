// Runs a program, without a shell, and has a folder for it.
#pragma once

#include <string>
#include <vector>

namespace oxy::jit {

// A private folder for one compilation, removed with all that is in it.
class ScratchDirectory {
 public:
  // In $TMPDIR, /tmp, /var/tmp or /dev/shm, the first that can be written to and run from; mode
  // 0700, a name nobody can guess. Throws InternalError where there is none.
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct ProcessResult {
  bool succeeded = false;  // it started and returned 0
  std::string output;      // stdout and stderr together
};

// Waits for `command` (its first word is looked up on PATH), which gets `directory` as its TMPDIR;
// its output goes through a file there.
ProcessResult run_process(const std::vector<std::string>& command, const std::string& directory);

}  // namespace oxy::jit
