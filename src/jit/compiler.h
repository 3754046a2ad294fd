// Source to callable: one interface, two compilers (Clang in this process; the compiler found on
// the machine).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/host.h"

namespace oxy::jit {

using runtime::KernelFn;

// Compiled code; it stays loaded as long as somebody holds it.
class Code {
 public:
  virtual ~Code() = default;
  virtual KernelFn entry() const = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string name() const = 0;  // "clang 19.1.7 in process", "g++ 12.2"
  // Compiles each text (a function `kernel`), equal texts once per process while the code lives, on
  // up to `threads` threads, which are joined before it returns. Throws InternalError with the
  // compiler's message.
  virtual std::vector<std::shared_ptr<Code>> compile(const std::vector<std::string>& sources,
                                                     int threads) = 0;
};

// Loads the Clang library at `path`; nullptr (and `why`) where it cannot be used.
std::shared_ptr<Compiler> load_clang(const std::string& path, std::string& why);
// `cxx`: a command; empty: $CXX, then clang++-19, clang++, g++, c++ on PATH. nullptr (and `why`)
// without one.
std::shared_ptr<Compiler> find_external(const std::string& cxx, std::string& why);

}  // namespace oxy::jit
