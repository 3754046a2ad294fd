// Writes the files of a trace folder, draws schedules, and hands texts to the logs.
#include "pipeline/trace.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "schedule/schedule.h"

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

// A picture with more lines than this takes graphviz minutes, and nobody can read it.
constexpr ptrdiff_t kMostDrawn = 300;

// Runs graphviz, quietly.
void run_dot(const std::string& from, const std::string& to) {
  const char* arguments[] = {"dot", "-Tsvg", from.c_str(), "-o", to.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  if (posix_spawnp(&child, "dot", &actions, nullptr, const_cast<char**>(arguments), environ) == 0)
    waitpid(child, nullptr, 0);
  posix_spawn_file_actions_destroy(&actions);
}

// A picture of a schedule in graphviz's language: steps as nodes, buffers as edges between them.
class Diagram {
 public:
  Diagram(const ir::Graph& graph, const schedule::Schedule& s)
      : graph_(graph), schedule_(s), writer_(s.program.buffers.size()) {}

  std::string run() {
    out_ =
        "digraph schedule {\n  rankdir=TB;\n  node [fontname=monospace, fontsize=10];\n  edge "
        "[fontname=monospace, fontsize=8];\n";
    for (size_t i = 0; i < writer_.size(); i++) add_source(loops::BufferId(i));
    for (const schedule::ScheduledStep& step : schedule_.steps) {
      if (auto* k = std::get_if<schedule::KernelCall>(&step))
        add_kernel(schedule_.kernels[k->kernel]);
      else if (auto* call = call_of(step))
        add_call(*call);
      if (auto* c = std::get_if<schedule::ContractionCall>(&step); c && c->epilogue)
        add_kernel(schedule_.kernels[*c->epilogue]);
    }
    for (const ir::OutputSpec& o : graph_.outputs) {
      if (o.kind != ir::OutputSpec::Kind::Value) continue;
      if (const auto* b = loops::result_of(schedule_.program, o.value)) edge(*b, "result");
    }
    return out_ + "  result [shape=ellipse];\n}\n";
  }

 private:
  const loops::Buffer& buffer(loops::BufferId b) const { return schedule_.program.buffers[b]; }
  loops::BufferId memory(loops::BufferId b) const { return loops::memory_of(schedule_.program, b); }

  void add_source(loops::BufferId b) {
    auto kind = buffer(b).kind;
    if (kind != loops::Buffer::Kind::Input && kind != loops::Buffer::Kind::Attribute) return;
    writer_[b.index] = buffer(b).name;
    cat_to(out_, "  ", buffer(b).name, " [shape=ellipse];\n");
  }

  void edge(loops::BufferId b, const std::string& to) {
    loops::BufferId m = memory(b);
    if (writer_[m.index].empty()) return;
    cat_to(out_, "  ", writer_[m.index], " -> ", to, " [label=\"", buffer(b).name, " ",
           ir::print(buffer(b).type), "\"];\n");
  }

  std::string add_node(const std::string& label, const char* style) {
    std::string id = cat("step", count_++);
    cat_to(out_, "  ", id, " [shape=box, label=\"", label, "\"", style, "];\n");
    return id;
  }

  void add_kernel(const schedule::Kernel& k) {
    using Kind = schedule::KernelBuffer::Kind;
    std::string id = add_node(k.name, ", style=filled, fillcolor=lightblue");
    for (const schedule::KernelBuffer& b : k.buffers)
      if (b.kind == Kind::Read || b.kind == Kind::ReadWrite) edge(b.buffer, id);
    for (const schedule::KernelBuffer& b : k.buffers)
      if (b.kind == Kind::Write || b.kind == Kind::ReadWrite) writer_[memory(b.buffer).index] = id;
  }

  void add_call(const loops::Call& e) {
    std::string id = add_node(graph_.node(e.node).target, "");
    for (loops::BufferId b : e.reads) edge(b, id);
    for (loops::BufferId b : e.writes)
      if (b.valid()) writer_[memory(b).index] = id;
  }

  const ir::Graph& graph_;
  const schedule::Schedule& schedule_;
  std::vector<std::string> writer_;
  std::string out_;
  int count_ = 0;
};

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

void Trace::draw(const ir::Graph& graph, const schedule::Schedule& schedule) {
  if (folder_.empty()) return;
  const std::string text = Diagram(graph, schedule).run();
  write("graph_diagram.dot", text);
  if (std::ranges::count(text, '\n') > kMostDrawn) return;
  run_dot(folder_ + "/graph_diagram.dot", folder_ + "/graph_diagram.svg");
}

void Trace::finish() {
  show(Artifact::perf, "compile_time.txt", [&] { return timeline_.summary(); });
  show(std::nullopt, "compile_time.json", [&] { return timeline_.chrome_trace(); });
}

}  // namespace oxy::pipeline
