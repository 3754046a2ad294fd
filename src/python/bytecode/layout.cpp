// A distance decides how many EXTENDED_ARGs its jump needs, and these move what lies between. So
// sizes start small and only grow until nothing changes.
#include "python/bytecode/layout.h"

#include <algorithm>
#include <cstdlib>

#include "python/cpython/opcodes.h"
#include "support/check.h"

namespace oxy::python {

namespace {

int prefixes_of(uint32_t arg) { return (arg > 0xff) + (arg > 0xffff) + (arg > 0xffffff); }

class LayOut {
 public:
  explicit LayOut(const Bytecode& bytecode)
      : code_(bytecode.instructions), count_(static_cast<int>(code_.size())) {
    result_.start.resize(count_ + 1);
    result_.prefixes.resize(count_);
    for (int i = 0; i < count_; ++i) add(i);
  }

  Layout run() {
    do {
      place();
    } while (grow());
    return std::move(result_);
  }

 private:
  void add(int at) {
    const Instruction& in = code_[at];
    bool jump = is_jump(in.op);
    OXY_CHECK(!jump || (in.target >= 0 && in.target < count_), "a jump to ", in.target);
    OXY_CHECK(!jump || named_target(in) == in.target || code_[named_target(in)].op == END_FOR,
              "the end of a loop");
    result_.ops.push_back(jump ? jump_towards(in.op, in.target <= at) : in.op);
    result_.args.push_back(jump ? 0 : in.arg);
  }

  int behind(int at) const {
    return result_.start[at] + result_.prefixes[at] + 1 + opcode_info(result_.ops[at]).caches;
  }

  void place() {
    for (int i = 0; i < count_; ++i) result_.start[i + 1] = behind(i);
    for (int i = 0; i < count_; ++i) {
      const Jump jump = opcode_info(result_.ops[i]).jump;
      if (jump == Jump::none) continue;
      const int target = result_.start[named_target(code_[i])];
      result_.args[i] = jump == Jump::absolute ? target : std::abs(target - behind(i));
    }
  }

  bool grow() {
    bool grown = false;
    for (int i = 0; i < count_; ++i) {
      int needed = prefixes_of(result_.args[i]);
      if (needed <= result_.prefixes[i]) continue;
      result_.prefixes[i] = needed;
      grown = true;
    }
    return grown;
  }

  const std::vector<Instruction>& code_;
  int count_;
  Layout result_;
};

}  // namespace

Layout lay_out(const Bytecode& bytecode) { return LayOut(bytecode).run(); }

}  // namespace oxy::python
