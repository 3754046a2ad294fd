// Each operation of a SymNode on our expressions, with guards where torch asks for a value.
//
// A float of sizes is kept as a quotient of integers where its value is that quotient, rounded
// once, and perhaps a whole number added. An integer that code makes of such a float is that of the
// quotient: where that is no integer itself, it is farther from one than it is rounded, as long as
// numerators stay below 2^52, which all sizes do. Any other float is a number, and the sizes in it
// become numbers, too.
#include "torch_bridge/symbolic_shapes.h"

#include <c10/core/SymNodeImpl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <variant>

#include "support/check.h"

namespace oxy::bridge {
namespace {

using c10::SymNode;
using sym::Condition;
using sym::Expr;
using Nodes = c10::ArrayRef<SymNode>;

// Bounds such as the end of x[1:] are the largest int64, which no expression holds; beyond this all
// are alike.
constexpr int64_t kNoBound = Expr::kMaxConst / 2;
Expr clamped(int64_t v) { return std::clamp(v, -kNoBound, kNoBound); }
bool is_no_bound(Expr e) {
  return e.is_const() && (e.value() >= kNoBound || e.value() <= -kNoBound);
}

// A float: n / d, d at least 1.
struct Quotient {
  Expr n = 0, d = 1;

  // It has the value of the quotient to the last bit.
  bool is_exact() const {
    return d.is_const() && d.value() <= kMostExact && std::has_single_bit(as_unsigned(d.value()));
  }

  static constexpr int64_t kMostExact = 1 << 20;
  static uint64_t as_unsigned(int64_t v) { return static_cast<uint64_t>(v); }

  // Of a number with few bits.
  static std::optional<Quotient> of(double v) {
    for (int64_t d = 1; d <= kMostExact; d *= 2) {
      const double n = v * static_cast<double>(d);
      if (std::abs(n) > static_cast<double>(kMostExact)) return std::nullopt;
      if (n == std::floor(n)) return Quotient{static_cast<int64_t>(n), d};
    }
    return std::nullopt;
  }
};

// Nothing where the result is rounded another time.
std::optional<Quotient> sum(const Quotient& a, const Quotient& b) {
  const bool whole = a.d.is_const(1) || b.d.is_const(1);
  if (!whole && !(a.is_exact() && b.is_exact())) return std::nullopt;
  if (a.d == b.d) return Quotient{a.n + b.n, a.d};
  return Quotient{a.n * b.d + b.n * a.d, a.d * b.d};
}

std::optional<Quotient> product(const Quotient& a, const Quotient& b) {
  auto is_power_of_2 = [](const Quotient& q) {
    return q.is_exact() && q.n.is_const() && q.n.value() > 0 &&
           std::has_single_bit(Quotient::as_unsigned(q.n.value()));
  };
  if (!(a.is_exact() && b.is_exact()) && !is_power_of_2(a) && !is_power_of_2(b))
    return std::nullopt;
  return Quotient{a.n * b.n, a.d * b.d};
}

class Node final : public c10::SymNodeImpl {
 public:
  using Value = std::variant<Expr, Condition, double, Quotient>;
  Node(Value value, std::shared_ptr<sym::ShapeFacts> facts)
      : value_(std::move(value)), facts_(std::move(facts)) {}

  static const Node& of(const SymNode& n) { return of(*n); }
  static const Node& of(const c10::SymNodeImpl& n) {
    auto* ours = dynamic_cast<const Node*>(&n);
    if (!ours) throw Unsupported("a symbolic size of another recording or of another compiler");
    return *ours;
  }

  Expr expr() const {
    if (auto* e = std::get_if<Expr>(&value_)) return facts_->simplify(*e);
    throw Unsupported("a symbolic number that is not an integer");
  }
  const std::shared_ptr<sym::ShapeFacts>& facts() const { return facts_; }

