// The compiler of the machine: how it is found, and what it leaves behind.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "jit/compiler.h"
#include "jit/process.h"

namespace oxy::jit {
namespace {

// Sets a variable for a scope; null removes it.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    if (before) before_ = before;
    was_set_ = before != nullptr;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { was_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool was_set_;
};

TEST(FindExternal, NamesTheCompiler) {
  std::string why;
  auto compiler = find_external("g++", why);
  ASSERT_TRUE(compiler) << why;
  EXPECT_NE(compiler->name().find("g++"), std::string::npos) << compiler->name();
}

TEST(FindExternal, SaysWhatItTried) {
  std::string why;
  EXPECT_FALSE(find_external("no-such-compiler", why));
  EXPECT_NE(why.find("no-such-compiler"), std::string::npos) << why;
}

TEST(FindExternal, WithoutAnyCompilerThereIsNone) {
  ScratchDirectory empty;
  Environment path("PATH", empty.path().c_str());
  Environment cxx("CXX", nullptr);
  std::string why;
  EXPECT_FALSE(find_external("", why));
  EXPECT_NE(why.find("g++"), std::string::npos) << why;
}

TEST(FindExternal, TakesTheOneInCxxWithItsArguments) {
  Environment cxx("CXX", "g++ -O1");
  std::string why;
  auto compiler = find_external("", why);
  ASSERT_TRUE(compiler) << why;
  EXPECT_NE(compiler->name().find("g++"), std::string::npos) << compiler->name();
}

TEST(External, WorksWithoutHomeAndLeavesNothingBehind) {
  ScratchDirectory base;
  Environment tmp("TMPDIR", base.path().c_str());
  Environment home("HOME", nullptr);
  std::string why;
  auto compiler = find_external("", why);
  ASSERT_TRUE(compiler) << why;
  auto code = compiler->compile({"extern \"C\" int kernel() { return 12; }"}, 1).front();
  EXPECT_TRUE(std::filesystem::is_empty(base.path()));
  EXPECT_EQ(code->entry()(nullptr, 0, 0, nullptr, nullptr), 12);
}

TEST(External, AnUnusableTmpdirIsPassedOver) {
  Environment tmp("TMPDIR", "/nowhere/at/all");
  std::string why;
  auto compiler = find_external("", why);
  ASSERT_TRUE(compiler) << why;
  EXPECT_EQ(compiler->compile({"extern \"C\" int kernel() { return 13; }"}, 1).size(), 1u);
}

TEST(RunProcess, GivesOutputAndStatus) {
  ScratchDirectory scratch;
  EXPECT_EQ(run_process({"echo", "a b", "$HOME"}, scratch.path()).output, "a b $HOME\n")
      << "no shell";
  EXPECT_FALSE(run_process({"false"}, scratch.path()).succeeded);
  EXPECT_FALSE(run_process({"no-such-program"}, scratch.path()).succeeded);
}

TEST(ScratchDirectory, IsPrivateAndRemoved) {
  std::string path;
  {
    ScratchDirectory scratch;
    path = scratch.path();
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace oxy::jit
