// The Clang library itself: what it exports and needs, that it gives memory back, that a failed
// load is said.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "jit/clang/api.h"
#include "jit/compiler.h"
#include "jit/process.h"
#include "support/check.h"

namespace oxy::jit {
namespace {

class ClangLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(OXY_CLANG_LIBRARY).empty()) GTEST_SKIP() << "built without the Clang library";
  }
};

std::vector<std::string> readelf(const char* option) {
  ScratchDirectory scratch;
  ProcessResult result =
      run_process({"readelf", "--wide", option, OXY_CLANG_LIBRARY}, scratch.path());
  EXPECT_TRUE(result.succeeded) << result.output;
  std::vector<std::string> lines;
  std::istringstream stream(result.output);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Anything else among these (libLLVM, libstdc++) would be shared with other parts of the process.
TEST_F(ClangLibrary, NeedsOnlySystemLibraries) {
  int needed = 0;
  for (const std::string& line : readelf("--dynamic")) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    needed++;
    std::string name = line.substr(line.find('[') + 1);
    bool known = false;
    for (const char* allowed : {"libc.so", "libm.so", "ld-linux", "libdl.so", "libpthread.so"})
      known |= name.starts_with(allowed);
    EXPECT_TRUE(known) << line;
  }
  EXPECT_GT(needed, 0);
}

TEST_F(ClangLibrary, ExportsOneFunction) {
  std::vector<std::string> exported;
  for (const std::string& line : readelf("--dyn-syms")) {
    std::istringstream stream(line);
    std::string number, value, size, type, binding, visibility, section, name;
    stream >> number >> value >> size >> type >> binding >> visibility >> section >> name;
    if ((binding == "GLOBAL" || binding == "WEAK" || binding == "UNIQUE") && section != "UND")
      exported.push_back(name);
  }
  EXPECT_EQ(exported, std::vector<std::string>{"oxyfuel_clang_api"});
}

TEST_F(ClangLibrary, RefusesAnotherVersionOfTheInterface) {
  void* library = dlopen(OXY_CLANG_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto get_api = reinterpret_cast<OxyfuelClangEntry>(dlsym(library, "oxyfuel_clang_api"));
  ASSERT_TRUE(get_api);
  EXPECT_TRUE(get_api(kOxyfuelClangVersion));
  EXPECT_FALSE(get_api(kOxyfuelClangVersion + 1));
}

int executable_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(" r-xp ") != std::string::npos;
  return count;
}

TEST_F(ClangLibrary, ReleasedCodeIsUnmapped) {
  std::string why;
  auto compiler = load_clang(OXY_CLANG_LIBRARY, why);
  ASSERT_TRUE(compiler) << why;
  auto source = [](int i) {
    return "extern \"C\" int kernel() { return " + std::to_string(i) + "; }";
  };
  auto warm = compiler->compile({source(-1)}, 1);
  int before = executable_mappings();
  for (int i = 0; i < 50; i++) {
    std::shared_ptr<Code> code = compiler->compile({source(i)}, 1).front();
    EXPECT_EQ(code->entry()(nullptr, 0, 0, nullptr, nullptr), i);
  }
  EXPECT_LE(executable_mappings(), before + 1);
}

// The code of texts that were compiled as one is unmapped with the last of it; a text that fails
// leaves the others as they are.
TEST_F(ClangLibrary, TextsAreCompiledTogether) {
  std::string why;
  auto compiler = load_clang(OXY_CLANG_LIBRARY, why);
  ASSERT_TRUE(compiler) << why;
  std::vector<std::string> sources;
  for (int i = 0; i < 7; i++)
    sources.push_back(
        "static int twice(int x) { return 2 * x; }\nextern \"C\" int kernel() { return twice(" +
        std::to_string(i) + "); }");
  auto warm = compiler->compile({"extern \"C\" int kernel() { return -1; }"}, 1);
  const int before = executable_mappings();
  auto codes = compiler->compile(sources, 2);
  for (int i = 0; i < 7; i++) EXPECT_EQ(codes[i]->entry()(nullptr, 0, 0, nullptr, nullptr), 2 * i);
  codes.resize(1);
  EXPECT_EQ(codes[0]->entry()(nullptr, 0, 0, nullptr, nullptr), 0);
  codes.clear();
  EXPECT_LE(executable_mappings(), before + 1);
  sources[3] = "extern \"C\" int kernel() { return missing; }";
  try {
    compiler->compile(sources, 1);
    ADD_FAILURE() << "it compiles";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("missing"), std::string::npos) << e.what();
  }
}

