// mkdtemp in the first folder that serves. posix_spawn: safe in a process with threads, and does
// not copy a large one's page tables.
#include "jit/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/check.h"

extern char** environ;

namespace oxy::jit {
namespace {

std::vector<std::string> environment_with_tmpdir(const std::string& directory) {
  std::vector<std::string> result;
  for (char** entry = environ; entry && *entry; entry++)
    if (strncmp(*entry, "TMPDIR=", 7) != 0) result.emplace_back(*entry);
  result.push_back("TMPDIR=" + directory);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Compilation threads block all signals; the program gets the default mask.
pid_t spawn(std::vector<std::string> command, std::vector<std::string> environment,
            const std::string& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  int failed = posix_spawnp(&pid, command[0].c_str(), &actions, &attributes,
                            pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed ? -1 : pid;
}

bool wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    // A program that ignores SIGCHLD has its children's status taken away; the result then shows in
    // the output file.
    if (errno != EINTR) return errno == ECHILD;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

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

ProcessResult run_process(const std::vector<std::string>& command, const std::string& directory) {
  std::string output_path = directory + "/output.txt";
  pid_t pid = spawn(command, environment_with_tmpdir(directory), output_path);
  if (pid < 0) return {false, command[0] + " cannot be started"};
  bool succeeded = wait_for(pid);
  std::ifstream file(output_path);
  std::stringstream text;
  text << file.rdbuf();
  return {succeeded, text.str()};
}

}  // namespace oxy::jit
