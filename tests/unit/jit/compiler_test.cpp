// What every Compiler promises: the same tests over the in-process Clang and the compiler of the
// machine.
#include "jit/compiler.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "support/check.h"

namespace oxy::jit {
namespace {

struct Case {
  const char* name;
  std::function<std::shared_ptr<Compiler>(std::string& why)> make;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class CompilerTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::string why;
    compiler_ = GetParam().make(why);
    if (!compiler_ && std::string(OXY_CLANG_LIBRARY).empty()) GTEST_SKIP() << why;
    ASSERT_TRUE(compiler_) << why;
  }

  std::shared_ptr<Code> compile(const std::string& source) {
    return compiler_->compile({source}, 1).front();
  }

  std::shared_ptr<Compiler> compiler_;
};

std::string returns(int number) {
  return "extern \"C\" int kernel(void* const* buffers, long begin, long end, void* scratch, void* "
         "const* math) {\n"
         "  return " +
         std::to_string(number) + ";\n}\n";
}

int run(const Code& code) { return code.entry()(nullptr, 0, 0, nullptr, nullptr); }

TEST_P(CompilerTest, RunsAVectorLoop) {
  auto code = compile(R"(
    typedef float V __attribute__((vector_size(32), aligned(4)));
    typedef V (*Fn)(V);
    extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                          void* const* math) {
      const float* in = (const float*)buffers[0];
      float* out = (float*)buffers[1];
      for (long i = begin; i < end; i += 8) *(V*)(out + i) = (*(const V*)(in + i) + 1.0f) * 2.0f;
      return 7;
    })");
  float in[24], out[24] = {};
  for (int i = 0; i < 24; i++) in[i] = i;
  void* buffers[] = {in, out};
  EXPECT_EQ(code->entry()(buffers, 8, 24, nullptr, nullptr), 7);
  EXPECT_EQ(out[7], 0);
  for (int i = 8; i < 24; i++) EXPECT_EQ(out[i], (i + 1) * 2);
}

TEST_P(CompilerTest, ManyAddressesInALoop) {
  std::string copies;
  for (int k = 0; k < 150; k++)
    copies += "out[150 * i + " + std::to_string(k) + "] = in[i + " + std::to_string(k) + "];\n";
  auto code = compile(R"(
    extern "C" int kernel(void* const* buffers, long begin, long end, void*, void* const*) {
      const float* in = (const float*)buffers[0];
      float* out = (float*)buffers[1];
      for (long i = begin; i < end; i++) {)" +
                      copies + "} return 0; }");
  std::vector<float> in(200), out(150 * 20);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(i);
  void* buffers[] = {in.data(), out.data()};
  EXPECT_EQ(code->entry()(buffers, 1, 20, nullptr, nullptr), 0);
  EXPECT_EQ(out[149], 0);
  for (size_t i = 150; i < out.size(); i++)
    ASSERT_EQ(out[i], static_cast<float>(i / 150 + i % 150));
}

TEST_P(CompilerTest, CallsThroughTheMathTable) {
  auto code = compile(R"(
    extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                          void* const* math) {
      return ((int (*)(int))math[1])((int)begin);
    })");
  int (*square)(int) = [](int x) { return x * x; };
  void* math[] = {nullptr, reinterpret_cast<void*>(square)};
  EXPECT_EQ(code->entry()(nullptr, 9, 0, nullptr, math), 81);
}

TEST_P(CompilerTest, CallsTheCLibrary) {
  auto code = compile(R"(
    extern "C" double sin(double);
    extern "C" float powf(float, float);
    extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                          void* const* math) {
      __builtin_memcpy(buffers[1], buffers[0], end);
      __builtin_memset(scratch, 5, end);
      return (int)(sin((double)begin) * 1000) + (int)powf((float)begin, 3);
    })");
  std::string from(100, 'x'), to(100, ' '), scratch(100, ' ');
  void* buffers[] = {from.data(), to.data()};
  EXPECT_EQ(code->entry()(buffers, 2, 100, scratch.data(), nullptr), 909 + 8);
  EXPECT_EQ(from, to);
  EXPECT_EQ(scratch, std::string(100, '\5'));
}

