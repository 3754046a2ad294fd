// Pieces of C++ text: lines, type names, index expressions, entries of the math table.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/types.h"
#include "ops/loop_builder.h"
#include "support/text.h"

namespace oxy::codegen::cpp {

// Lines with indentation.
class SourceWriter {
 public:
  template <class... A>
  void line(const A&... parts) {
    text_.append(static_cast<size_t>(2 * depth_), ' ');
    cat_to(text_, parts...);
    text_ += '\n';
  }
  // "head {", and the lines until close() deeper.
  template <class... A>
  void open(const A&... head) {
    line(head..., "{");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

// Type names: f32, i64, b8 for scalars, f32x8 for a vector of 8 lanes.
//
// The type that a value of `dtype` has in registers. bf16 is u16 (its bits); b8 in vectors is an
// i32 of 0 or -1 a lane.
std::string value_type(ir::DType dtype, int lanes);
// The type in memory, of one element.
std::string memory_type(ir::DType dtype);
// `name` with lanes: "f32", 8 -> "f32x8"; the name itself for one lane.
std::string with_lanes(std::string_view name, int lanes);
// "float" for "f32"; and so on.
std::string_view c_type(std::string_view name);
int element_bytes(std::string_view name);
// The name of the text's `number`-th buffer, loop variable, ...: "i7", and "i8_" where that would
// be the name of a type.
std::string numbered(char letter, size_t number);
// typedefs of all scalar types
std::string scalar_typedefs();

// An index expression, with the names that loop variables and symbols have in the text: arithmetic
// on i64. A quotient or remainder has a name too where that is not empty. Sums and products are in
// the order of their texts, so that equal kernels of layers whose expressions were made in another
// order print equally.
std::string index_text(sym::Expr e, const std::function<std::string(sym::Expr part)>& name);

// Where an op's function stands in the math table of a kernel (math.def).
// The row for f32 or f64 operands; nothing where the table has none.
std::optional<int> math_row(ops::LoopOp op, ir::DType dtype);

}  // namespace oxy::codegen::cpp
