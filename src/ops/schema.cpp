// Taking a schema apart.
#include "ops/schema.h"

namespace oxy::ops {

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
    text = text.substr(0, text.find('='));
    // The type may contain spaces ("Tensor(a -> *)"), the name does not.
    const size_t space = text.rfind(' ');
    if (!text.empty() && text != "*")
      out.push_back({text.substr(0, space), text.substr(space + 1)});
    if (depth == 0) break;
    begin = schema.find_first_not_of(' ', i + 1);
  }
  return out;
}

}  // namespace oxy::ops
