// The arena and hash table of a pool, and what is known of a node when it is made (range, factor,
// symbols).
#include <numeric>

#include "symbolic/node.h"

namespace oxy::sym {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kFirstTableSize = 1024;

uint64_t hash_of(Kind kind, std::span<const Expr> operands) {
  uint64_t h = 0x9E3779B97F4A7C15ull * (static_cast<uint64_t>(kind) + 1);
  for (Expr e : operands) {
    h = (h ^ e.bits()) * 0xFF51AFD7ED558CCDull;
    h ^= h >> 32;
  }
  return h;
}

int64_t factor_of(Expr e) { return e.is_const() ? e.value() : e.node()->factor; }

Range range_of_product(std::span<const Expr> factors) {
  Range product{1, 1};
  for (size_t i = 0, next; i < factors.size(); i = next) {
    Range factor = range_of(factors[i]);
    Range power = factor;
    for (next = i + 1; next < factors.size() && factors[next] == factors[i]; ++next)
      power = multiply_ranges(power, factor);
    if ((next - i) % 2 == 0) power.lo = std::max<int64_t>(power.lo, 0);
    product = multiply_ranges(product, power);
  }
  return product;
}

Range range_from_operands(const ExprNode& n) {
  const Expr* ops = n.operand_data();
  Range r = range_of(ops[0]);
  switch (n.kind) {
    case Kind::Add:
      if (n.has_division) return range_of_sum(sum_of(n.operands()));
      for (uint32_t i = 1; i < n.arity; ++i) r = add_ranges(r, range_of(ops[i]));
      return r;
    case Kind::Mul:
      return range_of_product(n.operands());
    case Kind::FloorDiv:
      return floordiv_range(r, range_of(ops[1]));
    case Kind::Mod:
      return mod_range(r, range_of(ops[1]));
    case Kind::Min:
      return {std::min(r.lo, range_of(ops[1]).lo), std::min(r.hi, range_of(ops[1]).hi)};
    case Kind::Max:
      return {std::max(r.lo, range_of(ops[1]).lo), std::max(r.hi, range_of(ops[1]).hi)};
    case Kind::Root:
      return root_range(r);
    case Kind::Scale:
      return scaled_range(r, ops[1].value());
    case Kind::Power:
      return power_range(ops[0].value(), range_of(ops[1]));
    case Kind::Digits:
      return digits_range(r, ops[1].value());
    case Kind::BitAnd:
      return bit_and_range(r, range_of(ops[1]));
    default:
      return {};
  }
}

int64_t power_of_2_in(int64_t factor) { return std::max<int64_t>(factor & -factor, 1); }

int64_t factor_from_operands(const ExprNode& n) {
  int64_t f = factor_of(n.operand_data()[0]);
  switch (n.kind) {
    case Kind::FloorDiv:
    case Kind::Root:
    case Kind::Scale:
    case Kind::Power:
    case Kind::Digits:
      return 1;
    case Kind::BitAnd:  // bits that are clear in an operand
      return std::max(power_of_2_in(f), power_of_2_in(factor_of(n.operand_data()[1])));
    default:
      break;
  }
  for (Expr e : n.operands().subspan(1))
    if (n.kind != Kind::Mul)
      f = std::gcd(f, factor_of(e));
    else if (__builtin_mul_overflow(f, factor_of(e), &f))
      return 1;
  return f < 0 ? -f : f;
}

}  // namespace

void Expr::constant_overflow() { OXY_FAIL("a constant of a symbolic expression leaves 62 bits"); }

ExprPool::ExprPool() : impl_(std::make_unique<Impl>()) {}
ExprPool::~ExprPool() = default;

Expr ExprPool::symbol(std::string_view name, Range range, std::optional<int64_t> hint,
                      Origin origin) {
  return impl_->make_symbol(name, range, hint, origin);
}

std::optional<Expr> ExprPool::find_symbol(std::string_view name) const {
  auto it = impl_->by_name.find(name);
  if (it == impl_->by_name.end()) return std::nullopt;
  return impl_->symbol_exprs[it->second];
}

size_t ExprPool::symbol_count() const { return impl_->symbols.size(); }

ExprPool::Impl::Impl() : table_(kFirstTableSize), memo_(std::make_unique<Memo[]>(kMemoSize)) {}

ExprNode* ExprPool::Impl::allocate(size_t operand_count) {
  size_t bytes = sizeof(ExprNode) + operand_count * sizeof(Expr);
  if (static_cast<size_t>(chunk_end_ - next_) < bytes) {
    size_t size = std::max(bytes, kChunkBytes);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    next_ = chunks_.back().get();
    chunk_end_ = next_ + size;
  }
  ExprNode* n = new (next_) ExprNode{};
  n->handle = Expr(n);
  n->pool = this;
  n->base = n;
  next_ += bytes;
  return n;
}

