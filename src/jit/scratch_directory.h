// A private folder for one compilation, removed with all that is in it.
#pragma once

#include <string>

namespace oxy::jit {

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

}  // namespace oxy::jit