TEST_P(CompilerTest, IntegersWrapAndFloatsAreNotContracted) {
  auto code = compile(R"(
    extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                          void* const* math) {
      int big = *(int*)buffers[0];
      float* f = (float*)buffers[1];
      f[3] = f[0] * f[1] + f[2];
      return big + 1 < big;
    })");
  int big = 2147483647;
  volatile float x = 1.0f + 1.0f / 4096;  // x * x needs more bits than a float has
  float rounded = x * x;
  float f[4] = {x, x, -rounded, 1};
  void* buffers[] = {&big, f};
  EXPECT_EQ(code->entry()(buffers, 0, 0, nullptr, nullptr), 1);
  EXPECT_EQ(f[3], 0) << "a fused multiply-add would leave the rounding error";
}

TEST_P(CompilerTest, NanAndSignedZeroAreKept) {
  auto code = compile(R"(
    extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                          void* const* math) {
      float* f = (float*)buffers[0];
      f[1] = f[1] + 0.0f;
      return f[0] != f[0];
    })");
  float f[] = {__builtin_nanf(""), -0.0f};
  void* buffers[] = {f};
  EXPECT_EQ(code->entry()(buffers, 0, 0, nullptr, nullptr), 1);
  EXPECT_FALSE(__builtin_signbit(f[1])) << "-0 + 0 is +0";
}

TEST_P(CompilerTest, AnErrorCarriesTheCompilersMessage) {
  try {
    compile("extern \"C\" int kernel() { return undeclared_name; }");
    FAIL() << "compiled";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("undeclared_name"), std::string::npos) << error.what();
  }
  EXPECT_EQ(run(*compile(returns(3))), 3) << "the compiler goes on after an error";
}

TEST_P(CompilerTest, AnUnknownSymbolIsAnError) {
  const char* source =
      "extern \"C\" int no_such_function(); extern \"C\" int kernel() { return no_such_function(); "
      "}";
  try {
    compile(source);
    FAIL() << "compiled";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_function"), std::string::npos)
        << error.what();
  }
}

TEST_P(CompilerTest, AMissingKernelIsAnError) {
  EXPECT_THROW(compile("extern \"C\" int other() { return 1; }"), InternalError);
  EXPECT_THROW(compile(""), InternalError);
}

TEST_P(CompilerTest, ManyTextsOnSeveralThreadsEachGetTheirOwnCode) {
  std::vector<std::string> sources;
  for (int i = 0; i < 12; i++) sources.push_back(returns(i % 6));
  auto codes = compiler_->compile(sources, 4);
  ASSERT_EQ(codes.size(), sources.size());
  for (int i = 0; i < 12; i++) EXPECT_EQ(run(*codes[i]), i % 6);
  for (int i = 0; i < 6; i++) EXPECT_EQ(codes[i], codes[i + 6]) << "equal texts share their code";
}

TEST_P(CompilerTest, AnErrorOnAThreadReachesTheCaller) {
  EXPECT_THROW(compiler_->compile({returns(1), "nonsense", returns(2)}, 3), InternalError);
}

TEST_P(CompilerTest, EqualTextsAreCompiledOnceWhileTheCodeLives) {
  auto first = compile(returns(41));
  EXPECT_EQ(compile(returns(41)), first);
  EXPECT_NE(compile(returns(42)), first);
  std::weak_ptr<Code> watch = first;
  first.reset();
  EXPECT_TRUE(watch.expired()) << "nothing but the caller holds the code";
  EXPECT_EQ(run(*compile(returns(41))), 41);
}

TEST_P(CompilerTest, TwoCallersWithOneTextShareIt) {
  std::shared_ptr<Code> one, two;
  std::thread other([&] { one = compile(returns(77)); });
  two = compile(returns(77));
  other.join();
  EXPECT_EQ(one, two);
}

TEST_P(CompilerTest, NoTextsNoCode) { EXPECT_TRUE(compiler_->compile({}, 4).empty()); }

INSTANTIATE_TEST_SUITE_P(
    All, CompilerTest,
    testing::Values(Case{"clang_in_process",
                         [](std::string& why) { return load_clang(OXY_CLANG_LIBRARY, why); }},
                    Case{"external", [](std::string& why) { return find_external("", why); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxy::jit
