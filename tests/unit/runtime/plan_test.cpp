// Plans as text and as bytes: both read back, and neither a changed text nor a changed file does
// harm.
#include <gtest/gtest.h>

#include <random>

#include "plan_samples.h"
#include "runtime/plan_file.h"
#include "support/check.h"

namespace oxy::runtime {
namespace {

CodeTable table_of(const std::vector<std::string>& texts) {
  CodeTable t;
  for (const std::string& text : texts)
    t.add(content_hash(text), {nullptr, nullptr, std::make_shared<const std::string>(text)});
  return t;
}

class PlanText : public ::testing::TestWithParam<std::string> {};

TEST_P(PlanText, ReadsBack) { EXPECT_EQ(print(parse_plan(GetParam())), GetParam()); }

TEST_P(PlanText, MutatedTextIsAPlanOrAnError) {
  std::mt19937 random(3);
  auto pick = [&](size_t n) { return random() % n; };
  constexpr std::string_view kCharacters = "0123456789[](){}%@=,:-\"nabfs_ \n";
  int plans = 0;
  for (int i = 0; i < 4000; i++) {
    std::string text = GetParam();
    for (size_t k = pick(3) + 1; k > 0; k--) {
      const size_t at = pick(text.size());
      if (pick(3) == 0)
        text.erase(at, pick(8));
      else if (pick(2) == 0)
        text[at] = kCharacters[pick(kCharacters.size())];
      else
        text.insert(at, text.substr(pick(text.size()), pick(30)));
    }
    try {
      const std::string printed = print(parse_plan(text));
      EXPECT_EQ(print(parse_plan(printed)), printed);
      plans++;
    } catch (const UserError&) {}
  }
  EXPECT_GT(plans, 0);
}

INSTANTIATE_TEST_SUITE_P(Samples, PlanText,
                         ::testing::Values(dynamic_plan(), extern_plan(), static_plan()));

TEST(PlanTextErrors, SayWhere) {
  auto message = [](const std::string& text) -> std::string {
    try {
      parse_plan(text);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message("plan arena=0 {\n  launch k()\n}"), "2:11: no such kernel: k");
  EXPECT_EQ(message("plan arena=%0 { }"), "1:18: no such size: %0");
  EXPECT_EQ(message("plan arena=0 { } x"), "1:18: text behind the plan");
  const std::string deep(100, '[');
  EXPECT_NE(message("plan arena=0 { extern a.b.c(" + deep).find("too deeply"), std::string::npos);
  EXPECT_NE(message("plan arena=0 { input f32[2] strides=[] }").find("a tensor's strides"),
            std::string::npos);
}

TEST(PlanTextErrors, NumbersThatLeaveMemory) {
  const std::string plan = static_plan();
  for (const auto& [good, bad] : std::vector<std::pair<std::string, std::string>>{
           {"arena=128", "arena=-128"},
           {"arena=128", "arena=120"},
           {"at 64", "at -64"},
           {"at 64", "at 9223372036854775807"},
           {"bytes=60", "bytes=40"},
           {"bytes=60", "bytes=-60"},
           {"f32[8] strides=[2]", "f32[9] strides=[2]"},
           {"f32[8] strides=[2]", "f32[-8] strides=[2]"},
           {"f32[8] strides=[2]", "f32[8] strides=[-2]"},
           {"f32[8] strides=[2]", "f32[4611686018427387904] strides=[4]"},
           {"f64[4] strides=[1]", "f64[4] strides=[1] offset=1"},
           {"input 0 f32[2, 4] strides=[4, 1] offset=3",
            "input 0 f32[2, 4] strides=[4, 1] offset=2"},
           {"range=8", "range=-8"},
           {"grain=2", "grain=0"},
           {"scratch=128", "scratch=-128"},
           {"scratch=128", "scratch=9223372036854775807"},
           {"k_stride=3", "k_stride=-3"},
           {"offset=0 width", "offset=-1 width"},
           {"launch square_0(in0, buf0)", "free buf0"}}) {
    std::string changed = plan;
    changed.replace(changed.find(good), good.size(), bad);
    EXPECT_THROW(parse_plan(changed), UserError) << bad;
  }
}

class PlanBytes : public ::testing::Test {
 protected:
  PlanBytes() : file_(save(parse_plan(dynamic_plan()), table_of({kRowAdd, kSquare}), "m")) {}

  std::string file_;
};

TEST_F(PlanBytes, ReadBack) {
  const PlanFile loaded = load(file_);
  EXPECT_EQ(print(loaded.plan), dynamic_plan());
  EXPECT_EQ(loaded.texts, (std::vector<std::string>{kRowAdd, kSquare}));
  EXPECT_EQ(loaded.machine, "m");
  EXPECT_EQ(save(loaded.plan, table_of(loaded.texts), "m"), file_);
}

TEST_F(PlanBytes, EveryKindOfStepReadsBack) {
  Plan p = parse_plan(extern_plan());
  for (PlanKernel& k : p.kernels) k.code = content_hash(k.name);
  const PlanFile loaded = load(save(p, table_of({"gemm_0", "tail_1"}), ""));
  EXPECT_EQ(print(loaded.plan), print(p));
}

TEST_F(PlanBytes, MutatedFilesAreErrors) {
  std::mt19937 random(5);
  for (int i = 0; i < 10000; i++) {
    std::string file = file_;
    const size_t at = random() % file.size();
    switch (random() % 3) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
        break;
      case 1:
        file.resize(at);
        break;
      default:
        file.insert(at, 1, static_cast<char>(random()));
    }
    EXPECT_THROW(load(file), UserError);
  }
}

// The same where the hash belongs to the changed body: an error, or a plan that prints.
TEST_F(PlanBytes, MutatedBodiesAreErrorsOrPlans) {
  Plan p = parse_plan(extern_plan());
  for (PlanKernel& k : p.kernels) k.code = content_hash(k.name);
  const std::string body = save_body(p, table_of({"gemm_0", "tail_1"}), "m");
  std::mt19937 random(7);
  int plans = 0;
  for (int i = 0; i < 10000; i++) {
    std::string changed = body;
    for (size_t k = random() % 3 + 1; k > 0; k--)
      changed[random() % changed.size()] = static_cast<char>(random());
    try {
      print(load_body(changed).plan);
      plans++;
    } catch (const UserError&) {}
  }
  EXPECT_GT(plans, 0);
}

TEST_F(PlanBytes, AKernelWithoutItsTextIsAnError) {
  const Plan p = parse_plan(dynamic_plan());
  EXPECT_THROW(save(p, table_of({kRowAdd}), ""), InternalError);
}

}  // namespace
}  // namespace oxy::runtime
