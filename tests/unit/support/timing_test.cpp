// Phases: nesting, threads, and the two outputs.
#include "support/timing.h"

#include <gtest/gtest.h>

#include <thread>

namespace oxy {
namespace {

TEST(Timing, PhasesNest) {
  Timeline t;
  {
    Phase outer(t, "outer");
    { Phase inner(t, "inner"); }
    Phase second(t, "second");
    second.note("12 nodes");
  }
  { Phase after(t, "after"); }
  std::vector<Span> s = t.spans();
  ASSERT_EQ(s.size(), 4u);
  EXPECT_EQ(s[0].name, "outer");
  EXPECT_EQ(s[0].parent, -1);
  EXPECT_EQ(s[1].parent, 0);
  EXPECT_EQ(s[2].parent, 0);
  EXPECT_EQ(s[2].detail, "12 nodes");
  EXPECT_EQ(s[3].parent, -1);
  EXPECT_LE(s[0].begin_ns, s[1].begin_ns);
  EXPECT_LE(s[1].begin_ns, s[1].end_ns);
  EXPECT_LE(s[1].end_ns, s[2].begin_ns);
  EXPECT_LE(s[2].end_ns, s[0].end_ns);
}

TEST(Timing, StopEndsAPhaseEarly) {
  Timeline t;
  Phase a(t, "a");
  a.stop();
  Phase b(t, "b");
  b.stop();
  EXPECT_EQ(t.spans()[1].parent, -1);
}

TEST(Timing, ANullTimelineCostsNothing) {
  Phase p(nullptr, "nothing");
  p.note("detail");
  p.stop();
}

TEST(Timing, ThreadsHaveTheirOwnNesting) {
  Timeline t;
  Phase outer(t, "outer");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&t] {
      for (int k = 0; k < 100; ++k) {
        Phase a(t, "a");
        Phase b(t, "b");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  outer.stop();
  std::vector<Span> all = t.spans();
  ASSERT_EQ(all.size(), 801u);
  for (const Span& s : all) {
    ASSERT_GE(s.end_ns, s.begin_ns);
    if (s.name != "b") {
      EXPECT_EQ(s.parent, -1);
      continue;
    }
    const Span& parent = all[static_cast<size_t>(s.parent)];
    EXPECT_EQ(parent.name, "a");
    EXPECT_EQ(parent.thread, s.thread);
    EXPECT_NE(s.thread, 0);
  }
}

TEST(Timing, ChromeTrace) {
  Timeline t;
  {
    Phase p(t, "say \"hi\"\n");
    p.note("a\\b");
  }
  Phase open(t, "open");
  std::string json = t.chrome_trace();
  EXPECT_EQ(json.rfind("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", 0), 0u) << json;
  EXPECT_NE(json.find(R"({"name": "say \"hi\"\u000a", "cat": "compile", "ph": "X", "pid": 1, )"
                      R"("tid": 0, "ts": )"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("args": {"detail": "a\\b"}})"), std::string::npos) << json;
  EXPECT_EQ(json.find("open"), std::string::npos) << "a span without an end";
}

TEST(Timing, SummaryJoinsRepeatedNames) {
  Timeline t;
  for (int i = 0; i < 3; ++i) {
    Phase a(t, "passes");
    Phase b(t, "fold");
  }
  std::string text = t.summary();
  EXPECT_EQ(text.rfind("passes", 0), 0u) << text;
  EXPECT_NE(text.find("\n  fold "), std::string::npos) << text;
  EXPECT_NE(text.find(" ms  x3\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

}  // namespace
}  // namespace oxy