  bool is_int() override { return std::holds_alternative<Expr>(value_); }
  bool is_bool() override { return std::holds_alternative<Condition>(value_); }
  bool is_float() override { return !is_int() && !is_bool(); }
  bool has_hint() override { return !is_expr() || sym::origin_of(expr()) == sym::Origin::Hinted; }
  std::string str() override {
    if (auto* d = std::get_if<double>(&value_)) return cat(*d);
    if (auto* q = std::get_if<Quotient>(&value_)) return cat('(', q->n, ")/(", q->d, ')');
    return is_expr() ? sym::print(expr()) : sym::print(std::get<Condition>(value_));
  }
  SymNode clone() override { return SymNode::reclaim_copy(this); }
  SymNode wrap_int(int64_t v) override { return make(clamped(v)); }
  SymNode wrap_float(double v) override { return make(v); }
  SymNode wrap_bool(bool v) override { return make(sym::constant_condition(v)); }

  std::optional<int64_t> constant_int() override { return maybe_as_int(); }
  std::optional<int64_t> maybe_as_int() override {
    if (!is_int()) return std::nullopt;
    Expr e = expr();
    return e.is_const() ? std::optional(e.value()) : std::nullopt;
  }
  std::optional<bool> constant_bool() override {
    return is_bool() ? facts_->known(condition()) : std::nullopt;
  }
  // torch's Python side wants to hear this of truth values alone.
  bool is_constant() override { return constant_bool().has_value(); }
  bool is_symbolic() override { return !constant_int() && !constant_bool(); }

  SymNode add(const SymNode& o) override { return arithmetic(o, std::plus(), std::plus(), sum); }
  SymNode sub(const SymNode& o) override {
    return arithmetic(o, std::minus(), std::minus(),
                      [](const Quotient& a, const Quotient& b) { return sum(a, {-b.n, b.d}); });
  }
  SymNode mul(const SymNode& o) override {
    return arithmetic(o, std::multiplies(), std::multiplies(), product);
  }
  SymNode floordiv(const SymNode& o) override {
    return arithmetic(
        o, [this](Expr a, Expr b) { return sym::floordiv(a, divisor(b)); },
        [](double a, double b) { return std::floor(a / b); }, not_a_quotient);
  }
  SymNode mod(const SymNode& o) override {
    return arithmetic(
        o, [this](Expr a, Expr b) { return sym::mod(a, divisor(b)); },
        [](double a, double b) { return a - b * std::floor(a / b); }, not_a_quotient);
  }
  SymNode sym_min(const SymNode& o) override {
    using std::min;  // of floats; Expr's is found by its namespace
    const auto least = [](auto a, auto b) { return min(a, b); };
    return arithmetic(o, least, least,
                      [this](const Quotient& a, const Quotient& b) { return smaller(a, b, true); });
  }
  SymNode sym_max(const SymNode& o) override {
    using std::max;  // of floats; Expr's is found by its namespace
    const auto most = [](auto a, auto b) { return max(a, b); };
    return arithmetic(o, most, most, [this](const Quotient& a, const Quotient& b) {
      return smaller(a, b, false);
    });
  }
  SymNode neg() override {
    if (auto* q = std::get_if<Quotient>(&value_)) return make(Quotient{-q->n, q->d});
    return is_float() ? make(-std::get<double>(value_)) : make(-expr());
  }
  SymNode truediv(const SymNode& o) override {
    if (!is_symbolic_float() && !of(o).is_symbolic_float())
      return make(as_float() / of(o).as_float());
    const auto a = quotient(), b = of(o).quotient();
    if (!a || !b || !a->is_exact() || !b->is_exact()) return make(as_float() / of(o).as_float());
    Expr n = a->n * b->d, d = a->d * b->n;
    if (facts_->decide(sym::equal(d, 0))) return make(as_float() / of(o).as_float());
    if (facts_->decide(sym::less(d, 0))) n = -n, d = -d;
    return make(Quotient{n, d});
  }
  SymNode float_pow(const SymNode& o) override {
    return make(std::pow(as_float(), of(o).as_float()));
  }
  SymNode pow_by_natural(const SymNode& o) override { return pow(o); }
  SymNode pow(const SymNode& o) override {
    const Node& exponent = of(o);
    if (!is_expr() || !exponent.is_expr()) return float_pow(o);
    const int64_t n = exponent.facts_->pin(exponent.expr());
    if (n < 0 || n > 16) return float_pow(o);
    Expr power = 1;
    for (int64_t i = 0; i < n; ++i) power = power * expr();
    return make(power);
  }
  SymNode ceil() override {
    if (auto* q = std::get_if<Quotient>(&value_)) return make(sym::ceildiv(q->n, q->d));
    return is_float() ? make(clamped(rounded(std::ceil(as_float())))) : clone();
  }
  SymNode floor() override {
    if (auto* q = std::get_if<Quotient>(&value_)) return make(sym::floordiv(q->n, q->d));
    return is_float() ? make(clamped(rounded(std::floor(as_float())))) : clone();
  }
  SymNode sym_float() override {
    if (is_float()) return clone();
    const Expr e = expr();
    if (e.is_const()) return make(static_cast<double>(e.value()));
    return make(Quotient{e, 1});
  }