void ExprPool::Impl::grow() {
  std::vector<ExprNode*> bigger(table_.size() * 2);
  size_t mask = bigger.size() - 1;
  for (ExprNode* n : table_) {
    if (!n) continue;
    size_t i = n->hash & mask;
    while (bigger[i]) i = (i + 1) & mask;
    bigger[i] = n;
  }
  table_.swap(bigger);
}

Expr ExprPool::Impl::intern(Kind kind, std::span<const Expr> operands) {
  uint64_t hash = hash_of(kind, operands);
  size_t mask = table_.size() - 1;
  size_t i = hash & mask;
  for (; table_[i]; i = (i + 1) & mask) {
    const ExprNode* n = table_[i];
    if (n->hash == hash && n->kind == kind && n->arity == operands.size() &&
        std::equal(operands.begin(), operands.end(), n->operand_data())) {
      return Expr(n);
    }
  }
  ExprNode* n = allocate(operands.size());
  n->kind = kind;
  n->arity = static_cast<uint32_t>(operands.size());
  n->hash = hash;
  std::copy(operands.begin(), operands.end(), n->operand_data());
  n->has_division = kind == Kind::FloorDiv || kind == Kind::Mod;
  for (Expr e : operands) {
    if (e.is_const()) continue;
    n->symbol_mask |= e.node()->symbol_mask;
    n->origin = std::max(n->origin, e.node()->origin);
    if (kind == Kind::Add || kind == Kind::Mul) n->has_division |= e.node()->has_division;
  }
  if (kind == Kind::Mul && operands[0].is_const()) {
    n->coefficient = operands[0].value();
    n->base = operands.size() == 2 ? operands[1].node() : nullptr;
  }
  n->range = range_from_operands(*n);
  n->factor = factor_from_operands(*n);
  table_[i] = n;
  if (++count_ * 2 > table_.size()) grow();
  // Only now, as it may grow the table under the slot that was found.
  if (!n->base) n->base = intern(Kind::Mul, operands.subspan(1)).node();
  return Expr(n);
}

Expr ExprPool::Impl::make_symbol(std::string_view name, Range range, std::optional<int64_t> hint,
                                 Origin origin) {
  if (auto it = by_name.find(name); it != by_name.end()) {
    Expr known = symbol_exprs[it->second];
    OXY_CHECK(known.node()->range == range, "symbol ", name, " has another range");
    if (hint) symbols[it->second].hint = hint;
    return known;
  }
  OXY_CHECK(range.lo <= range.hi, "symbol ", name, " has an empty range");
  auto index = static_cast<uint32_t>(symbols.size());
  symbols.push_back({std::string(name), hint});
  by_name.emplace(symbols.back().name, index);
  ExprNode* n = allocate(0);
  n->kind = Kind::Symbol;
  n->symbol = index;
  n->origin = origin;
  n->symbol_mask = uint64_t{1} << (index % 64);
  n->range = range;
  symbol_exprs.push_back(Expr(n));
  return symbol_exprs.back();
}

Range range_of(Expr e) { return e.is_const() ? Range{e.value(), e.value()} : e.node()->range; }

Origin origin_of(Expr e) { return e.is_const() ? Origin::Hinted : e.node()->origin; }

Kind Expr::kind() const { return is_const() ? Kind::Const : node()->kind; }
uint32_t Expr::symbol_index() const { return node()->symbol; }
const std::string& Expr::name() const { return node()->pool->symbols[node()->symbol].name; }
std::span<const Expr> Expr::operands() const {
  return is_const() ? std::span<const Expr>{} : node()->operands();
}

int compare(Expr a, Expr b) {
  if (a == b) return 0;
  if (a.is_const() || b.is_const()) {
    if (!a.is_const()) return 1;
    if (!b.is_const()) return -1;
    return a.value() < b.value() ? -1 : 1;
  }
  const ExprNode &x = *a.node(), &y = *b.node();
  if (x.kind != y.kind) return x.kind < y.kind ? -1 : 1;
  if (x.kind == Kind::Symbol) return x.symbol < y.symbol ? -1 : 1;
  if (x.arity != y.arity) return x.arity < y.arity ? -1 : 1;
  for (uint32_t i = 0; i < x.arity; ++i)
    if (int c = compare(x.operand_data()[i], y.operand_data()[i])) return c;
  return 0;
}

bool operator<(Expr a, Expr b) { return compare(a, b) < 0; }

}  // namespace oxy::sym
