// Writes the files of a trace folder, runs graphviz, and hands texts to the logs.
#include "pipeline/trace.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "support/text.h"

extern char** environ;

namespace oxy::pipeline {
namespace {

std::string make_folder(const std::string& parent, const std::string& name) {
  static std::atomic<int> count{0};
  std::error_code error;
  auto folder = std::filesystem::path(parent) / cat("run_", ::getpid(), "_", count++, "_", name);
  std::filesystem::create_directories(folder / "kernels", error);
  if (!error) std::filesystem::create_directories(folder / "passes", error);
  return error ? "" : folder.string();
}

// Runs graphviz, quietly; says whether it did.
bool run_dot(const std::string& from, const std::string& to) {
  const char* arguments[] = {"dot", "-Tsvg", from.c_str(), "-o", to.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  bool started =
      posix_spawnp(&child, "dot", &actions, nullptr, const_cast<char**>(arguments), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return started && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

Trace::Trace(const Settings& settings, std::string name) : name_(std::move(name)) {
  if (!settings.trace.empty()) folder_ = make_folder(settings.trace, name_);
}

void Trace::emit(std::optional<Artifact> artifact, const std::string& file,
                 const std::string& text) {
  if (artifact) log(*artifact, name_, text);
  if (!file.empty()) write(file, text);
}

std::string Trace::pass_file(std::string_view pass) const {
  return cat("passes/", passes_ < 10 ? "0" : "", passes_, '_', pass, ".txt");
}

void Trace::write(const std::string& file, std::string_view text) {
  if (folder_.empty()) return;
  std::ofstream(std::filesystem::path(folder_) / file) << text;
}

void Trace::draw(const std::string& dot) {
  if (folder_.empty()) return;
  write("graph_diagram.dot", dot);
  run_dot(folder_ + "/graph_diagram.dot", folder_ + "/graph_diagram.svg");
}

void Trace::finish() {
  show(Artifact::perf, "compile_time.txt", [&] { return timeline_.summary(); });
  show(std::nullopt, "compile_time.json", [&] { return timeline_.chrome_trace(); });
}

}  // namespace oxy::pipeline
