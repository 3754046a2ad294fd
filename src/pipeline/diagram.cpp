// Writes steps as nodes, and buffers as edges between them.
#include "pipeline/diagram.h"

namespace oxy::pipeline {
namespace {

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
      auto it = schedule_.program.buffer_of.find(o.value);
      if (it != schedule_.program.buffer_of.end()) edge(it->second, "result");
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

std::string diagram(const ir::Graph& graph, const schedule::Schedule& schedule) {
  return Diagram(graph, schedule).run();
}

}  // namespace oxy::pipeline
