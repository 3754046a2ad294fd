// oxy-lower --to=loops|fused|schedule FILE: an ATen graph as text through the lowering, to the
// stage named.
//   loops     the program before scheduling (the ir_pre_fusion log)
//   fused     the program after inlining
//   schedule  kernels, memory plan and the reasons why loops were not fused
// No FILE, or `-`: standard input. --standard runs the graph passes first, --no-kernels makes every
// op an extern step, --no-fusion a kernel of every loop, --own-gemms has gemms and convolutions run
// in kernels of our own, --onednn has linear layers run in oneDNN. --machine=TEXT|FILE: what it is
// lowered for (support/machine.h). --disable=NAMES leaves passes of the schedule out, --dump prints
// what each of them has changed, --list their names in order and the reasons for it.
#include <fstream>
#include <iostream>
#include <iterator>

#include "ir/text.h"
#include "loops/build.h"
#include "passes/pass_list.h"
#include "schedule/cpu/pass_list.h"
#include "support/check.h"

namespace {

std::string read(const std::string& path) {
  std::istreambuf_iterator<char> end;
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), end};
  std::ifstream file(path);
  if (!file) throw oxy::UserError("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), end};
}

struct Options {
  std::string stage = "schedule", path = "-";
  bool standard = false;
  oxy::loops::BuildOptions build;
  oxy::schedule::ScheduleOptions schedule;
  bool dump = false;
  std::string disabled;  // ",a,b,"
};

// The passes that every CPU runs: not those that choose a library for gemms.
void run_passes(oxy::ir::Graph& graph, const oxy::Machine& machine) {
  oxy::passes::RunOptions run;
  run.machine = machine;
  run.wanted = [](const oxy::passes::Pass& pass) { return pass.name != "choose_layouts"; };
  oxy::passes::run_passes(graph, oxy::passes::standard_passes(), run);
  graph.compact();
}

std::string lower(const std::string& text, const Options& options) {
  const std::string& stage = options.stage;
  oxy::ir::Graph graph = oxy::ir::parse(text);
  if (options.standard) run_passes(graph, options.schedule.machine);
  oxy::loops::Program program = oxy::loops::build_program(graph, options.build);
  oxy::loops::verify(program);
  if (stage == "loops") return oxy::loops::print(program);
  if (stage == "fused") {
    oxy::schedule::inline_loops(program);
    oxy::loops::verify(program);
    return oxy::loops::print(program);
  }
  if (stage != "schedule") throw oxy::UserError("--to is one of loops, fused, schedule");
  oxy::schedule::RunOptions run;
  run.verify = true;
  run.disabled = [&](std::string_view pass) {
    return options.disabled.find(oxy::cat(',', pass, ',')) != std::string::npos;
  };
  std::string before, dump;
  run.after = [&](const oxy::schedule::Pass& pass, const oxy::schedule::Draft& d) {
    if (!options.dump) return;
    std::string now = oxy::schedule::print(d);
    oxy::cat_to(dump, "# ", pass.name, now == before ? " (unchanged)\n" : "\n");
    if (now != before) dump += now;
    before = std::move(now);
  };
  auto s = oxy::schedule::make_schedule(std::move(program), options.schedule, run);
  return options.dump ? dump : oxy::schedule::print(s);
}

void list_passes() {
  for (const oxy::schedule::Pass& p : oxy::schedule::cpu_passes())
    std::cout << p.name << std::string(22 - p.name.size(), ' ') << p.reason << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string machine;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a.rfind("--to=", 0) == 0)
      options.stage = a.substr(5);
    else if (a == "--standard")
      options.standard = true;
    else if (a == "--no-kernels")
      options.build.kernels = false;
    else if (a == "--no-fusion")
      options.disabled += ",inline_loops,fuse_nests,";
    else if (a == "--list")
      return list_passes(), 0;
    else if (a == "--dump")
      options.dump = true;
    else if (a.rfind("--disable=", 0) == 0)
      options.disabled += oxy::cat(',', a.substr(10), ',');
    else if (a == "--own-gemms")
      options.build.providers.own = true, options.schedule.epilogues = true;
    else if (a == "--onednn")
      options.build.providers.onednn = true;
    else if (a.rfind("--machine=", 0) == 0)
      machine = a.substr(10);
    else if (a.rfind("--", 0) != 0)
      options.path = a;
    else {
      std::cerr << "usage: oxy-lower --to=loops|fused|schedule [--standard] [--no-kernels] "
                   "[--no-fusion] [--own-gemms] [--onednn] [--machine=TEXT|FILE] "
                   "[--disable=NAMES] [--dump] [--list] [FILE]\n";
      return 2;
    }
  }
  try {
    const bool is_file = !machine.empty() && std::ifstream(machine).good();
    options.schedule.machine = oxy::parse_machine(is_file ? read(machine) : machine);
    std::cout << lower(read(options.path), options);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "oxy-lower: " << e.what() << "\n";
    return 1;
  }
}