  SymNode eq(const SymNode& o) override { return compare(o, sym::equal, std::equal_to()); }
  SymNode ne(const SymNode& o) override { return of(eq(o)).inverted(); }
  SymNode lt(const SymNode& o) override { return compare(o, sym::less, std::less()); }
  SymNode le(const SymNode& o) override { return compare(o, sym::at_most, std::less_equal()); }
  SymNode gt(const SymNode& o) override { return of(o).mutable_self().lt(clone()); }
  SymNode ge(const SymNode& o) override { return of(o).mutable_self().le(clone()); }
  SymNode sym_not() override { return inverted(); }
  SymNode sym_and(const SymNode& o) override {
    return make(sym::both(condition(), of(o).condition()));
  }
  SymNode sym_or(const SymNode& o) override {
    return make(sym::either(condition(), of(o).condition()));
  }
  SymNode sym_ite(const SymNode& yes, const SymNode& no) override {
    return facts_->decide(condition()) ? yes : no;
  }

  int64_t guard_int(const char*, int64_t) override { return facts_->pin(expr()); }
  bool guard_bool(const char*, int64_t) override { return facts_->decide(condition()); }
  // The code that asks is right with that answer wherever it is not known. Not so of what is
  // contiguous: where it is, a copy would not be one in eager.
  bool guard_or_false(const char*, int64_t) override { return without_hint(false); }
  bool guard_or_true(const char*, int64_t) override { return without_hint(true); }
  bool guard_size_oblivious(const char*, int64_t) override { return facts_->decide(condition()); }
  bool expect_true(const char*, int64_t) override { return facts_->decide(condition(), true); }
  double guard_float(const char*, int64_t) override { return as_float(); }
  bool statically_known_true(const char*, int64_t) override {
    return facts_->known(condition()).value_or(false);
  }
  int64_t int_() override { return facts_->pin(expr()); }
  bool bool_() override { return facts_->decide(condition()); }

  SymNode is_contiguous(Nodes sizes, Nodes strides) override {
    std::vector<size_t> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), 0);
    return make_of_layout(densely(sizes, strides, order));
  }
  SymNode is_channels_last_contiguous_2d(Nodes sizes, Nodes strides) override {
    return channels_last(sizes, strides, 4, [](auto&&... x) { return densely(x...); });
  }
  SymNode is_channels_last_contiguous_3d(Nodes sizes, Nodes strides) override {
    return channels_last(sizes, strides, 5, [](auto&&... x) { return densely(x...); });
  }
  SymNode is_channels_last_strides_2d(Nodes sizes, Nodes strides) override {
    return channels_last(sizes, strides, 4, like_channels_last);
  }
  SymNode is_channels_last_strides_3d(Nodes sizes, Nodes strides) override {
    return channels_last(sizes, strides, 5, like_channels_last);
  }
  SymNode is_non_overlapping_and_dense(Nodes sizes, Nodes strides) override {
    return make(densely(sizes, strides, by_stride(sizes, strides), /*empty_is_dense=*/false));
  }

