// A process that dies while it compiles leaves its texts behind as suspects; nothing else does.
#include "jit/cache/tombstone.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "jit/compiler.h"
#include "jit/process.h"

namespace oxy::jit::cache {
namespace {

namespace fs = std::filesystem;

// Compiles `sources` in another process, which dies in the middle.
void die_while_compiling(const std::string& directory, const std::vector<std::string>& sources) {
  pid_t child = fork();
  if (child == 0) {
    Tombstones tombstones(directory, "clang 1");
    std::vector<std::unique_ptr<Tombstones::Mark>> marks;
    for (const std::string& source : sources)
      marks.push_back(std::make_unique<Tombstones::Mark>(tombstones, source));
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 3);
}

TEST(Tombstones, WhatADeadProcessCompiledIsSuspect) {
  ScratchDirectory scratch;
  die_while_compiling(scratch.path(), {"one", "two"});
  for (int run = 0; run < 2; run++) {
    Tombstones next(scratch.path(), "clang 1");
    EXPECT_TRUE(next.is_suspect("one"));
    EXPECT_TRUE(next.is_suspect("two"));
    EXPECT_FALSE(next.is_suspect("three"));
  }
  EXPECT_FALSE(Tombstones(scratch.path(), "clang 2").is_suspect("one"))
      << "another compiler starts anew";
}

TEST(Tombstones, WhatIsFinishedIsNotSuspect) {
  ScratchDirectory scratch;
  Tombstones here(scratch.path(), "clang 1");
  { Tombstones::Mark mark(here, "one"); }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  EXPECT_FALSE(Tombstones(scratch.path(), "clang 1").is_suspect("one"));
}

TEST(Tombstones, WhatALivingProcessCompilesIsNotSuspect) {
  ScratchDirectory scratch;
  Tombstones here(scratch.path(), "clang 1");
  Tombstones::Mark mark(here, "one");
  EXPECT_FALSE(fs::is_empty(scratch.path()));
  EXPECT_FALSE(Tombstones(scratch.path(), "clang 1").is_suspect("one"));
}

TEST(Tombstones, AreForgottenAfterAWeek) {
  ScratchDirectory scratch;
  die_while_compiling(scratch.path(), {"one"});
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    fs::last_write_time(entry.path(),
                        fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  EXPECT_FALSE(Tombstones(scratch.path(), "clang 1").is_suspect("one"));
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Tombstones, WithoutADirectoryNothingHappens) {
  Tombstones none(std::nullopt, "clang 1");
  Tombstones::Mark mark(none, "one");
  EXPECT_FALSE(none.is_suspect("one"));
  Tombstones gone("/nowhere/at/all", "clang 1");
  Tombstones::Mark other(gone, "one");
  EXPECT_FALSE(gone.is_suspect("one"));
}

TEST(Tombstones, ASuspectGoesToTheOtherCompiler) {
  if (std::string(OXY_CLANG_LIBRARY).empty()) GTEST_SKIP() << "built without the Clang library";
  ScratchDirectory scratch;
  setenv("OXYFUEL_CACHE_DIR", scratch.path().c_str(), 1);
  // Only GCC defines no __clang__.
  setenv("CXX", "g++", 1);
  std::string source = R"(
    extern "C" int kernel(void* const*, long, long, void*, void* const*) {
    #ifdef __clang__
      return 1;
    #else
      return 2;
    #endif
    })";
  auto run = [&] {
    std::string why;
    auto compiler = load_clang(OXY_CLANG_LIBRARY, why);
    EXPECT_TRUE(compiler) << why;
    return compiler->compile({source}, 1).front()->entry()(nullptr, 0, 0, nullptr, nullptr);
  };
  EXPECT_EQ(run(), 1);
  pid_t child = fork();
  if (child == 0) {
    Tombstones tombstones(scratch.path(), "clang 19.1.7");
    Tombstones::Mark mark(tombstones, source);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(run(), 2);
  unsetenv("OXYFUEL_CACHE_DIR");
  unsetenv("CXX");
}

TEST(WritableDirectory, IsMadePrivate) {
  ScratchDirectory scratch;
  std::string path = scratch.path() + "/a/cache";
  setenv("OXYFUEL_CACHE_DIR", path.c_str(), 1);
  EXPECT_EQ(writable_directory(), path);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  chmod(path.c_str(), 0777);
  EXPECT_EQ(writable_directory(), std::nullopt) << "others may write to it";
  setenv("OXYFUEL_CACHE_DIR", "/proc/oxyfuel", 1);
  EXPECT_EQ(writable_directory(), std::nullopt);
  unsetenv("OXYFUEL_CACHE_DIR");
}

}  // namespace
}  // namespace oxy::jit::cache
