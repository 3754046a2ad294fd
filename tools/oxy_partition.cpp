// oxy-partition: cuts the text of a joint graph into forward and backward, and prints both and what
// is saved.
//
//   oxy-partition [--policy=mincut|default] [--budget=0.5] [--allow-writes] [--without=0,2]
//                 [--buckets=4096,65536] [FILE]
//
// The text comes from standard input without FILE. --without: the backward too for calls in which
// these tangents are undefined. --buckets: the backward too in pieces that fill buckets of so many
// bytes.
#include <fstream>
#include <iostream>
#include <iterator>

#include "autograd/cut_backward.h"
#include "autograd/partition.h"
#include "ir/text.h"
#include "support/check.h"

namespace {

using oxy::UserError;
using oxy::autograd::Policy;

struct Options {
  oxy::autograd::PartitionOptions partition;
  std::vector<size_t> without, buckets;
  std::string file;
};

template <class T>
T number(std::string_view text) {
  std::istringstream in{std::string(text)};
  T value{};
  if (!(in >> value) || in.peek() != EOF) throw UserError(oxy::cat("no number: ", text));
  return value;
}

std::vector<size_t> numbers(std::string_view text) {
  std::vector<size_t> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    out.push_back(number<size_t>(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

Policy policy_named(std::string_view name) {
  if (name == "mincut") return Policy::MinCut;
  if (name == "default") return Policy::Default;
  throw UserError(oxy::cat("no policy ", name, "; there are mincut and default"));
}

Options parse_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a.starts_with("--policy="))
      o.partition.policy = policy_named(a.substr(9));
    else if (a.starts_with("--budget="))
      o.partition.memory_budget = number<double>(a.substr(9));
    else if (a == "--allow-writes")
      o.partition.allows_writes = true;
    else if (a.starts_with("--without="))
      o.without = numbers(a.substr(10));
    else if (a.starts_with("--buckets="))
      o.buckets = numbers(a.substr(10));
    else if (a.starts_with("-") && a != "-")
      throw UserError(oxy::cat("unknown option ", a,
                               "; known are: --policy= --budget= --allow-writes --without= "
                               "--buckets="));
    else
      o.file = a;
  }
  return o;
}

std::string read(const std::string& file) {
  using Chars = std::istreambuf_iterator<char>;
  if (file.empty() || file == "-") return std::string(Chars(std::cin), Chars());
  std::ifstream in(file);
  if (!in) throw UserError(oxy::cat("cannot read ", file));
  return std::string(Chars(in), Chars());
}

void show(const oxy::ir::Graph& g) {
  oxy::ir::verify(g);
  std::cout << oxy::ir::print(g);
}

void cut(const Options& o) {
  const oxy::ir::Graph joint = oxy::ir::parse(read(o.file));
  oxy::ir::verify(joint);
  if (joint.stage != oxy::ir::Stage::Joint) throw UserError("not a joint graph");
  const oxy::autograd::Partition p = oxy::autograd::partition(joint, o.partition);
  show(p.forward);
  show(p.backward);
  std::cout << oxy::autograd::print(p.saved);
  if (o.buckets.size() == 2) {
    const auto bytes = [&](size_t i) { return static_cast<int64_t>(o.buckets[i]); };
    const oxy::autograd::BackwardCut made(p.backward, joint.tangents,
                                          oxy::autograd::GradientBuckets{bytes(0), bytes(1)});
    for (size_t k = 0; k < made.size(); ++k) show(made.make(k, k).graph);
  }
  if (o.without.empty()) return;
  std::vector<bool> defined(joint.tangents, true);
  for (size_t i : o.without) {
    if (i >= defined.size()) throw UserError(oxy::cat("no tangent ", i));
    defined[i] = false;
  }
  show(oxy::autograd::without_tangents(p.backward, joint.tangents, defined,
                                       p.backward.outputs.size()));
}

}  // namespace

int main(int argc, char** argv) try {
  cut(parse_options(argc, argv));
  return 0;
} catch (const std::exception& e) {
  std::cerr << "oxy-partition: " << e.what() << '\n';
  return 1;
}
