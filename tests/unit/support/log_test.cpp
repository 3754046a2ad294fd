// Log sets and the sink.
#include "support/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/check.h"

namespace oxy {
namespace {

// Leaves the process's configuration as it was made.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    Logs::instance().configure({});
    Logs::instance().set_sink({});
  }
};

TEST_F(LogTest, ParsesSets) {
  LogSet s = LogSet::parse("fusion, +aot_graphs,-perf");
  EXPECT_TRUE(s.contains(Artifact::fusion));
  EXPECT_TRUE(s.contains(Artifact::aot_graphs));
  EXPECT_FALSE(s.contains(Artifact::perf));
  EXPECT_FALSE(s.contains(Artifact::schedule));
  EXPECT_EQ(LogSet::parse(""), LogSet());
  EXPECT_EQ(LogSet::parse(",fusion,-fusion"), LogSet());
}

TEST_F(LogTest, AllAndThenLess) {
  LogSet s = LogSet::parse("all,-kernel_code");
  for (size_t i = 0; i < artifact_table().size(); ++i) {
    auto a = static_cast<Artifact>(i);
    EXPECT_EQ(s.contains(a), a != Artifact::kernel_code) << name_of(a);
  }
}

TEST_F(LogTest, EveryArtefactHasItsName) {
  EXPECT_EQ(name_of(Artifact::graph_code), "graph_code");
  EXPECT_EQ(name_of(Artifact::perf), "perf");
  for (size_t i = 0; i < artifact_table().size(); ++i) {
    EXPECT_TRUE(LogSet::parse(artifact_table()[i].name).contains(static_cast<Artifact>(i)));
    EXPECT_FALSE(artifact_table()[i].help.empty());
  }
}

TEST_F(LogTest, UnknownNamesListTheKnownOnes) {
  try {
    LogSet::parse("fusion,graphs");
    FAIL() << "no error";
  } catch (const UserError& e) {
    std::string what = e.what();
    EXPECT_NE(what.find("unknown log artefact \"graphs\""), std::string::npos) << what;
    for (const ArtifactInfo& a : artifact_table()) {
      EXPECT_NE(what.find(a.name), std::string::npos) << a.name;
    }
  }
}

TEST_F(LogTest, TheSinkGetsWhatIsOn) {
  std::vector<std::string> got;
  Logs& logs = Logs::instance();
  logs.set_sink([&](Artifact a, std::string_view header, std::string_view text) {
    got.push_back(cat(name_of(a), '|', header, '|', text));
  });
  log(Artifact::fusion, "h", "off");
  logs.configure(LogSet::parse("fusion"));
  EXPECT_TRUE(log_enabled(Artifact::fusion));
  EXPECT_FALSE(log_enabled(Artifact::perf));
  log(Artifact::fusion, "h", "on");
  log(Artifact::perf, "h", "off");
  EXPECT_EQ(got, std::vector<std::string>{"fusion|h|on"});
}

TEST_F(LogTest, ASinkMayChangeTheConfiguration) {
  int calls = 0;
  Logs& logs = Logs::instance();
  logs.configure(LogSet::parse("fusion"));
  logs.set_sink([&](Artifact, std::string_view, std::string_view) {
    ++calls;
    logs.set_sink({});
    logs.configure({});
  });
  log(Artifact::fusion, "", "");
  log(Artifact::fusion, "", "");
  EXPECT_EQ(calls, 1);
}

TEST_F(LogTest, StderrIsTheDefault) {
  Logs::instance().configure(LogSet::parse("schedule"));
  testing::internal::CaptureStderr();
  log(Artifact::schedule, "graph 0", "one\ntwo");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[oxyfuel schedule] graph 0\none\ntwo\n");
}

TEST_F(LogTest, ThreadsMayLogWhileTheSinkChanges) {
  std::atomic<int> calls{0};
  Logs& logs = Logs::instance();
  logs.configure(LogSet::parse("all"));
  auto sink = [&](Artifact, std::string_view, std::string_view) { ++calls; };
  logs.set_sink(sink);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log(Artifact::perf, "h", "t");
    });
  }
  for (int i = 0; i < 100; ++i) logs.set_sink(sink);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(calls, 2000);
}

}  // namespace
}  // namespace oxy
