// Doubles of sizes, in integers.
#include "python/capture/size_float.h"

#include <bit>
#include <cmath>

namespace oxy::python {
namespace {

// In front of it neither a quotient nor a root is rounded to an integer that it is not, or to the
// middle of two.
constexpr int64_t kMostExact = 1LL << 52, kMostExactSquare = 1LL << 46;
// What is added to a float, and compared with one, is a multiple of 2^-kDigits. A quotient of up to
// kMostParts over 2^kDigits is so far from those that it is not that two roundings reach none.
constexpr int kDigits = 10;
constexpr int64_t kMostParts = 1LL << 38, kMostPartsOfSquare = 1LL << 30;

bool lies_within(const SizeFloat::Facts& facts, sym::Expr e, int64_t most) {
  return facts->decide(sym::at_most(e, most)) && facts->decide(sym::at_most(-most, e));
}

// number * 2^bits, where that is an int below `most`.
std::optional<int64_t> in_parts(double number, int bits, int64_t most) {
  const double parts = std::ldexp(number, bits);
  if (parts != std::rint(parts) || !(std::abs(parts) < static_cast<double>(most)))
    return std::nullopt;
  return static_cast<int64_t>(parts);
}

// x / y, to the nearer integer, of two to the even one; y is positive.
sym::Expr nearest(sym::Expr x, sym::Expr y) {
  const sym::Expr twice = x + x + y, nearest = sym::floordiv(twice, y + y);
  if (y.is_const() && y.value() % 2 != 0) return nearest;
  const sym::Expr between = sym::Expr(1) - sym::min(1, sym::mod(twice, y + y));
  return nearest - between * sym::mod(nearest, 2);
}

}  // namespace

std::optional<SizeFloat> SizeFloat::quotient(sym::Expr a, sym::Expr b, Facts facts) {
  if (!lies_within(facts, a, kMostExact) || !lies_within(facts, b, kMostExact)) return std::nullopt;
  if (facts->decide(sym::equal(b, 0))) return std::nullopt;
  const sym::Expr sign = facts->decide(sym::less(b, 0)) ? -1 : 1;
  return SizeFloat(Form::Quotient, sign * a, sign * b, 0, 0, std::move(facts));
}

// A float of few digits is a quotient of ints itself.
constexpr int kFewDigits = 16;
constexpr int64_t kMostOfFew = 1LL << 32;

std::optional<SizeFloat> SizeFloat::product(sym::Expr x, double factor, Facts facts) {
  if (const auto whole = in_parts(factor, kFewDigits, kMostOfFew))
    return quotient(x * *whole, int64_t{1} << kFewDigits, std::move(facts));
  return by_float(Form::Product, x, factor, std::move(facts));
}

std::optional<SizeFloat> SizeFloat::quotient_by_float(sym::Expr x, double divisor, Facts facts) {
  if (divisor == 0) return std::nullopt;
  if (const auto whole = in_parts(divisor, kFewDigits, kMostOfFew))
    return quotient(x * (int64_t{1} << kFewDigits), *whole, std::move(facts));
  return by_float(Form::QuotientByFloat, x, divisor, std::move(facts));
}

std::optional<SizeFloat> SizeFloat::product_of_float(double x, sym::Expr y, Facts facts) {
  const auto whole = in_parts(x, kFewDigits, kMostOfFew);
  if (!whole) return std::nullopt;
  return quotient(*whole, y * (int64_t{1} << kFewDigits), std::move(facts));
}

// Powers of 2 go to the other side, which no rounding tells.
std::optional<SizeFloat> SizeFloat::by_float(Form form, sym::Expr x, double factor, Facts facts) {
  constexpr int kMostBits = 20;
  if (!std::isfinite(factor)) return std::nullopt;
  const bool product = form == Form::Product;
  const int exponent = std::ilogb(factor);
  if (std::abs(exponent) > kMostBits && !(product && exponent < 0)) return std::nullopt;
  // Products: what is left of the factor is below 2. Quotients: it lies from 1 to 2.
  const int taken = product ? std::max(0, exponent) : exponent;
  const int up = product ? taken : std::max(0, -taken);
  x = x * ((factor < 0 ? -1 : 1) * (int64_t{1} << up));
  if (!lies_within(facts, x, kMostExact)) return std::nullopt;
  return SizeFloat(form, x, 1, std::ldexp(std::abs(factor), -taken),
                   product ? 0 : std::max(0, taken), std::move(facts));
}

std::optional<SizeFloat> SizeFloat::square_root(sym::Expr x, Facts facts) {
  if (!facts->decide(sym::at_most(1, x)) || !facts->decide(sym::at_most(x, kMostExactSquare)))
    return std::nullopt;
  return SizeFloat(Form::Root, x, 1, 0, 0, std::move(facts));
}

sym::Expr SizeFloat::down(int bits) const {
  const sym::Expr x = x_ * (int64_t{1} << bits);
  switch (form_) {
    case Form::Quotient:
      return sym::floordiv(x, y_);
    case Form::Product:
      return sym::floordiv(sym::scale(x, factor_), int64_t{1} << shift_);
    case Form::QuotientByFloat:
      return sym::floordiv(sym::scale_down(x, factor_), int64_t{1} << shift_);
    case Form::Root:
      return sym::square_root(x * (int64_t{1} << bits));
  }
  OXY_FAIL("form of a float");
}

sym::Expr SizeFloat::up(int bits) const {
  if (form_ == Form::Root) return sym::square_root(x_ * (int64_t{1} << (2 * bits)) - 1) + 1;
  SizeFloat negative = *this;
  negative.x_ = -x_;
  return -negative.down(bits);
}

std::optional<SizeFloat> SizeFloat::negated() const {
  if (form_ == Form::Root || offset_ != 0) return std::nullopt;
  SizeFloat out = *this;
  out.x_ = -x_;
  return out;
}

std::optional<SizeFloat> SizeFloat::plus(sym::Expr number) const {
  if (form_ != Form::Quotient)
    return number.is_const() ? plus(static_cast<double>(number.value())) : std::nullopt;
  const sym::Expr added = number * y_;
  if (!lies_within(facts_, x_, kMostParts) || !lies_within(facts_, y_, kMostParts) ||
      !lies_within(facts_, added, kMostParts))
    return std::nullopt;
  return quotient(x_ + added, y_, facts_);
}

std::optional<SizeFloat> SizeFloat::plus(double number) const {
  const auto parts = in_parts(number, kDigits, 1LL << 30);
  if (!parts) return std::nullopt;
  if (number == 0) return *this;
  if (form_ == Form::Quotient) {
    const sym::Expr added = y_ * *parts;
    if (!lies_within(facts_, x_, kMostParts) || !lies_within(facts_, y_, kMostParts) ||
        !lies_within(facts_, added, kMostParts << kDigits))
      return std::nullopt;
    return quotient(x_ * (int64_t{1} << kDigits) + added, y_ * (int64_t{1} << kDigits), facts_);
  }
  // The root of an int up to 2^40 that is no integer is further from all of them than a sum with an
  // integer up to 2^20 is rounded.
  if (form_ == Form::Root) {
    constexpr int64_t kMostOfRoot = int64_t{1} << 40, kMostAdded = int64_t{1} << 20;
    if (number != std::rint(number) || std::abs(number) > kMostAdded || offset_ != 0 ||
        !facts_->decide(sym::at_most(x_, kMostOfRoot)) ||
        !facts_->decide(sym::at_most(-static_cast<int64_t>(number), down(0))))
      return std::nullopt;
    SizeFloat out = *this;
    out.offset_ = *parts;
    return out;
  }
  // The sum of a double from 1 on and less than 1 may be rounded where it passes a power of 2, but
  // to no integer from below; what is taken off one that is not less is exact.
  if (offset_ != 0 || !lies_within(facts_, x_, kMostParts)) return std::nullopt;
  const sym::Expr whole = down(0);
  if (!facts_->decide(sym::at_most(1, whole)) ||
      !facts_->decide(sym::at_most(whole, int64_t{1} << 40)) ||
      !facts_->decide(sym::at_most(-*parts, down(kDigits))))
    return std::nullopt;
  // More than that is rounded by less than one of the last two parts, which the sum must not reach.
  constexpr int64_t kParts = int64_t{1} << kDigits;
  if (number >= 1 &&
      !facts_->decide(sym::at_most(sym::mod(down(kDigits) + *parts, kParts), kParts - 2)))
    return std::nullopt;
  SizeFloat out = *this;
  out.offset_ = *parts;
  return out;
}

// What is not rounded itself, or only has another exponent then.
std::optional<SizeFloat> SizeFloat::times(double number) const {
  constexpr int kMostBits = 20;
  int exponent = 0;
  const bool power = std::frexp(number, &exponent) == 0.5 && std::abs(--exponent) <= kMostBits;
  if (offset_ != 0) return std::nullopt;
  if (form_ == Form::Product && power && exponent <= 0 && shift_ - exponent <= kMostBits) {
    SizeFloat out = *this;
    out.shift_ -= exponent;
    return out;
  }
  if (form_ != Form::Quotient) return std::nullopt;
  if (power)
    return quotient(x_ * (int64_t{1} << std::max(0, exponent)),
                    y_ * (int64_t{1} << std::max(0, -exponent)), facts_);
  const int64_t y = y_.is_const() ? y_.value() : 0;
  if (y < 1 || y >= int64_t{1} << kMostBits || !std::has_single_bit(static_cast<uint64_t>(y)))
    return std::nullopt;
  auto out = product(x_, number, facts_);
  if (out && out->form_ == Form::Quotient)
    out->y_ = out->y_ * y_;
  else if (out)
    out->shift_ += std::countr_zero(static_cast<uint64_t>(y));
  return out;
}

std::optional<sym::Expr> SizeFloat::rounded(Rounding how) const {
  if (offset_ != 0) {  // then it is not below 0
    if (how == Rounding::Down || how == Rounding::ToZero)
      return sym::floordiv(down(kDigits) + offset_, int64_t{1} << kDigits);
    if (how == Rounding::Up && (offset_ < 0 || form_ == Form::Root))
      return sym::ceildiv(up(kDigits) + offset_, int64_t{1} << kDigits);
    return std::nullopt;
  }
  if (how == Rounding::ToEven) {
    if (form_ == Form::Quotient) return nearest(x_, y_);
    if (form_ == Form::Root)  // an integer's is never in the middle of two
      return sym::floordiv(sym::square_root(x_ * 4) + 1, 2);
    const sym::Expr below = down(1), nearest = sym::floordiv(below + 1, 2);
    const sym::Expr between = (sym::Expr(1) - sym::min(1, up(1) - below)) * sym::mod(below, 2);
    return nearest - between * sym::mod(nearest, 2);
  }
  const bool upwards =
      how == Rounding::Up || (how == Rounding::ToZero && facts_->decide(sym::less(x_, 0)));
  return upwards ? up(0) : down(0);
}

std::optional<sym::Condition> SizeFloat::compared_in_parts(sym::Expr parts, int operation) const {
  const int64_t most = form_ == Form::Root ? kMostPartsOfSquare : kMostParts;
  if (offset_ != 0 || !lies_within(facts_, x_, most) || !lies_within(facts_, y_, most))
    return std::nullopt;
  const sym::Expr below = down(kDigits), above = up(kDigits);
  switch (operation) {
    case Py_LT:
      return sym::less(below, parts);
    case Py_LE:
      return sym::at_most(above, parts);
    case Py_GT:
      return sym::less(parts, above);
    case Py_GE:
      return sym::at_most(parts, below);
    default: {
      const sym::Condition is = sym::both(sym::equal(below, parts), sym::equal(above, parts));
      return operation == Py_EQ ? is : sym::negate(is);
    }
  }
}

std::optional<sym::Condition> SizeFloat::compared(double number, int operation) const {
  const auto parts = in_parts(number, kDigits, kMostParts);
  return parts ? compared_in_parts(*parts, operation) : std::nullopt;
}

std::optional<sym::Condition> SizeFloat::compared(sym::Expr number, int operation) const {
  if (!lies_within(facts_, number, kMostParts)) return std::nullopt;
  return compared_in_parts(number * (int64_t{1} << kDigits), operation);
}

}  // namespace oxy::python
