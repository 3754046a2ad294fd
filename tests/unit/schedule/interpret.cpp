// Loops and extern steps of a program, then the kernels of its schedule, in doubles.
#include "interpret.h"

#include <cmath>
#include <limits>
#include <random>

#include "schedule/uses.h"
#include "support/check.h"

namespace oxy::test {

using loops::BufferId;
using loops::Inst;
using loops::LoopOp;
using ops::DType;
using ops::ReduceKind;
using schedule::Block;
using schedule::ForKind;
using schedule::Kernel;
using sym::Expr;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Variables = Sizes;

int64_t at(Expr e, const Variables& v) {
  if (e.is_const()) return e.value();
  return sym::evaluate(e, [&](Expr s) {
    auto it = v.find(s);
    OXY_CHECK(it != v.end(), "free variable ", s);
    return it->second;
  });
}

double pick_max(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}
double pick_min(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::min(a, b);
}

double apply(LoopOp op, const double* a) {
  switch (op) {
    case LoopOp::Add:
      return a[0] + a[1];
    case LoopOp::Sub:
      return a[0] - a[1];
    case LoopOp::Mul:
      return a[0] * a[1];
    case LoopOp::Div:
      return a[0] / a[1];
    case LoopOp::Max:
      return pick_max(a[0], a[1]);
    case LoopOp::Min:
      return pick_min(a[0], a[1]);
    case LoopOp::Neg:
      return -a[0];
    case LoopOp::Sin:
      return std::sin(a[0]);
    case LoopOp::Exp:
      return std::exp(a[0]);
    case LoopOp::Lt:
      return a[0] < a[1];
    case LoopOp::Ge:
      return a[0] >= a[1];
    case LoopOp::And:
      return a[0] != 0 && a[1] != 0;
    case LoopOp::Or:
      return a[0] != 0 || a[1] != 0;
    case LoopOp::Where:
      return a[0] != 0 ? a[1] : a[2];
    case LoopOp::Cast:
      return a[0];
    default:
      OXY_FAIL("the interpreter has no ", ops::name(op));
  }
}

struct Accumulator {
  ReduceKind kind = ReduceKind::Sum;
  double value = 0;
  int64_t position = 0;
  bool empty = true;

  explicit Accumulator(ReduceKind k = ReduceKind::Sum) : kind(k) {
    if (k == ReduceKind::Max) value = -kInf;
    if (k == ReduceKind::Min) value = kInf;
    if (k == ReduceKind::Prod || k == ReduceKind::All) value = 1;
  }
  void fold(double v, int64_t index) {
    switch (kind) {
      case ReduceKind::Sum:
        value += v;
        break;
      case ReduceKind::Prod:
        value *= v;
        break;
      case ReduceKind::Max:
        value = pick_max(value, v);
        break;
      case ReduceKind::Min:
        value = pick_min(value, v);
        break;
      case ReduceKind::Any:
        value = value != 0 || v != 0;
        break;
      case ReduceKind::All:
        value = value != 0 && v != 0;
        break;
      case ReduceKind::ArgMax:
      case ReduceKind::ArgMin:
        fold_position(v, index);
        break;
      case ReduceKind::LogSumExp:
      case ReduceKind::Last:
        OXY_FAIL("no reduction");
    }
    empty = false;
  }
  void fold_position(double v, int64_t index) {
    bool better = kind == ReduceKind::ArgMax ? v > value : v < value;
    if (empty || better || (v == value && index < position)) {
      value = v;
      position = index;
    }
  }
  double result() const {
    return kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin ? static_cast<double>(position)
                                                                    : value;
  }
};

double& element(Memory& m, BufferId b, int64_t offset, const std::string& name) {
  std::vector<double>& data = m.at(b);
  OXY_CHECK(offset >= 0 && offset < static_cast<int64_t>(data.size()), "offset ", offset, " of ",
            name);
  return data[offset];
}

class LoopRunner {
 public:
  LoopRunner(const loops::Program& p, const loops::Loop& l, Memory& m, const Sizes& sizes)
      : p_(p), l_(l), m_(m), value_(l.body.size()), vars_(sizes) {
    after_.assign(l.body.size(), false);
    for (size_t k = 0; k < l.body.size(); ++k) {
      const Inst& i = l.body[k];
      after_[k] = i.op == LoopOp::Reduce;
      for (uint32_t a : i.args) after_[k] = after_[k] || after_[a];
      if (i.op == LoopOp::Reduce) reduce_ = k;
    }
  }
  void run() { kept(0); }

