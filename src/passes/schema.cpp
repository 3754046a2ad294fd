// Reading "(Tensor self, int[] dims, *, bool keepdim=False) -> Tensor".
#include "passes/schema.h"

#include <algorithm>

namespace oxy::passes {
namespace {

// "int dim=0" to its type and name; the type may contain spaces ("Tensor(a -> *)"), the name does
// not.
Param param_of(std::string_view text) {
  text = text.substr(0, text.find('='));
  size_t space = text.rfind(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

bool Param::is_dim() const {
  return type.starts_with("int") &&
         (name.starts_with("dim") || name == "start_dim" || name == "end_dim");
}

std::vector<Param> params_of(std::string_view schema) {
  std::vector<Param> out;
  int depth = 0;
  size_t begin = 1;
  for (size_t i = 0; i < schema.size(); ++i) {
    char c = schema[i];
    depth += c == '(' || c == '[';
    depth -= c == ')' || c == ']';
    bool ends = depth == 0 || (depth == 1 && c == ',');
    if (!ends) continue;
    std::string_view text = schema.substr(begin, i - begin);
    if (!text.empty() && text != "*") out.push_back(param_of(text));
    if (depth == 0) break;
    begin = i + 1;
    while (begin < schema.size() && schema[begin] == ' ') ++begin;
  }
  return out;
}

bool same_names(const std::vector<Param>& a, const std::vector<Param>& b) {
  return std::ranges::equal(a, b, {}, &Param::name, &Param::name);
}

}  // namespace oxy::passes
