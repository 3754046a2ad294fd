// Files named compiling-XXXXXX, each an array of 64-bit hashes, zero where nothing is being
// compiled.
#include "jit/cache/tombstone.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace oxy::jit::cache {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "compiling-";
constexpr int kSlots = 256;  // more threads than this compile unmarked
// A killed process leaves a file too; its texts are tried again after this.
constexpr auto kForgetAfter = std::chrono::hours(24 * 7);

std::string chosen_path() {
  static constexpr std::pair<const char*, const char*> kPlaces[] = {
      {"OXYFUEL_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "/oxyfuel"}, {"HOME", "/.cache/oxyfuel"}};
  for (auto [variable, folder] : kPlaces)
    if (const char* value = std::getenv(variable); value && *value)
      return std::string(value) + folder;
  return "";
}

bool is_ours(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && ::access(path.c_str(), W_OK | X_OK) == 0;
}

// The hashes in a file whose owner is dead; empty where the owner lives.
std::vector<uint64_t> read_left_over(const fs::path& path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return {};
  std::vector<uint64_t> hashes;
  if (::flock(file, LOCK_SH | LOCK_NB) == 0) {
    hashes.resize(kSlots);
    ssize_t bytes = ::read(file, hashes.data(), kSlots * sizeof(uint64_t));
    hashes.resize(std::max<ssize_t>(bytes, 0) / sizeof(uint64_t));
  }
  ::close(file);  // and unlocks
  std::erase(hashes, 0);
  return hashes;
}

std::set<uint64_t> read_suspects(const std::string& directory) {
  std::set<uint64_t> suspects;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    std::vector<uint64_t> hashes = read_left_over(entry->path());
    if (hashes.empty()) continue;
    std::error_code ignored;
    auto age = fs::file_time_type::clock::now() - entry->last_write_time(ignored);
    if (age > kForgetAfter)
      fs::remove(entry->path(), ignored);
    else
      suspects.insert(hashes.begin(), hashes.end());
  }
  return suspects;
}

}  // namespace

std::optional<std::string> writable_directory() {
  std::string path = chosen_path();
  if (path.empty()) return std::nullopt;
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  ::mkdir(path.c_str(), 0700);
  if (!is_ours(path)) return std::nullopt;
  return path;
}

Tombstones::Tombstones(std::optional<std::string> directory, std::string compiler)
    : directory_(std::move(directory)), compiler_(std::move(compiler)) {
  if (directory_) suspects_ = read_suspects(*directory_);
}

Tombstones::~Tombstones() {
  forget_parents_file();
  remove_file();
}

bool Tombstones::is_suspect(const std::string& source) const {
  return !suspects_.empty() && suspects_.contains(hash(source));
}

// FNV-1a. A collision only sends a text to the other compiler.
uint64_t Tombstones::hash(const std::string& source) const {
  uint64_t value = 14695981039346656037ull;
  for (const std::string* text : {&compiler_, &source})
    for (unsigned char c : *text) value = (value ^ c) * 1099511628211ull;
  return value ? value : 1;
}

void Tombstones::remove_file() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());
  ::close(file_);
  file_ = -1;
}

// A forked process has a file of its own.
void Tombstones::forget_parents_file() {
  if (std::exchange(forks_, ForkMutex::forks()) == ForkMutex::forks()) return;
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  taken_.clear();
}

int Tombstones::enter(uint64_t hash) {
  std::lock_guard lock(mutex_);
  forget_parents_file();
  if (directory_ && file_ < 0) {
    path_ = *directory_ + "/" + kPrefix + "XXXXXX";
    file_ = ::mkostemp(path_.data(), O_CLOEXEC);
    if (file_ < 0)
      directory_.reset();  // full or gone: go on without
    else
      ::flock(file_, LOCK_EX);
  }
  auto free = std::find(taken_.begin(), taken_.end(), false);
  int slot = static_cast<int>(free - taken_.begin());
  if (file_ < 0 || slot >= kSlots) return -1;
  if (free == taken_.end()) taken_.push_back(false);
  if (::pwrite(file_, &hash, sizeof hash, slot * sizeof hash) != sizeof hash) return -1;
  taken_[slot] = true;
  return slot;
}

void Tombstones::leave(int slot) {
  if (slot < 0) return;
  std::lock_guard lock(mutex_);
  taken_[slot] = false;
  if (std::ranges::count(taken_, true) == 0) {
    remove_file();
  } else {
    uint64_t nothing = 0;
    // Where this fails the file keeps a hash too many, which costs a slower compilation after a
    // crash.
    [[maybe_unused]] ssize_t written =
        ::pwrite(file_, &nothing, sizeof nothing, slot * sizeof nothing);
  }
}

}  // namespace oxy::jit::cache