  std::optional<std::pair<Expr, Expr>> varying_quotient() const {
    if (!std::holds_alternative<Quotient>(value_)) return std::nullopt;
    const Quotient q = *quotient();
    if (q.n.is_const() && q.d.is_const()) return std::nullopt;
    return std::pair(q.n, q.d);
  }

  const Condition& condition() const {
    if (auto* c = std::get_if<Condition>(&value_)) return *c;
    throw Unsupported("a symbolic number where a truth is wanted");
  }

 private:
  bool without_hint(bool answer) const {
    const Condition c = facts_->simplify(condition());
    if (sym::origin_of(c) == sym::Origin::Hinted || of_layout_) return facts_->decide(c, answer);
    return facts_->known(c).value_or(answer);
  }
  SymNode make_of_layout(Condition c) const {
    auto made = c10::make_intrusive<Node>(std::move(c), facts_);
    made->of_layout_ = true;
    return made;
  }
  SymNode make(Value v) const { return c10::make_intrusive<Node>(std::move(v), facts_); }
  SymNode inverted() const { return make(sym::negate(condition())); }
  bool is_expr() const { return std::holds_alternative<Expr>(value_); }
  // Methods of torch's interface are not const.
  Node& mutable_self() const { return const_cast<Node&>(*this); }

  // The sizes in it become numbers.
  double as_float() const {
    if (auto* d = std::get_if<double>(&value_)) return *d;
    auto* q = std::get_if<Quotient>(&value_);
    if (!q) return static_cast<double>(facts_->pin(expr()));
    return static_cast<double>(facts_->pin(q->n)) / static_cast<double>(facts_->pin(q->d));
  }

  // Nothing of a number with many bits.
  std::optional<Quotient> quotient() const {
    if (auto* q = std::get_if<Quotient>(&value_))
      return Quotient{facts_->simplify(q->n), facts_->simplify(q->d)};
    if (auto* d = std::get_if<double>(&value_)) return Quotient::of(*d);
    return Quotient{expr(), 1};
  }
  bool is_symbolic_float() const {
    if (std::holds_alternative<Quotient>(value_)) return true;
    auto* e = std::get_if<Expr>(&value_);
    return e && !facts_->simplify(*e).is_const();
  }

  // Of a float that no quotient of sizes reaches.
  bool is_far() const {
    auto* d = std::get_if<double>(&value_);
    return d && std::abs(*d) > 0x1p60;
  }
  double place() const { return is_far() ? std::get<double>(value_) : 0.0; }

  static std::optional<Quotient> not_a_quotient(const Quotient&, const Quotient&) {
    return std::nullopt;
  }

  // Quotients that differ are different when they are rounded.
  static bool are_comparable(const Quotient& a, const Quotient& b) {
    constexpr int64_t kMostDivisor = 1024;
    auto small = [](Expr d) { return d.is_const() && d.value() <= kMostDivisor; };
    return small(a.d) && small(b.d);
  }
  std::optional<Quotient> smaller(const Quotient& a, const Quotient& b, bool smaller) const {
    if (!are_comparable(a, b)) return std::nullopt;
    return facts_->decide(sym::at_most(a.n * b.d, b.n * a.d)) == smaller ? a : b;
  }

  static int64_t rounded(double d) {
    if (!(std::abs(d) < 9e15))
      throw Unsupported("a size computed in floats that is not an integer");
    return static_cast<int64_t>(d);
  }

  Expr divisor(Expr b) const {
    if (facts_->decide(sym::equal(b, 0))) throw UserError("integer division or modulo by zero");
    return b;
  }

  template <class OnExprs, class OnFloats, class OnQuotients>
  SymNode arithmetic(const SymNode& other, OnExprs exprs, OnFloats floats, OnQuotients quotients) {
    const Node& o = of(other);
    if (is_expr() && o.is_expr()) return make(exprs(expr(), o.expr()));
    if (is_symbolic_float() || o.is_symbolic_float()) {
      const auto a = quotient(), b = o.quotient();
      if (a && b)
        if (std::optional<Quotient> q = quotients(*a, *b)) return make(*q);
    }
    return make(floats(as_float(), o.as_float()));
  }

