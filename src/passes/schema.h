// The parameters in the schema of a row of the op table.
#pragma once

#include <string_view>
#include <vector>

namespace oxy::passes {

struct Param {
  std::string_view type;  // "Tensor(a)", "int[1]?"
  std::string_view name;
  // A dimension or list of dimensions, by the name that ATen gives it.
  bool is_dim() const;
};

// In order, keyword-only ones included.
std::vector<Param> params_of(std::string_view schema);
bool same_names(const std::vector<Param>& a, const std::vector<Param>& b);

}  // namespace oxy::passes
