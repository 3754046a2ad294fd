// Source to callable: one interface, two compilers (Clang in this process; the compiler found on
// the machine).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host.h"
#include "support/fork_mutex.h"

namespace oxy::jit {

using runtime::KernelFn;

// Compiled code; it stays loaded as long as somebody holds it.
class Code {
 public:
  explicit Code(KernelFn entry, std::function<void()> unload = nullptr)
      : entry_(entry), unload_(std::move(unload)) {}
  ~Code() {
    if (unload_) unload_();
  }
  Code(const Code&) = delete;

  KernelFn entry() const { return entry_; }

 private:
  const KernelFn entry_;
  const std::function<void()> unload_;
};

// Equal texts are compiled once per process while their code lives.
class Compiler {
 public:
  virtual ~Compiler() = default;
  const std::string& name() const { return name_; }  // "clang 19.1.7 in process", "g++ 12.2"
  // Compiles each text (a function `kernel`) on up to `threads` threads, which are joined before it
  // returns. Throws InternalError with the compiler's message.
  std::vector<std::shared_ptr<Code>> compile(const std::vector<std::string>& sources, int threads);

 protected:
  explicit Compiler(std::string name) : name_(std::move(name)) {}
  // Compiles one text; called from several threads at once.
  virtual std::shared_ptr<Code> build(const std::string& source) = 0;
  // Compiles several, at most `batch`, as one: what a compiler does whatever it is given is done
  // once. Called from several threads at once.
  virtual std::vector<std::shared_ptr<Code>> build_together(
      std::span<const std::string* const> sources);
  virtual size_t batch() const { return 1; }
  // Called after the last of a batch.
  virtual void finished() {}

 private:
  // One text. Whoever holds the mutex is compiling it; others with the same text wait and find the
  // code. Several are locked in the order of their addresses.
  struct Slot {
    std::mutex compiling;
    std::weak_ptr<Code> code;
  };

  std::shared_ptr<Code> find(Slot& slot, const std::string& source);
  void compile_missing(std::span<const std::string* const> sources, std::span<Slot* const> slots,
                       std::span<std::shared_ptr<Code>* const> result);

  const std::string name_;
  ForkMutex mutex_;  // guards what follows
  int forks_ = 0;    // those that the slots are from
  std::map<std::string, std::shared_ptr<Slot>> slots_;
};

// Loads the Clang library at `path`; nullptr (and `why`) where it cannot be used.
std::shared_ptr<Compiler> load_clang(const std::string& path, std::string& why);
// `cxx`: a command; empty: $CXX, then clang++-19, clang++, g++, c++ on PATH. nullptr (and `why`)
// without one.
std::shared_ptr<Compiler> find_external(const std::string& cxx, std::string& why);

// Code that was compiled with the library: texts that are the same for every model.
struct Prebuilt {
  uint64_t hash;     // text_hash of the text
  size_t size;       // its length
  int vector_bytes;  // 64: compiled for x86-64-v4, 32: for x86-64-v3
  KernelFn entry;
};

uint64_t text_hash(std::string_view text);

// From now on every compiler takes these where they fit this machine. Once, before the first
// compilation.
void use_prebuilt(std::span<const Prebuilt> table);

// Gemms of all shapes (tools/oxy_gemms.cpp).
std::span<const Prebuilt> prebuilt_gemms();

}  // namespace oxy::jit
