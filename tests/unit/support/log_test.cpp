// Log sets, and what is written.
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
  ~LogTest() override { log_configuration = LogSet(); }
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

TEST_F(LogTest, WhatIsOnIsWritten) {
  testing::internal::CaptureStderr();
  log(Artifact::fusion, "h", "off");
  log_configuration = LogSet::parse("fusion");
  EXPECT_TRUE(log_enabled(Artifact::fusion));
  EXPECT_FALSE(log_enabled(Artifact::perf));
  log(Artifact::fusion, "h", "on");
  log(Artifact::perf, "h", "off");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[oxyfuel fusion] h\non\n");
}

TEST_F(LogTest, LinesEnd) {
  log_configuration = LogSet::parse("schedule");
  testing::internal::CaptureStderr();
  log(Artifact::schedule, "graph 0", "one\ntwo");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[oxyfuel schedule] graph 0\none\ntwo\n");
}

TEST_F(LogTest, ThreadsDoNotMixTheirLines) {
  log_configuration = LogSet::parse("all");
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log(Artifact::perf, "h", "t");
    });
  }
  for (std::thread& t : threads) t.join();
  std::string expected;
  for (int i = 0; i < 2000; ++i) expected += "[oxyfuel perf] h\nt\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), expected);
}

}  // namespace
}  // namespace oxy
