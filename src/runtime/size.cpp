// Arithmetic on constants and slots.
#include "runtime/size.h"

#include "support/check.h"
#include "support/text.h"

namespace oxy::runtime {

Size::Size(SizeBuilder& builder, Slot slot, int64_t hint) : hint_(hint) {
  if (builder.program().is_constant(slot)) {
    hint_ = builder.program().constant(slot);
    return;
  }
  builder_ = &builder;
  slot_ = slot;
}

int64_t Size::constant() const {
  OXY_CHECK(is_constant(), "a size that is no constant, ", hint_, " at the hints");
  return hint_;
}

Size binary(SizeOp op, const Size& a, const Size& b) {
  const int64_t hint = apply(op, a.hint_, b.hint_);
  SizeBuilder* builder = a.builder_ ? a.builder_ : b.builder_;
  if (!builder) return hint;
  return {*builder, builder->binary(op, a.slot(*builder), b.slot(*builder)), hint};
}

Size ceil_div(const Size& a, const Size& b) { return (a + b - 1) / b; }

Size clamp(const Size& x, const Size& low, const Size& high) { return min(max(x, low), high); }

Size select(const Size& condition, const Size& yes, const Size& no) {
  if (condition.is_constant()) return condition.is_constant(0) ? no : yes;
  return no + condition * (yes - no);
}

void append(std::string& out, const Size& s) { oxy::append(out, s.hint()); }

}  // namespace oxy::runtime
