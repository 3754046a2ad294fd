// oxy-emit --target=avx512|avx2|plain|--machine=TEXT [--body] [FILE]: the kernels of a text as C++.
//
// --body prints the kernel functions without the prelude that each text starts with.
// FILE (none: the standard input) has kernels as oxy-lower prints them; other lines are left out.
// Without --target: what the machine has.
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "codegen/cpp/emit.h"
#include "support/check.h"

namespace {

using oxy::Machine;

std::string read(const std::string& path) {
  const std::istreambuf_iterator<char> end;
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), end};
  std::ifstream file(path);
  if (!file) throw oxy::UserError("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), end};
}

Machine target_named(const std::string& name) {
  if (name == "avx512") return {};
  if (name == "avx2") return Machine().with_vectors(32);
  if (name == "plain") return Machine().with_vectors(0);
  throw oxy::UserError("--target is one of avx512, avx2, plain, not " + name);
}

// The texts from a line `kernel ..` to the line `}` that closes it.
std::vector<std::string> kernels_of(const std::string& text) {
  std::vector<std::string> kernels;
  std::istringstream lines(text);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kernel ")) {
      kernels.emplace_back();
      inside = true;
    }
    if (inside) kernels.back() += line + '\n';
    if (line == "}") inside = false;
  }
  return kernels;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Machine target = oxy::host_machine();
    std::string path = "-";
    bool body = false;
    for (int i = 1; i < argc; ++i) {
      const std::string a = argv[i];
      if (a.starts_with("--target="))
        target = target_named(a.substr(9));
      else if (a.starts_with("--machine="))
        target = oxy::parse_machine(a.substr(10));
      else if (a == "--body")
        body = true;
      else
        path = a;
    }
    for (const std::string& text : kernels_of(read(path))) {
      oxy::sym::ExprPool pool;
      const std::string source = oxy::codegen::cpp::emit(oxy::schedule::parse(text, pool), target);
      std::cout << (body ? source.substr(source.find("extern \"C\" int kernel")) : source);
    }
    return 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
