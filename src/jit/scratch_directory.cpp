// mkdtemp in the first folder that serves.
#include "jit/scratch_directory.h"

#include <stdlib.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <system_error>

#include "support/check.h"

namespace oxy::jit {

namespace {

// A library cannot be loaded from a file system that is mounted noexec.
bool runs_code(const char* directory) {
  struct statvfs info = {};
  return statvfs(directory, &info) == 0 && !(info.f_flag & ST_NOEXEC);
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  for (const char* base :
       {static_cast<const char*>(::getenv("TMPDIR")), "/tmp", "/var/tmp", "/dev/shm"}) {
    if (!base || !*base || !runs_code(base)) continue;
    std::string path = std::string(base) + "/oxyfuel-XXXXXX";
    if (!::mkdtemp(path.data())) continue;
    path_ = std::move(path);
    return;
  }
  OXY_FAIL("no folder for temporary files: tried $TMPDIR, /tmp, /var/tmp, /dev/shm");
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace oxy::jit