 private:
  void kept(size_t axis) {
    while (axis < l_.axes.size() && l_.axes[axis].reduction) ++axis;
    if (axis == l_.axes.size()) return iteration();
    int64_t n = at(l_.axes[axis].size, vars_);
    for (int64_t i = 0; i < n; ++i) {
      vars_[l_.axes[axis].var] = i;
      kept(axis + 1);
    }
  }
  void iteration() {
    if (!reduce_) {
      for (size_t k = 0; k < l_.body.size(); ++k) step(k);
      return;
    }
    for (size_t k = 0; k < l_.body.size(); ++k) {
      if (l_.body[k].op == LoopOp::Const) step(k);  // even where nothing is folded
    }
    acc_ = Accumulator(l_.body[*reduce_].reduce);
    position_ = 0;
    folded(0);
    value_[*reduce_] = acc_.result();
    for (size_t k = 0; k < l_.body.size(); ++k) {
      if (after_[k] && k != *reduce_) step(k);
    }
  }
  void folded(size_t axis) {
    while (axis < l_.axes.size() && !l_.axes[axis].reduction) ++axis;
    if (axis == l_.axes.size()) {
      for (size_t k = 0; k < l_.body.size(); ++k) {
        if (!after_[k]) step(k);
      }
      return acc_.fold(value_[l_.body[*reduce_].args[0]], position_++);
    }
    int64_t n = at(l_.axes[axis].size, vars_);
    for (int64_t i = 0; i < n; ++i) {
      vars_[l_.axes[axis].var] = i;
      folded(axis + 1);
    }
  }
  void step(size_t k) {
    const Inst& i = l_.body[k];
    auto offset = [&] { return at(loops::flat_offset(p_.buffers[i.buffer], i.index), vars_); };
    auto memory = [&]() -> double& {
      BufferId b = memory_of(p_, i.buffer);
      return element(m_, b, offset(), p_.buffers[b].name);
    };
    switch (i.op) {
      case LoopOp::Const:
        value_[k] = ir::is_floating(i.dtype) ? i.number : static_cast<double>(i.integer);
        return;
      case LoopOp::Index:
        value_[k] = static_cast<double>(at(i.index[0], vars_));
        return;
      case LoopOp::Load:
        value_[k] = !i.args.empty() && value_[i.args[0]] == 0 ? value_[i.args[1]] : memory();
        return;
      case LoopOp::Store:
        memory() = value_[i.args[0]];
        return;
      case LoopOp::Check:
        OXY_CHECK(value_[i.args[0]] >= 0 && value_[i.args[0]] < at(i.index[0], vars_), "check");
        return;
      case LoopOp::Symbol:
        value_[k] = value_[i.args[0]];
        vars_[i.index[0]] = static_cast<int64_t>(value_[k]);
        return;
      default:
        break;
    }
    double a[3] = {};
    for (size_t j = 0; j < i.args.size(); ++j) a[j] = value_[i.args[j]];
    value_[k] = apply(i.op, a);
  }

  const loops::Program& p_;
  const loops::Loop& l_;
  Memory& m_;
  std::vector<double> value_;
  std::vector<bool> after_;
  std::optional<size_t> reduce_;
  Variables vars_;
  Accumulator acc_;
  int64_t position_ = 0;
};

class KernelRunner {
 public:
  KernelRunner(const loops::Program& p, const Kernel& k, Memory& m, const Sizes& sizes)
      : p_(p), k_(k), m_(m), value_(k.value_count, kNan), acc_(k.acc_count), vars_(sizes) {
    locals_.resize(k.buffers.size());
  }
  void run() {
    fresh_locals();
    block(k_.body);
  }