  template <class OnExprs, class OnFloats>
  SymNode compare(const SymNode& other, OnExprs exprs, OnFloats floats) {
    const Node& o = of(other);
    if (is_bool() && std::holds_alternative<Condition>(o.value_)) {
      return make(
          sym::constant_condition(facts_->decide(condition()) == facts_->decide(o.condition())));
    }
    if (!is_expr() || !o.is_expr()) {
      // Every size is far from the ends.
      if (is_far() || o.is_far()) return make(sym::constant_condition(floats(place(), o.place())));
      const auto x = quotient(), y = o.quotient();
      if (x && y && are_comparable(*x, *y)) return make(exprs(x->n * y->d, y->n * x->d));
      return make(sym::constant_condition(floats(as_float(), o.as_float())));
    }
    Expr a = expr(), b = o.expr();
    // Every size is far from the ends.
    if (is_no_bound(a) || is_no_bound(b)) {
      auto place = [](Expr e) { return is_no_bound(e) ? (e.value() > 0 ? 1.0 : -1.0) : 0.0; };
      return make(sym::constant_condition(floats(place(a), place(b))));
    }
    return make(exprs(a, b));
  }

  template <class Holds>
  SymNode channels_last(Nodes sizes, Nodes strides, size_t rank, Holds holds) const {
    if (sizes.size() != rank) return make(sym::constant_condition(false));
    const std::vector<size_t> flat{1, 3, 2, 0}, deep{1, 4, 3, 2, 0};
    return make(holds(sizes, strides, rank == 4 ? flat : deep));
  }

  // Each dimension of `order`, from the innermost one, begins where the one before it ends.
  static Condition densely(Nodes sizes, Nodes strides, const std::vector<size_t>& order,
                           bool empty_is_dense = true) {
    Condition dense = sym::constant_condition(true), empty = sym::constant_condition(false);
    Expr expected = 1;
    for (size_t d : order) {
      Expr size = of(sizes[d]).expr();
      Condition fits = sym::equal(of(strides[d]).expr(), expected);
      Condition free = empty_is_dense ? sym::equal(size, 1) : sym::less(size, 2);
      dense = sym::both(dense, sym::either(free, fits));
      empty = sym::either(empty, sym::equal(size, 0));
      expected = expected * size;
    }
    return empty_is_dense ? sym::either(empty, dense) : dense;
  }

  // Strides grow in this order, each beyond what the inner dimensions reach; a tensor of one pixel
  // whose strides fit row-major order as well does not count.
  static Condition like_channels_last(Nodes sizes, Nodes strides,
                                      const std::vector<size_t>& order) {
    Condition like = sym::not_equal(of(strides[1]).expr(), 0);
    Expr reach = 0;
    for (size_t d : order) {
      Expr size = of(sizes[d]).expr(), stride = of(strides[d]).expr();
      like = sym::both(like, sym::both(sym::not_equal(size, 0), sym::at_most(reach, stride)));
      if (d == 0) like = sym::both(like, sym::not_equal(reach, of(strides[1]).expr()));
      reach = stride * sym::max(size, Expr(1));
    }
    return like;
  }

  // Dimensions by stride, those of less than two elements last. Where the order depends on the
  // sizes it becomes a fact.
  std::vector<size_t> by_stride(Nodes sizes, Nodes strides) const {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<bool> small;
    for (const SymNode& s : sizes) small.push_back(facts_->decide(sym::less(of(s).expr(), 2)));
    auto before = [&](size_t a, size_t b) {
      if (small[a] || small[b]) return !small[a] && small[b];
      return facts_->decide(sym::less(of(strides[a]).expr(), of(strides[b]).expr()));
    };
    std::stable_sort(order.begin(), order.end(), before);
    return order;
  }

  Value value_;
  std::shared_ptr<sym::ShapeFacts> facts_;
  bool of_layout_ = false;
};

