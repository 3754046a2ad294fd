// What a compilation shows of itself: every stage as text, to the logs and to the trace folder, and
// where time went.
//
// The folder (setting `trace`) gets one folder a compilation with torch.compile's file names
// (TORCH_COMPILE_DEBUG): fx_graph_readable.py, fx_graph_runnable.py, fx_graph_transformed.py,
// ir_pre_fusion.txt, ir_post_fusion.txt, output_code.txt, graph_diagram.svg (where graphviz is
// installed, else .dot), and our own: torch_graph.txt, aten_graph.txt, passes/*.txt, fusion.txt,
// schedule.txt, kernels/*.cpp, compile_time.json (Chrome's trace format).
#pragma once

#include <optional>

#include "support/log.h"
#include "support/settings.h"
#include "support/timing.h"

namespace oxy::ir {
class Graph;
}
namespace oxy::schedule {
struct Schedule;
}

namespace oxy::pipeline {

class Trace {
 public:
  // `name`: of the graph, for the folder and the headers. A folder that cannot be made is left out.
  Trace(const Settings& settings, std::string name);

  Timeline& timeline() { return timeline_; }
  const std::string& folder() const { return folder_; }  // empty: none is written

  // A stage. `text` is called only if somebody wants it: the artefact is on, or there is a folder
  // and `file` is not empty.
  template <class F>
  void show(std::optional<Artifact> artifact, const char* file, F&& text) {
    bool logged = artifact && log_enabled(*artifact);
    bool written = !folder_.empty() && *file;
    if (logged || written) emit(logged ? artifact : std::nullopt, written ? file : "", text());
  }
  // What a pass has changed: passes/01_name.txt, numbered through the compilation.
  template <class F>
  void after_pass(std::string_view pass, bool changed, F&& text) {
    ++passes_;
    if (changed && !folder_.empty()) write(pass_file(pass), text());
  }
  void write(const std::string& file, std::string_view text);  // in the folder, where there is one
  void draw(const ir::Graph& graph, const schedule::Schedule& schedule);  // graph_diagram
  void finish();  // times, when all stages are done

 private:
  void emit(std::optional<Artifact> artifact, const std::string& file, const std::string& text);

  std::string pass_file(std::string_view pass) const;

  std::string name_, folder_;
  int passes_ = 0;
  Timeline timeline_;
};

}  // namespace oxy::pipeline
