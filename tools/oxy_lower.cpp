// oxy-lower --to=loops|fused|schedule FILE: an ATen graph as text through the lowering, to the stage named.
//   loops     the program before scheduling (the ir_pre_fusion log)
//   fused     the program after inlining
//   schedule  kernels, memory plan and the reasons why loops were not fused
// FILE may be `-`. --no-kernels makes every op an extern step, --no-fusion a kernel of every loop.
#include <fstream>
#include <iostream>
#include <iterator>

#include "ir/text.h"
#include "loops/build.h"
#include "schedule/inline_loops.h"
#include "schedule/schedule.h"
#include "support/check.h"

namespace {

std::string read(const std::string& path) {
  std::istreambuf_iterator<char> end;
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), end};
  std::ifstream file(path);
  if (!file) throw oxy::UserError("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), end};
}

std::string lower(const std::string& text, const std::string& stage, const oxy::loops::BuildOptions& build,
                  const oxy::schedule::ScheduleOptions& options) {
  oxy::ir::Graph graph = oxy::ir::parse(text);
  oxy::loops::Program program = oxy::loops::build_program(graph, build);
  oxy::loops::verify(program);
  if (stage == "loops") return oxy::loops::print(program);
  if (stage == "fused") {
    oxy::schedule::inline_loops(program);
    oxy::loops::verify(program);
    return oxy::loops::print(program);
  }
  if (stage != "schedule") throw oxy::UserError("--to is one of loops, fused, schedule");
  oxy::schedule::Schedule s = oxy::schedule::make_schedule(std::move(program), options);
  for (const oxy::schedule::Kernel& k : s.kernels) oxy::schedule::verify(k);
  return oxy::schedule::print(s);
}

}  // namespace

int main(int argc, char** argv) {
  std::string stage = "schedule", path;
  oxy::loops::BuildOptions build;
  oxy::schedule::ScheduleOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a.rfind("--to=", 0) == 0) stage = a.substr(5);
    else if (a == "--no-kernels") build.kernels = false;
    else if (a == "--no-fusion") options.fusion = false;
    else path = a;
  }
  if (path.empty()) {
    std::cerr << "usage: oxy-lower --to=loops|fused|schedule [--no-kernels] [--no-fusion] FILE\n";
    return 2;
  }
  try {
    std::cout << lower(read(path), stage, build, options);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "oxy-lower: " << e.what() << "\n";
    return 1;
  }
}
