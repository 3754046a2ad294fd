// Draws steps one after the other over buffers of a few shapes, some of them symbolic.
#include "random_program.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "loops/body_writer.h"
#include "schedule/cost.h"

namespace oxy::test {

using loops::Axis;
using loops::Body;
using loops::BodyWriter;
using loops::Buffer;
using loops::BufferId;
using loops::Index;
using loops::Inst;
using loops::LoopOp;
using ops::DType;
using sym::Expr;

namespace {

using Shape = std::vector<Expr>;

class Generator {
 public:
  Generator(uint32_t seed, const RandomOptions& options) : random_(seed), options_(options) {
    p_.pool = std::make_shared<sym::ExprPool>();
    p_.variables = std::make_shared<loops::Variables>(p_.pool);
    sizes_.assign(options.sizes.begin(), options.sizes.end());
    for (const auto& [name, range, hint] : options.symbols) {
      const Expr symbol = p_.pool->symbol(name, range, hint);
      for (int k = 0; k < 2; ++k) sizes_.push_back(symbol);
    }
  }

  loops::Program run() {
    add_buffer(Buffer::Kind::Input, below(2) ? some_shape() : Shape{2, 1});
    add_buffer(Buffer::Kind::Input, random_shape());
    positions_ = add_buffer(Buffer::Kind::Input, some_shape());
    readable_.pop_back();
    p_.buffers[positions_].type.dtype = DType::I64;
    for (int k = 0; k < options_.steps; ++k) {
      if (options_.gemms && below(3) == 0) {
        add_gemm();
        continue;
      }
      int what = below(10);
      if (what < 6)
        add_elementwise();
      else if (what < 9)
        add_reduction();
      else
        add_extern();
    }
    mark_outputs();
    return std::move(p_);
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <class T>
  const T& one_of(const std::vector<T>& xs) {
    return xs[below(static_cast<int>(xs.size()))];
  }

  Shape random_shape() {
    while (true) {
      Shape s(below(options_.max_dims + 1));
      for (Expr& x : s) x = one_of(sizes_);
      if (schedule::count_of(elements(s)) <= options_.max_elements) return s;
    }
  }
  Shape some_shape() {  // with elements
    while (true) {
      Shape s = random_shape();
      if (sym::range_of(elements(s)).lo > 0) return s;
    }
  }
  const Shape& shape_of(BufferId b) const { return p_.buffers[b].type.sizes; }
  static Expr elements(const Shape& s) {
    return std::accumulate(s.begin(), s.end(), Expr(1), std::multiplies<>());
  }
  // Whether a loop over `shape` may run where a buffer has no elements.
  static bool may_miss(const Shape& from, const Shape& shape) {
    const Expr there = elements(from), iterations = elements(shape);
    if (there == 0) return iterations != 0;
    std::vector<Expr> symbols;
    sym::collect_symbols(there, symbols);
    return std::ranges::any_of(symbols, [&](Expr s) {
      auto empty = [&](Expr x) { return x == s ? Expr(0) : x; };
      return sym::range_of(s).lo == 0 && sym::substitute(iterations, empty) != 0;
    });
  }

  BufferId add_buffer(Buffer::Kind kind, const Shape& shape) {
    Buffer b;
    b.name = cat(kind == Buffer::Kind::Input ? "in" : "buf", p_.buffers.size());
    b.kind = kind;
    b.source = p_.buffers.size();
    b.type.sizes = shape;
    b.type.strides.assign(shape.size(), Expr(0));
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (below(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    Expr stride = 1;
    for (size_t k = order.size(); k-- > 0;) {
      b.type.strides[order[k]] = stride;
      stride *= shape[order[k]];
    }
    BufferId id = p_.buffers.add(std::move(b));
    readable_.push_back(id);
    return id;
  }

  // Another shape for the elements of a value, or one like it.
  Shape shape_from(const Shape& s) {
    Shape out = s;
    const Expr n = elements(s);
    switch (below(6)) {
      case 0:
        std::shuffle(out.begin(), out.end(), random_);
        return out;
      case 1:
        return {n};
      case 2:
        for (int64_t d : {2, 3, 4}) {
          if (sym::divisible(n, d)) return {sym::floordiv(n, d), d};
        }
        return out;
      case 3:
        return random_shape();
      default:
        return out;
    }
  }

  // Where a loop over `shape` reads the buffer: always within bounds.
  Inst read(BodyWriter& w, BufferId b, const Index& index, const Shape& shape) {
    Shape from = shape_of(b);
    if (may_miss(from, shape)) {
      b = BufferId(0);
      from = shape_of(b);
    }
    Inst load{.op = LoopOp::Load, .dtype = DType::F32, .buffer = b};
    if (from == shape) {
      load.index = index;
      if (!shape.empty() && below(5) == 0) shift(w, load, shape);
      if (!shape.empty() && below(8) == 0) gather(w, load, index, shape);
      return load;
    }
    if (elements(from) == elements(shape) && elements(from) != 0 && below(2)) {
      Expr flat = 0;
      for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
      for (size_t d = from.size(); d-- > 0;) {
        load.index.insert(load.index.begin(), sym::mod(flat, from[d]));
        flat = sym::floordiv(flat, from[d]);
      }
      return load;
    }
    std::vector<bool> used(shape.size(), false);
    for (Expr size : from) {
      Expr e = 0;
      for (size_t d = shape.size(); d-- > 0;) {
        if (used[d] || shape[d] != size) continue;
        e = index[d];
        used[d] = true;
        break;
      }
      if (e.is_const() && sym::known_less(1, size) != false && !index.empty())
        e = sym::mod(one_of(index), size);
      load.index.push_back(e);
    }
    return load;
  }

  // Along one axis: flipped, or moved with zeros at the edge.
  void shift(BodyWriter& w, Inst& load, const Shape& shape) {
    size_t d = below(static_cast<int>(shape.size()));
    Expr var = load.index[d];
    if (below(2)) {
      load.index[d] = shape[d] - 1 - var;
      return;
    }
    uint32_t at = w.emit(Inst{.op = LoopOp::Index, .dtype = DType::I64, .index = {var}});
    uint32_t one = w.emit(Inst{.op = LoopOp::Const, .dtype = DType::I64, .integer = 1});
    uint32_t inside = w.emit(Inst{.op = LoopOp::Ge, .dtype = DType::B8, .args = {at, one}});
    load.args = {inside, w.emit_const(0.5, DType::F32)};
    load.index[d] = var - 1;
  }

  // Along one axis: at a position that is read from memory.
  void gather(BodyWriter& w, Inst& load, const Index& index, const Shape& shape) {
    size_t d = below(static_cast<int>(shape.size()));
    if (sym::range_of(shape[d]).lo < 2 || !load.args.empty()) return;
    Inst from = read_any(positions_, index, shape);
    uint32_t at = w.emit(std::move(from));
    w.emit(Inst{.op = LoopOp::Check, .dtype = DType::I64, .args = {at}, .index = {shape[d]}});
    Expr symbol = p_.variables->get('i', shape[d], next_symbol_++);
    w.emit(Inst{.op = LoopOp::Symbol, .dtype = DType::I64, .args = {at}, .index = {symbol}});
    load.index[d] = symbol;
  }
  Inst read_any(BufferId b, const Index& index, const Shape& shape) {
    Inst load{.op = LoopOp::Load, .dtype = p_.buffers[b].type.dtype, .buffer = b};
    for (Expr size : shape_of(b)) {
      size_t d = below(static_cast<int>(shape.size()));
      load.index.push_back(sym::known_less(size, shape[d]) == false ? index[d]
                                                                    : sym::mod(index[d], size));
    }
    return load;
  }

  uint32_t combine(BodyWriter& w, uint32_t a, uint32_t b) {
    static const std::vector<LoopOp> kOps = {LoopOp::Add, LoopOp::Sub, LoopOp::Max, LoopOp::Min};
    return w.emit(Inst{.op = one_of(kOps), .dtype = DType::F32, .args = {a, b}});
  }
  uint32_t finish(BodyWriter& w, uint32_t v) {
    if (below(3) == 0) return w.emit(Inst{.op = LoopOp::Sin, .dtype = DType::F32, .args = {v}});
    if (below(2))
      return w.emit(
          Inst{.op = LoopOp::Mul, .dtype = DType::F32, .args = {v, w.emit_const(0.5, DType::F32)}});
    return v;
  }

  uint32_t value(BodyWriter& w, const Index& index, const Shape& shape, BufferId first) {
    uint32_t v = w.emit(read(w, first, index, shape));
    for (int k = below(3); k > 0; --k) v = combine(w, v, w.emit(read(w, recent(), index, shape)));
    return finish(w, v);
  }
  BufferId recent() {
    size_t n = readable_.size();
    return below(3) ? readable_[n - 1 - below(static_cast<int>(std::min<size_t>(n, 3)))]
                    : one_of(readable_);
  }

  Index axes(loops::Loop& l, const Shape& shape, const std::vector<bool>& folded) {
    loops::VariableScope scope(*p_.variables);
    Index index;
    std::vector<Axis> reductions;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) {
        index.push_back(0);
        continue;
      }
      Axis a{scope.get(folded[d] ? 'r' : 'p', shape[d]), shape[d], folded[d]};
      index.push_back(a.var);
      (folded[d] ? reductions : l.axes).push_back(a);
    }
    l.axes.insert(l.axes.end(), reductions.begin(), reductions.end());
    return index;
  }

  void store(loops::Loop& l, BodyWriter& w, uint32_t v, const Index& index, const Shape& shape) {
    BufferId b = add_buffer(Buffer::Kind::Temp, shape);
    w.emit(
        Inst{.op = LoopOp::Store, .dtype = DType::F32, .args = {v}, .buffer = b, .index = index});
    l.name = cat("op", p_.steps.size(), "_loop");
    loops::remove_dead(l.body);
    p_.steps.push_back(std::move(l));
  }

  void add_elementwise() {
    BufferId from = recent();
    Shape shape = shape_from(shape_of(from));
    loops::Loop l;
    Index index = axes(l, shape, std::vector<bool>(shape.size(), false));
    next_symbol_ = 0;
    BodyWriter w(l.body);
    uint32_t v = value(w, index, shape, from);
    store(l, w, v, index, shape);
  }

  void add_reduction() {
    BufferId from = recent();
    Shape shape = shape_of(from), out;
    std::vector<bool> folded(shape.size());
    for (size_t d = 0; d < shape.size(); ++d) folded[d] = below(2);
    bool keep = below(2);
    loops::Loop l;
    Index index = axes(l, shape, folded), at;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!folded[d]) {
        out.push_back(shape[d]);
        at.push_back(index[d]);
      } else if (keep) {
        out.push_back(1);
        at.push_back(0);
      }
    }
    next_symbol_ = 0;
    BodyWriter w(l.body);
    static const std::vector<ops::ReduceKind> kKinds = {ops::ReduceKind::Sum, ops::ReduceKind::Max,
                                                        ops::ReduceKind::Min};
    uint32_t v = value(w, index, shape, from);
    if (options_.positions && below(8) == 0) return add_position(std::move(l), w, v, at, out);
    v = w.emit(
        Inst{.op = LoopOp::Reduce, .dtype = DType::F32, .args = {v}, .reduce = one_of(kKinds)});
    uint32_t scale = w.emit_const(0.125, DType::F32);
    v = w.emit(Inst{.op = LoopOp::Mul, .dtype = DType::F32, .args = {v, scale}});
    store(l, w, v, at, out);
  }