 private:
  void fresh_locals() {
    for (size_t b = 0; b < k_.buffers.size(); ++b) {
      if (k_.buffers[b].kind == schedule::KernelBuffer::Kind::Local) {
        locals_[b].assign(static_cast<size_t>(at(k_.buffers[b].elements, vars_)), kNan);
      }
    }
  }
  void block(const Block& b) {
    for (const schedule::Stmt& s : b) std::visit([&](const auto& x) { step(x); }, s.v);
  }
  void step(const schedule::For& f) {
    int64_t n = at(f.size, vars_);
    bool free = f.kind == ForKind::Parallel || f.kind == ForKind::Vector;
    size_t outside = bound_.size();
    for (int64_t i = 0; i < n; ++i) {
      vars_[f.var] = free ? n - 1 - i : i;
      if (f.kind == ForKind::Parallel) fresh_locals();
      block(f.body);
      for (; bound_.size() > outside; bound_.pop_back()) vars_.erase(bound_.back());
    }
    vars_.erase(f.var);
  }
  void step(const schedule::Init& i) { acc_[i.acc] = Accumulator(i.kind); }
  void step(const schedule::Accumulate& a) {
    acc_[a.acc].fold(value_[a.value], at(a.index, vars_));
  }
  void step(const schedule::Hint&) {}
  void step(const schedule::Result& r) { value_[r.value] = acc_[r.acc].result(); }
  double& memory(const schedule::Compute& c) {
    const schedule::KernelBuffer& b = k_.buffers[c.buffer];
    int64_t offset = at(c.index, vars_);
    if (b.kind != schedule::KernelBuffer::Kind::Local)
      return element(m_, memory_of(p_, b.buffer), offset, b.name);
    OXY_CHECK(offset >= 0 && offset < static_cast<int64_t>(locals_[c.buffer].size()), "offset ",
              offset, " of local ", b.name);
    return locals_[c.buffer][offset];
  }
  void step(const schedule::Compute& c) {
    switch (c.op) {
      case LoopOp::Const:
        value_[c.value] = ir::is_floating(c.dtype) ? c.number : static_cast<double>(c.integer);
        return;
      case LoopOp::Index:
        value_[c.value] = static_cast<double>(at(c.index, vars_));
        return;
      case LoopOp::Load:
        value_[c.value] = !c.args.empty() && value_[c.args[0]] == 0 ? value_[c.args[1]] : memory(c);
        return;
      case LoopOp::Store:
        memory(c) = value_[c.args[0]];
        return;
      case LoopOp::Check:
        OXY_CHECK(value_[c.args[0]] >= 0 && value_[c.args[0]] < at(c.index, vars_), "check");
        return;
      case LoopOp::Symbol:
        value_[c.value] = value_[c.args[0]];
        vars_[c.index] = static_cast<int64_t>(value_[c.value]);
        bound_.push_back(c.index);
        return;
      default:
        break;
    }
    double a[3] = {};
    for (size_t j = 0; j < c.args.size(); ++j) a[j] = value_[c.args[j]];
    value_[c.value] = apply(c.op, a);
  }

  const loops::Program& p_;
  const Kernel& k_;
  Memory& m_;
  std::vector<double> value_;
  std::vector<Accumulator> acc_;
  std::vector<std::vector<double>> locals_;
  Variables vars_;
  std::vector<Expr> bound_;  // by Symbol statements of the loops that are open
};

// Elements of a strided tensor, row by row.
template <class Fn>
void for_each_offset(const loops::Buffer& b, const Sizes& sizes, Fn&& f) {
  std::vector<int64_t> index(b.type.sizes.size(), 0);
  for (Expr s : b.type.sizes) {
    if (at(s, sizes) == 0) return;
  }
  while (true) {
    loops::Index place;
    for (int64_t i : index) place.push_back(i);
    f(at(loops::flat_offset(b, place), sizes));
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == at(b.type.sizes[d - 1], sizes)) index[--d] = 0;
    if (d == 0) return;
  }
}

// An op that nobody knows: each result depends on every element that it reads.
void run_extern(const loops::Program& p, const loops::ExternStep& e, Memory& m,
                const Sizes& sizes) {
  double seen = 0.25;
  for (BufferId b : e.reads) {
    double k = 0;
    for_each_offset(p.buffers[b], sizes, [&](int64_t o) {
      k += 1;
      seen = std::sin(seen * 1.5 + element(m, memory_of(p, b), o, p.buffers[b].name) + k);
    });
  }
  for (BufferId b : e.writes) {
    if (!b.valid()) continue;
    double k = 0;
    for_each_offset(p.buffers[b], sizes, [&](int64_t o) {
      element(m, b, o, p.buffers[b].name) = seen + std::sin(k += 1);
    });
  }
}