// Other threads may hold any lock of LLVM's at the fork.
void* compile_one(const OxyfuelClangApi& api, const std::string& text, char** error) {
  const char* source = text.data();
  const size_t size = text.size();
  return api.compile(&source, &size, 1, error);
}

int plus_one(int x) { return x + 1; }

TEST_F(ClangLibrary, TextsCallWhatIsDefined) {
  void* library = dlopen(OXY_CLANG_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto get_api = reinterpret_cast<OxyfuelClangEntry>(dlsym(library, "oxyfuel_clang_api"));
  const OxyfuelClangApi& api = *get_api(kOxyfuelClangVersion);
  api.define("plus_one", reinterpret_cast<void*>(plus_one));
  const std::string text =
      "#ifdef OXY_HAS_plus_one\nextern \"C\" int plus_one(int);\n#else\n"
      "static int plus_one(int) { return 0; }\n#endif\n"
      "extern \"C\" int kernel() { return plus_one(41); }\n";
  char* error = nullptr;
  void* code = compile_one(api, text, &error);
  ASSERT_TRUE(code) << error;
  EXPECT_EQ(reinterpret_cast<int (*)()>(api.entry(code, 0))(), 42);
  api.release(code);
}

TEST_F(ClangLibrary, LinksInAProcessForkedWhileOthersLink) {
  void* library = dlopen(OXY_CLANG_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto get_api = reinterpret_cast<OxyfuelClangEntry>(dlsym(library, "oxyfuel_clang_api"));
  const OxyfuelClangApi& api = *get_api(kOxyfuelClangVersion);
  auto compile = [&] {
    const std::string text = "extern \"C\" int kernel() { return 5; }";
    char* error = nullptr;
    void* code = compile_one(api, text, &error);
    if (code) api.release(code);
    return code != nullptr;
  };
  auto compile_on = [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) compile();
  };
  ASSERT_TRUE(compile());
  std::jthread one(compile_on), another(compile_on);
  for (int i = 0; i < 80 && !HasFailure(); i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(compile() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "fork " << i;
  }
}

// An inline assembly that no register serves is reported by LLVM as an error of the code generator;
// clang's own driver would print it and end.
TEST_F(ClangLibrary, AFailureOfTheCodeGeneratorIsAnError) {
  std::string why;
  auto compiler = load_clang(OXY_CLANG_LIBRARY, why);
  ASSERT_TRUE(compiler) << why;
  const char* source = R"(
    extern "C" int kernel(void* const*, long begin, long end, void*, void* const*) {
      long a = begin, b = end;
      __asm__ volatile("" : : "r"(a), "r"(b), "r"(a + 1), "r"(a + 2), "r"(a + 3), "r"(a + 4),
                       "r"(a + 5), "r"(a + 6), "r"(a + 7), "r"(a + 8), "r"(a + 9), "r"(a + 10),
                       "r"(a + 11), "r"(a + 12), "r"(a + 13), "r"(a + 14), "r"(a + 15),
                       "r"(a + 16), "r"(a + 17));
      return 0;
    })";
  EXPECT_ANY_THROW(compiler->compile({source}, 1));
  auto code = compiler->compile({"extern \"C\" int kernel() { return 5; }"}, 1).front();
  EXPECT_EQ(code->entry()(nullptr, 0, 0, nullptr, nullptr), 5);
}

TEST(LoadClang, SaysWhyItCannot) {
  std::string why;
  EXPECT_FALSE(load_clang("/nowhere/liboxyfuel_clang.so", why));
  EXPECT_NE(why.find("nowhere"), std::string::npos) << why;
}

}  // namespace
}  // namespace oxy::jit
