// Chooses the folder and checks whose it is.
#include "jit/cache/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace oxy::jit::cache {

namespace {

std::string chosen_path() {
  auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string own = variable("OXYFUEL_CACHE_DIR"); !own.empty()) return own;
  if (std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/oxyfuel";
  if (std::string home = variable("HOME"); !home.empty()) return home + "/.cache/oxyfuel";
  return "";
}

bool is_ours(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && ::access(path.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

std::optional<std::string> writable_directory() {
  std::string path = chosen_path();
  if (path.empty()) return std::nullopt;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  ::mkdir(path.c_str(), 0700);
  if (!is_ours(path)) return std::nullopt;
  return path;
}

}  // namespace oxy::jit::cache
