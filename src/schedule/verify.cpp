// Checks what kernel.h promises; an InternalError names the kernel.
#include <algorithm>
#include <unordered_set>

#include "schedule/kernel_access.h"
#include "support/check.h"

namespace oxy::schedule {

namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& k)
      : k_(k), set_(k.value_count, false), visible_(k.value_count, false) {}

  void run() {
    for (Expr s : free_symbols(k_))
      OXY_CHECK(std::ranges::count(k_.parameters, s) == 1, k_.name, ": free symbol ", s);
    block(k_.body, Place{});
  }

 private:
  struct Place {
    bool outermost = true;  // nothing but Parallel loops around
    bool vector = false;    // inside a Vector loop
    bool folds = false;     // inside a VectorReduce loop
  };

  void block(const Block& b, Place at) {
    std::vector<uint32_t> made;
    std::vector<uint32_t>* outer = made_;
    made_ = &made;
    for (const Stmt& s : b) std::visit([&](const auto& x) { statement(x, at); }, s.v);
    for (uint32_t v : made) visible_[v] = false;
    made_ = outer;
  }

  void statement(const For& f, Place at) {
    bool parallel = f.kind == ForKind::Parallel;
    OXY_CHECK(!parallel || at.outermost, k_.name, ": parallel loop ", f.var, " is not outermost");
    OXY_CHECK(!at.folds && (!at.vector || f.kind == ForKind::Serial), k_.name, ": loop ", f.var,
              " inside a vector loop");
    OXY_CHECK(variables_.insert(f.var).second, k_.name, ": loop variable ", f.var, " twice");
    block(f.body,
          Place{parallel, at.vector || f.kind == ForKind::Vector, f.kind == ForKind::VectorReduce});
    variables_.erase(f.var);
  }

  void statement(const Compute& c, Place) {
    size_t wanted = static_cast<size_t>(ops::arity(c.op));
    if (c.op == LoopOp::Load && !c.args.empty()) wanted = 2;
    OXY_CHECK(c.args.size() == wanted && c.op != LoopOp::Reduce && c.op != LoopOp::Scan, k_.name,
              ": ", ops::name(c.op));
    for (uint32_t a : c.args) use(a);
    if (touches_memory(c.op)) {
      OXY_CHECK(c.buffer < k_.buffers.size(), k_.name, ": no such buffer");
      const KernelBuffer& b = k_.buffers[c.buffer];
      OXY_CHECK(b.dtype == c.dtype, k_.name, ": dtype of ", b.name);
      using Kind = KernelBuffer::Kind;
      OXY_CHECK(c.op == LoopOp::Store || b.kind != Kind::Write, k_.name, ": read of ", b.name);
      OXY_CHECK(c.op == LoopOp::Load || b.kind != Kind::Read, k_.name, ": write of ", b.name);
    }
    if (c.op == LoopOp::Symbol)
      OXY_CHECK(symbols_.insert(c.index).second, k_.name, ": symbol ", c.index, " is bound twice");
    if (sets_value(c.op)) make(c.value);
  }

  void statement(const Init& i, Place) {
    OXY_CHECK(accumulators_.insert(i.acc).second, k_.name, ": @", i.acc);
  }
  void statement(const Accumulate& a, Place) {
    OXY_CHECK(accumulators_.contains(a.acc), k_.name, ": @", a.acc);
    use(a.value);
  }
  void statement(const Result& r, Place) {
    OXY_CHECK(accumulators_.contains(r.acc), k_.name, ": @", r.acc);
    make(r.value);
  }

  void statement(const Hint& h, Place) {
    OXY_CHECK(h.buffer < k_.buffers.size(), k_.name, ": no such buffer");
  }

  void use(uint32_t v) {
    OXY_CHECK(v < visible_.size() && visible_[v], k_.name, ": %", v, " is not visible");
  }
  void make(uint32_t v) {
    OXY_CHECK(v < set_.size() && !set_[v], k_.name, ": %", v, " is set twice");
    set_[v] = visible_[v] = true;
    made_->push_back(v);
  }

  const Kernel& k_;
  std::vector<bool> set_, visible_;
  std::vector<uint32_t>* made_ = nullptr;
  std::unordered_set<Expr> variables_, symbols_;
  std::unordered_set<uint32_t> accumulators_;
};

}  // namespace

void verify(const Kernel& k) { Verifier(k).run(); }

}  // namespace oxy::schedule