  // Where the largest element is: an output of its own, in i64.
  void add_position(loops::Loop l, BodyWriter&, uint32_t v, const Index& at, const Shape& out) {
    BodyWriter w(l.body);
    v = w.emit(Inst{
        .op = LoopOp::Reduce, .dtype = DType::I64, .args = {v}, .reduce = ops::ReduceKind::ArgMax});
    store(l, w, v, at, out);
    readable_.pop_back();
    Buffer& b = p_.buffers[BufferId(p_.buffers.size() - 1)];
    b.type.dtype = DType::I64;
    b.kind = Buffer::Kind::Output;
    for (Inst& i : std::get<loops::Loop>(p_.steps.back()).body) {
      if (i.op == LoopOp::Store) i.dtype = DType::I64;
    }
  }

  void add_extern() {
    loops::ExternStep e;
    e.reads = {recent()};
    e.writes = {add_buffer(Buffer::Kind::Extern, shape_of(e.reads[0]))};
    p_.steps.push_back(std::move(e));
  }

  // By a kernel of our own, or by a library; of enough rows for an epilogue, with a matrix that is
  // an input.
  void add_gemm() {
    BufferId a = recent();
    if (shape_of(a).size() != 2 || below(4) == 0)
      a = add_buffer(Buffer::Kind::Input, {below(4) ? 17 + below(4) : 3, 3});
    const Expr rows = shape_of(a)[0], depth = shape_of(a)[1], columns = one_of(sizes_);
    loops::ContractionStep c;
    c.reads = {a, add_buffer(Buffer::Kind::Input, {depth, columns})};
    if (below(2)) c.reads.push_back(add_buffer(Buffer::Kind::Input, {columns}));
    c.provider = below(4) ? ops::Provider::Own : ops::Provider::Aten;
    c.writes = {
        add_buffer(c.is_own() ? Buffer::Kind::Temp : Buffer::Kind::Extern, {rows, columns})};
    p_.steps.push_back(std::move(c));
  }

  void mark_outputs() {
    for (BufferId b : readable_) {
      Buffer& buffer = p_.buffers[b];
      bool last = b == readable_.back();
      if (buffer.kind == Buffer::Kind::Temp && (last || below(4) == 0))
        buffer.kind = Buffer::Kind::Output;
    }
  }

  std::mt19937 random_;
  const RandomOptions& options_;
  std::vector<Expr> sizes_;
  loops::Program p_;
  std::vector<BufferId> readable_;
  BufferId positions_;  // an input of small integers
  uint32_t next_symbol_ = 0;
};

}  // namespace

RandomOptions large_symbolic() {
  RandomOptions o;
  o.steps = 5;
  o.sizes = {1, 3, 16};
  o.symbols = {{"s0", {0, INT64_MAX}, 1500}, {"s1", {1, INT64_MAX}, 70}};
  o.calls = {{1500, 70}, {1, 1}, {0, 33}, {2049, 2}};
  o.max_dims = 2;
  o.max_elements = 1 << 17;
  return o;
}

loops::Program random_program(uint32_t seed, const RandomOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace oxy::test
