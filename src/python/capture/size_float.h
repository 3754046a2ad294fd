// A float that Python computes of sizes (`n / 2`, `n * 0.7`, `n ** 0.5`, `(n - k) / 2 + 1`), as far
// as what it is rounded to, and how it compares with numbers, are expressions of the sizes: exactly
// those that Python's doubles give, their own rounding included. What that takes of the sizes (that
// they are far below 2^52) is decided like any other question about them.
#pragma once

#include <memory>
#include <optional>

#include "python/capture/numbers.h"
#include "symbolic/facts.h"

namespace oxy::python {

class SizeFloat {
 public:
  using Facts = std::shared_ptr<sym::ShapeFacts>;

  // a / b of ints. Nothing, here and below, where no expression gives it.
  static std::optional<SizeFloat> quotient(sym::Expr a, sym::Expr b, Facts facts);
  static std::optional<SizeFloat> product(sym::Expr x, double factor, Facts facts);
  static std::optional<SizeFloat> quotient_by_float(sym::Expr x, double divisor, Facts facts);
  static std::optional<SizeFloat> product_of_float(double x, sym::Expr y, Facts facts);
  static std::optional<SizeFloat> square_root(sym::Expr x, Facts facts);

  std::optional<SizeFloat> negated() const;
  // With a number whose binary digits are few.
  std::optional<SizeFloat> plus(double number) const;
  std::optional<SizeFloat> plus(sym::Expr number) const;
  std::optional<SizeFloat> times(double number) const;

  std::optional<sym::Expr> rounded(Rounding how) const;
  // `operation` is Python's: Py_LT and so on.
  std::optional<sym::Condition> compared(double number, int operation) const;
  std::optional<sym::Condition> compared(sym::Expr number, int operation) const;

  // Whether it is a quotient of ints, rounded.
  bool is_ratio() const { return form_ == Form::Quotient; }
  const Facts& facts() const { return facts_; }

 private:
  // fl(x / y); fl(x * factor), or fl(x / factor), over 2^shift; the root of x.
  enum class Form : uint8_t { Quotient, Product, QuotientByFloat, Root };

  SizeFloat(Form form, sym::Expr x, sym::Expr y, double factor, int shift, Facts facts)
      : form_(form), x_(x), y_(y), factor_(factor), shift_(shift), facts_(std::move(facts)) {}
  static std::optional<SizeFloat> by_float(Form form, sym::Expr x, double factor, Facts facts);
  // The floor, and the ceiling, of 2^bits times what there is in front of offset_.
  sym::Expr down(int bits) const;
  sym::Expr up(int bits) const;
  std::optional<sym::Condition> compared_in_parts(sym::Expr parts, int operation) const;

  Form form_;
  sym::Expr x_, y_;
  double factor_;
  int shift_;
  Facts facts_;
  int64_t offset_ = 0;  // behind all but a Quotient, in parts of 2^-kDigits
};

}  // namespace oxy::python
