// A LoopOp on scalars or on vectors as the right-hand side of a statement.
#pragma once

#include <string>
#include <vector>

#include "codegen/cpp/cpp_text.h"
#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

struct Operand {
  std::string text;  // a name or a call on names; a vector where the statement is one
  ir::DType dtype = ir::DType::F32;
};

class OperatorText {
 public:
  // `active`: how many lanes are in use (integer division looks at these only).
  OperatorText(Prelude& prelude, int lanes, std::string active)
      : prelude_(prelude), lanes_(lanes), active_(std::move(active)) {}

  // Every op but leaves and effects. Half-precision operands are computed in f32 and the result is
  // rounded.
  std::string apply(ops::LoopOp op, ir::DType result, const std::vector<Operand>& args);
  std::string cast(const Operand& x, ir::DType to);
  std::string constant(double number, int64_t integer, ir::DType dtype);
  std::string splat(const std::string& scalar, ir::DType dtype);
  std::string select(const std::string& mask, const std::string& a, const std::string& b,
                     ir::DType dtype);

 private:
  std::string type(ir::DType dtype);
  std::string fn(std::string_view piece, ir::DType dtype);
  std::string call(std::string_view piece, ir::DType dtype, const std::string& args);
  std::string arithmetic(ops::LoopOp op, ir::DType dtype, const std::string& a,
                         const std::string& b);
  std::string float_division(ops::LoopOp op, ir::DType dtype, const std::string& a,
                             const std::string& b);
  std::string of_sign_bit(ops::LoopOp op, ir::DType dtype, const std::string& x);
  std::string unary(ops::LoopOp op, ir::DType dtype, const std::string& x);
  std::string compare(ops::LoopOp op, const Operand& a, const Operand& b);
  std::string bool_compare(ops::LoopOp op, const std::string& a, const std::string& b);
  std::string logic(ops::LoopOp op, ir::DType dtype, const std::vector<Operand>& args);
  std::string kind_of_number(ops::LoopOp op, const Operand& x);
  std::string iterated(ops::LoopOp op, ir::DType dtype, const std::vector<Operand>& args);
  std::string math(ops::LoopOp op, ir::DType dtype, const std::vector<Operand>& args);
  std::string used(const std::string& x, ir::DType dtype);
  std::string convert(const std::string& x, ir::DType from, ir::DType to);
  std::string bitcast(const Operand& x, ir::DType to);
  std::string truth(const Operand& x);
  std::string table_entry(ops::LoopOp op, ir::DType dtype);

  Prelude& prelude_;
  int lanes_;
  std::string active_;
};

}  // namespace oxy::codegen::cpp
