// oxy-ops: what the op table knows, and what its rules mean.
//
//   oxy-ops                 the table: name, schema, traits, rules, separated by tabs
//   oxy-ops --check < CASES runs cases by the rules
//
// A case is an ATen graph, then a line `data NUMBERS` for each input (or `shapes`: nothing is
// evaluated), then `end`. The answer: for each op `shape TARGET known|unknown|differs TYPES`, then
// `out NUMBERS` for each output or `no REASON`, then `end`.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "ir/text.h"
#include "ops/args.h"
#include "passes/pass_list.h"
#include "reference/evaluate.h"
#include "support/check.h"

namespace {

using namespace oxy;  // NOLINT: one file

std::string traits_of(const ops::OpInfo& op) {
  constexpr std::pair<uint32_t, std::string_view> kNames[] = {
      {ops::Random, "random"},
      {ops::Effect, "effect"},
      {ops::View, "view"},
      {ops::Pointwise, "pointwise"},
      {ops::Reduction, "reduction"},
      {ops::Cheap, "cheap"},
      {ops::MetadataOnly, "metadata_only"},
      {ops::Creation, "creation"},
      {ops::Commutative, "commutative"},
      {ops::Scan, "scan"},
      {ops::DataDependent, "data_dependent"},
      {ops::RuntimeNumber, "runtime_number"}};
  std::string s;
  for (auto [trait, text] : kNames) {
    if (op.has(trait)) s += (s.empty() ? "" : ",") + std::string(text);
  }
  return s.empty() ? "pure" : s;
}

void print_table() {
  for (const ops::OpInfo& op : ops::all_ops()) {
    std::string rules;
    auto add = [&](bool there, std::string_view text) {
      if (there) rules += (rules.empty() ? "" : ",") + std::string(text);
    };
    add(op.shape, "shape");
    add(op.element && !op.reduction, "element");
    add(op.reduction, "reduction");
    add(op.decomposition, "decomposition");
    std::cout << op.name << '\t' << op.schema << '\t' << traits_of(op) << '\t'
              << (rules.empty() ? "none" : rules) << '\n';
  }
}

std::string types_text(const std::vector<ir::Type>& types) {
  return join(types, "; ", [](std::string& out, const ir::Type& t) { out += ir::print(t); });
}

// Whether a rule gives shapes; one that refuses the call does not.
bool knows(const ops::OpInfo& info, const ops::Args& args, std::vector<ir::Type>& found) {
  try {
    return info.shape && info.shape(args, found);
  } catch (const Unsupported&) {
    return false;
  }
}

// Whether the rules give the recorded shapes, or do not know.
bool print_shapes(const ir::Graph& g) {
  bool agree = true;
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    const ops::OpInfo* info = ops::find(n);
    if (!info) continue;
    std::vector<ir::Type> found, recorded;
    const bool known = knows(*info, ops::Args(g, n), found);
    for (ir::ValueId v : n.outputs) recorded.push_back(g.value(v).type);
    const bool same = types_text(found) == types_text(recorded);
    std::cout << "shape " << n.target << ' '
              << (!known ? "unknown"
                  : same ? "known"
                         : "differs")
              << ' ' << types_text(found) << '\n';
    agree = agree && (same || !known);
  }
  return agree;
}

ops::Number read_number(const std::string& word, ir::DType d) {
  ops::Number n;
  if (ir::is_floating(d)) {
    n.real = std::strtod(word.c_str(), nullptr);  // subnormal numbers too
  } else {
    n.integer = std::stoll(word);
  }
  return n;
}

void print_elements(const ops::Elements& elements, ir::DType d) {
  std::string line = "out";
  for (const ops::Number& n : elements) {
    line += ' ';
    if (ir::is_floating(d)) {
      append(line, n.real);
    } else {
      append(line, n.integer);
    }
  }
  std::cout << line << '\n';
}

void run_case(const std::string& text, const std::vector<std::string>& data, bool shapes_only) {
  ir::Graph g = ir::parse(text);
  if (!print_shapes(g) || shapes_only) return;
  std::vector<ops::Elements> inputs;
  for (size_t i = 0; i < g.inputs().size() && i < data.size(); ++i) {
    std::istringstream words(data[i]);
    std::string word;
    inputs.emplace_back();
    while (words >> word) {
      inputs.back().push_back(read_number(word, g.tensor_type(g.inputs()[i]).dtype));
    }
  }
  passes::decompose(g);
  const auto outputs = ops::evaluate(g, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    print_elements(outputs[i], g.tensor_type(g.outputs[i].value).dtype);
  }
}

void check_cases() {
  std::string text, line;
  std::vector<std::string> data;
  bool shapes_only = false;
  while (std::getline(std::cin, line)) {
    if (line.starts_with("data")) {
      data.push_back(line.substr(4));
    } else if (line == "shapes") {
      shapes_only = true;
    } else if (line != "end") {
      text += line + '\n';
    } else {
      try {
        run_case(text, data, shapes_only);
      } catch (const std::exception& e) {
        std::string reason = e.what();
        std::replace(reason.begin(), reason.end(), '\n', ' ');
        std::cout << "no " << reason << '\n';
      }
      std::cout << "end\n";
      text.clear();
      data.clear();
      shapes_only = false;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  if (option == "--check") {
    check_cases();
  } else if (option.empty()) {
    print_table();
  } else {
    std::cerr << "oxy-ops: unknown option " << option << "; known is: --check\n";
    return 2;
  }
  return 0;
}