// c = a * b + bias
void run_gemm(const loops::Program& p, const loops::ContractionStep& s, Memory& m,
              const Sizes& sizes) {
  auto place = [&](BufferId b, const loops::Index& index) -> double& {
    const loops::Buffer& buffer = p.buffers[b];
    return element(m, memory_of(p, b), at(loops::flat_offset(buffer, index), sizes), buffer.name);
  };
  const ops::ContractionLayout l = layout_of(p, s);
  for (int64_t i = 0; i < at(l.m, sizes); ++i) {
    for (int64_t j = 0; j < at(l.n, sizes); ++j) {
      double sum = s.bias().valid() ? place(s.bias(), {j}) : 0;
      for (int64_t k = 0; k < at(l.k, sizes); ++k)
        sum += place(s.a(), {i, k}) * place(s.b(), {k, j});
      place(s.c(), {i, j}) = sum;
    }
  }
}

// Temps share an arena: before a kernel runs, its temps are cut out of it, and written back
// afterwards.
class Arena {
 public:
  Arena(const schedule::Schedule& s, Memory& m, const Sizes& sizes)
      : s_(s), m_(m), sizes_(sizes), bytes_(at(s.memory.arena_bytes, sizes) / 4 + 1, kNan) {}
  void load() {
    each([&](double& own, double& shared) { own = shared; });
  }
  void save(const std::vector<BufferId>& written) {
    for (BufferId b : written) copy(b, [](double& own, double& shared) { shared = own; });
  }

 private:
  template <class Fn>
  void copy(BufferId b, Fn&& f) {
    auto it = s_.memory.offset.find(b);
    if (it == s_.memory.offset.end()) return;
    std::vector<double>& own = m_.at(b);
    int64_t bytes = ir::byte_size(s_.program.buffers[b].type.dtype);
    const int64_t begin = at(it->second, sizes_);
    for (size_t i = 0; i < own.size(); ++i) f(own[i], bytes_.at((begin + i * bytes) / 4));
  }
  template <class Fn>
  void each(Fn&& f) {
    for (const auto& entry : s_.memory.offset) copy(entry.first, f);
  }

  const schedule::Schedule& s_;
  Memory& m_;
  const Sizes& sizes_;
  std::vector<double> bytes_;  // one number for four bytes: the tests use f32 temps
};

}  // namespace

Memory initial_memory(const loops::Program& p, uint32_t seed, const Sizes& sizes) {
  Memory m;
  std::mt19937 random(seed);
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    const loops::Buffer& buffer = p.buffers[BufferId(b)];
    if (buffer.kind == loops::Buffer::Kind::View) continue;
    std::vector<double> data(
        at(loops::byte_extent(buffer.type), sizes) / ir::byte_size(buffer.type.dtype), kNan);
    if (buffer.kind == loops::Buffer::Kind::Input ||
        buffer.kind == loops::Buffer::Kind::Attribute) {
      bool position = buffer.type.dtype == DType::I64;
      for (double& x : data)
        x = position ? random() % 2 : static_cast<double>(random() % 17) / 4 - 2;
    }
    m[BufferId(b)] = std::move(data);
  }
  return m;
}

void run(const loops::Program& p, Memory& m, const Sizes& sizes) {
  for (const loops::Step& s : p.steps) {
    if (const auto* l = std::get_if<loops::Loop>(&s))
      LoopRunner(p, *l, m, sizes).run();
    else if (const auto* c = std::get_if<loops::ContractionStep>(&s))
      run_gemm(p, *c, m, sizes);
    else
      run_extern(p, std::get<loops::ExternStep>(s), m, sizes);
  }
}

void run(const schedule::Schedule& s, Memory& m, bool arena, const Sizes& sizes) {
  run(s, m, arena, sizes, [&](const Kernel& k) { KernelRunner(s.program, k, m, sizes).run(); });
}

void run(const schedule::Schedule& s, Memory& m, bool arena, const Sizes& sizes,
         const std::function<void(const Kernel&)>& run_kernel) {
  Arena shared(s, m, sizes);
  for (const schedule::ScheduledStep& step : s.steps) {
    if (arena) shared.load();
    if (const auto* k = std::get_if<schedule::KernelCall>(&step)) {
      run_kernel(s.kernels[k->kernel]);
    } else if (const auto* e = std::get_if<schedule::ExternCall>(&step)) {
      run_extern(s.program, e->step, m, sizes);
    } else if (const auto* c = std::get_if<schedule::ContractionCall>(&step)) {
      run_gemm(s.program, c->step, m, sizes);
      if (c->epilogue) run_kernel(s.kernels[*c->epilogue]);
    }
    if (arena) shared.save(uses_of(s, step).writes);
  }
}

}  // namespace oxy::test
