// The table of what is saved, columns as wide as what stands in them.
#include <algorithm>
#include <array>

#include "autograd/partition.h"

namespace oxy::autograd {
namespace {

using Row = std::array<std::string, 5>;

std::string place(const Saved& s) {
  switch (s.kind) {
    case Saved::Kind::Primal:
      return cat("primal ", s.index);
    case Saved::Kind::Result:
      return cat("result ", s.index);
    default:
      return cat("output ", s.index);
  }
}

}  // namespace

std::string print(const std::vector<Saved>& saved) {
  std::vector<Row> rows = {{"saved", "where", "type", "bytes", "reason"}};
  int64_t kept = 0;
  for (const Saved& s : saved) {
    rows.push_back({s.name, place(s), ir::print(s.type), cat(s.bytes), s.reason});
    if (s.kind == Saved::Kind::Value) kept += s.bytes;
  }
  std::array<size_t, 4> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i)
      out += row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
    out += row.back() + "\n";
  }
  return out + cat("kept for the backward alone: ", kept, " bytes\n");
}

}  // namespace oxy::autograd
