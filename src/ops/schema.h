// The parameters of a schema, as the op table has it.
#pragma once

#include <string_view>
#include <vector>

namespace oxy::ops {

struct Param {
  std::string_view type;  // "Tensor(a)", "int[1]?"
  std::string_view name;

  // A dimension or list of dimensions, by the name that ATen gives it.
  bool is_dim() const {
    return type.starts_with("int") &&
           (name.starts_with("dim") || name == "start_dim" || name == "end_dim");
  }
  bool is_number() const { return type.starts_with("float") || type.starts_with("Scalar"); }
};

// Those of "(Tensor self, int[] dims, *, bool keepdim=False) -> Tensor" in order, keyword-only ones
// included.
std::vector<Param> params_of(std::string_view schema);

}  // namespace oxy::ops
