// What both compilers share: equal texts are compiled once while their code lives, on several
// threads.
#pragma once

#include <map>
#include <mutex>

#include "jit/compiler.h"
#include "support/fork_mutex.h"

namespace oxy::jit {

class SharedCompiler : public Compiler {
 public:
  std::vector<std::shared_ptr<Code>> compile(const std::vector<std::string>& sources,
                                             int threads) final;

 protected:
  // Compiles one text; called from several threads at once.
  virtual std::shared_ptr<Code> build(const std::string& source) = 0;
  // Called after the last of a batch.
  virtual void finished() {}

 private:
  // One text. Whoever holds the mutex is compiling it; others with the same text wait and find the
  // code.
  struct Slot {
    std::mutex compiling;
    std::weak_ptr<Code> code;
  };

  std::shared_ptr<Slot> slot(const std::string& source);
  void forget_released();
  void forget_other_processes();

  ForkMutex mutex_;  // guards what follows
  int forks_ = 0;    // those that the slots are from
  std::map<std::string, std::shared_ptr<Slot>> slots_;
};

}  // namespace oxy::jit
