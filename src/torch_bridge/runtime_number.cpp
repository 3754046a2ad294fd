// A SymNode that answers questions about its type and refuses those about its value.
#include "torch_bridge/runtime_number.h"

#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include "support/check.h"

namespace oxy::bridge {
namespace {

class Number final : public c10::SymNodeImpl {
 public:
  Number(ir::ValueId value, bool integer) : value(value), integer_(integer) {}

  const ir::ValueId value;

  bool is_int() override { return integer_; }
  bool is_float() override { return !integer_; }
  bool is_bool() override { return false; }
  bool has_hint() override { return false; }
  std::string str() override { return cat("number %", value.index); }
  c10::SymNode clone() override { return c10::SymNode::reclaim_copy(this); }
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

c10::Scalar runtime_number(ir::ValueId value, bool integer) {
  c10::SymNode node(c10::make_intrusive<Number>(value, integer));
  return integer ? c10::Scalar(c10::SymInt(std::move(node)))
                 : c10::Scalar(c10::SymFloat(std::move(node)));
}

std::optional<ir::ValueId> tensor_behind(const c10::Scalar& s) {
  c10::SymNode node;
  if (s.isSymInt()) node = s.toSymInt().toSymNode();
  if (s.isSymFloat()) node = s.toSymFloat().toSymNodeImpl();
  auto* number = dynamic_cast<const Number*>(node.get());
  return number ? std::optional(number->value) : std::nullopt;
}

}  // namespace oxy::bridge