class RuntimeNumber final : public c10::SymNodeImpl {
 public:
  RuntimeNumber(ir::ValueId value, bool integer, std::optional<double> stand_in)
      : value(value), stand_in(stand_in), integer_(integer) {}

  const ir::ValueId value;
  const std::optional<double> stand_in;

  bool is_int() override { return integer_; }
  bool is_float() override { return !integer_; }
  bool is_bool() override { return false; }
  bool has_hint() override { return false; }
  std::string str() override { return cat("number %", value.index); }
  SymNode clone() override { return SymNode::reclaim_copy(this); }
  int64_t guard_int(const char*, int64_t) override { refuse(); }
  double guard_float(const char*, int64_t) override { refuse(); }
  int64_t int_() override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw Unsupported("torch needs the value of a number that varies");
  }

  const bool integer_;
};

}  // namespace

c10::SymInt to_sym_int(Expr e, const std::shared_ptr<sym::ShapeFacts>& facts) {
  if (e.is_const()) return e.value();
  return c10::SymInt(SymNode(c10::make_intrusive<Node>(e, facts)));
}

Expr expr_of(const c10::SymInt& s) {
  if (!s.is_heap_allocated()) return Expr(s.as_int_unchecked());
  if (auto constant = s.maybe_as_int()) return Expr(*constant);
  return Node::of(*s.toSymNodeImplUnowned()).expr();
}

std::shared_ptr<sym::ShapeFacts> facts_of(const c10::SymInt& s) {
  if (!s.is_heap_allocated()) throw Unsupported("a plain number where a symbolic one is wanted");
  return Node::of(*s.toSymNodeImplUnowned()).facts();
}

c10::SymBool to_sym_bool(const Condition& c, const std::shared_ptr<sym::ShapeFacts>& facts) {
  return c10::SymBool(SymNode(c10::make_intrusive<Node>(c, facts)));
}

Condition condition_of(const c10::SymBool& s) {
  if (auto known = s.maybe_as_bool()) return sym::constant_condition(*known);
  return Node::of(s.toSymNodeImpl()).condition();
}

std::shared_ptr<sym::ShapeFacts> facts_of(const c10::SymBool& s) {
  if (!s.is_heap_allocated()) throw Unsupported("a plain truth where a symbolic one is wanted");
  return Node::of(s.toSymNodeImpl()).facts();
}

int64_t hint_of(const c10::SymInt& s) {
  if (auto constant = s.maybe_as_int()) return *constant;
  return sym::hint(expr_of(s));
}

c10::Scalar runtime_number(ir::ValueId value, bool integer, std::optional<double> stand_in) {
  SymNode node(c10::make_intrusive<RuntimeNumber>(value, integer, stand_in));
  return integer ? c10::Scalar(c10::SymInt(std::move(node)))
                 : c10::Scalar(c10::SymFloat(std::move(node)));
}

namespace {

c10::intrusive_ptr<RuntimeNumber> runtime_number_in(const c10::Scalar& s) {
  SymNode node;
  if (s.isSymInt()) node = s.toSymInt().toSymNode();
  if (s.isSymFloat()) node = s.toSymFloat().toSymNodeImpl();
  return c10::dynamic_intrusive_pointer_cast<RuntimeNumber>(node);
}

}  // namespace

std::optional<ir::ValueId> tensor_behind(const c10::Scalar& s) {
  const auto number = runtime_number_in(s);
  return number ? std::optional(number->value) : std::nullopt;
}

std::optional<std::pair<Expr, Expr>> quotient_in(const c10::Scalar& s) {
  if (!s.isSymFloat()) return std::nullopt;
  const SymNode node = s.toSymFloat().toSymNodeImpl();
  auto* ours = dynamic_cast<const Node*>(node.get());
  return ours ? ours->varying_quotient() : std::nullopt;
}

double stand_in_of(const c10::Scalar& s) {
  if (!s.isSymbolic()) return s.toDouble();
  const auto number = runtime_number_in(s);
  if (!number || !number->stand_in) throw Unsupported("a number that varies as a plain one");
  return *number->stand_in;
}

}  // namespace oxy::bridge
