// oxy-opt: runs passes on the text of an ATen graph, or prints a graph of either stage anew.
//
//   oxy-opt [--pass=dce,cse | --standard] [--verify] [--changed] [--machine=TEXT] [FILE]
//                     the text from standard input without FILE; machines: support/machine.h
//   oxy-opt --list    the passes, and the standard order
#include <fstream>
#include <iostream>
#include <iterator>

#include "ir/text.h"
#include "passes/pass_list.h"
#include "support/check.h"
#include "support/machine.h"

namespace {

using oxy::UserError;
using oxy::passes::Pass;

struct Options {
  std::vector<Pass> passes;
  std::string file, machine;
  bool list = false, verify = false, changed = false;
};

std::vector<Pass> passes_named(std::string_view names) {
  std::vector<Pass> out;
  while (!names.empty()) {
    size_t comma = std::min(names.find(','), names.size());
    out.push_back(oxy::passes::find_pass(names.substr(0, comma)));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return out;
}

Options parse_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string_view a = argv[i];
    if (a.starts_with("--pass=")) {
      std::vector<Pass> more = passes_named(a.substr(7));
      o.passes.insert(o.passes.end(), more.begin(), more.end());
    } else if (a == "--standard") {
      std::span<const Pass> standard = oxy::passes::standard_passes();
      o.passes.insert(o.passes.end(), standard.begin(), standard.end());
    } else if (a.starts_with("--machine=")) {
      o.machine = a.substr(10);
    } else if (a == "--list") {
      o.list = true;
    } else if (a == "--verify") {
      o.verify = true;
    } else if (a == "--changed") {
      o.changed = true;
    } else if (a.starts_with("-") && a != "-") {
      throw UserError(oxy::cat("unknown option ", a,
                               "; known are: --pass=NAMES --standard --list --verify --changed "
                               "--machine=TEXT"));
    } else if (!o.file.empty()) {
      throw UserError("more than one file");
    } else {
      o.file = a;
    }
  }
  return o;
}

void list_passes() {
  std::cout << "passes:\n";
  for (const Pass& p : oxy::passes::all_passes()) {
    std::cout << "  " << p.name << std::string(20 - p.name.size(), ' ') << p.comment << '\n';
  }
  std::cout << "standard order:\n";
  for (const Pass& p : oxy::passes::standard_passes()) {
    std::cout << "  " << p.name << std::string(20 - p.name.size(), ' ') << p.comment << '\n';
  }
}

std::string read(const std::string& file) {
  using Chars = std::istreambuf_iterator<char>;
  if (file.empty() || file == "-") return std::string(Chars(std::cin), Chars());
  std::ifstream in(file);
  if (!in) throw UserError(oxy::cat("cannot read ", file));
  return std::string(Chars(in), Chars());
}

void optimize(const Options& o) {
  oxy::ir::Graph g = oxy::ir::parse(read(o.file));
  if (o.verify) oxy::ir::verify(g);
  oxy::passes::RunOptions run;
  run.verify = o.verify;
  if (!o.machine.empty()) run.machine = oxy::parse_machine(o.machine);
  run.after = [&](const Pass& p, const oxy::ir::Graph&, bool changed, double) {
    if (o.changed) std::cout << "# " << p.name << (changed ? "\n" : " (unchanged)\n");
  };
  if (!o.passes.empty()) oxy::passes::run_passes(g, o.passes, run);
  std::cout << oxy::ir::print(g);
}

}  // namespace

int main(int argc, char** argv) try {
  Options o = parse_options(argc, argv);
  o.list ? list_passes() : optimize(o);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "oxy-opt: " << e.what() << '\n';
  return 1;
}
