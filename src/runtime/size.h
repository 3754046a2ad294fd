// A number of a Plan while that is made: a constant, or a slot of the size program that is being
// written. It knows its value at the hints, by which whoever makes the plan decides.
//
// Arithmetic on constants is done at once, any other appends to the program. Conditions are 0 or 1.
#pragma once

#include <concepts>
#include <string>

#include "runtime/size_program.h"

namespace oxy::runtime {

class Size {
 public:
  template <std::integral T>
  constexpr Size(T value) : hint_(static_cast<int64_t>(value)) {}  // NOLINT: a number is a size
  constexpr Size() = default;
  Size(SizeBuilder& builder, Slot slot, int64_t hint);

  bool is_constant() const { return builder_ == nullptr; }
  bool is_constant(int64_t value) const { return is_constant() && hint_ == value; }
  int64_t hint() const { return hint_; }
  int64_t constant() const;  // InternalError where it is none
  Slot slot(SizeBuilder& builder) const { return is_constant() ? builder.constant(hint_) : slot_; }

  friend bool operator==(const Size&, const Size&) = default;
  friend Size binary(SizeOp op, const Size& a, const Size& b);

 private:
  int64_t hint_ = 0;
  SizeBuilder* builder_ = nullptr;
  Slot slot_;
};

inline Size operator+(const Size& a, const Size& b) { return binary(SizeOp::Add, a, b); }
inline Size operator*(const Size& a, const Size& b) { return binary(SizeOp::Mul, a, b); }
inline Size operator-(const Size& a, const Size& b) { return a + Size(-1) * b; }
inline Size operator/(const Size& a, const Size& b) { return binary(SizeOp::FloorDiv, a, b); }
inline Size operator%(const Size& a, const Size& b) { return binary(SizeOp::Mod, a, b); }
inline Size min(const Size& a, const Size& b) { return binary(SizeOp::Min, a, b); }
inline Size max(const Size& a, const Size& b) { return binary(SizeOp::Max, a, b); }
inline Size is_equal(const Size& a, const Size& b) { return binary(SizeOp::Equal, a, b); }
inline Size is_less(const Size& a, const Size& b) { return binary(SizeOp::Less, a, b); }
inline Size is_at_most(const Size& a, const Size& b) { return binary(SizeOp::LessEqual, a, b); }

Size ceil_div(const Size& a, const Size& b);
Size clamp(const Size& x, const Size& low, const Size& high);
Size select(const Size& condition, const Size& yes, const Size& no);

void append(std::string& out, const Size& s);  // its value at the hints

}  // namespace oxy::runtime
