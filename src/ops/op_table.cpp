// The op table: the families' rows in one sorted array, found by hash.
#include "ops/op_table.h"

#include <algorithm>
#include <bit>

#include "ops/families.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

// Open addressing over a power of two of slots, at most half full. Built once, read by every
// thread.
class Table {
 public:
  Table() {
    for (auto family :
         {pointwise_ops(),      activation_ops(), blend_ops(),         view_ops(),
          creation_ops(),       reduction_ops(),  normalization_ops(), indexing_ops(),
          scatter_ops(),        matmul_ops(),     special_ops(),       bessel_ops(),
          error_function_ops(), polynomial_ops(), loss_ops(),          rearrange_ops(),
          window_ops(),         sampling_ops(),   scan_ops(),          function_ops(),
          effect_ops()}) {
      rows_.insert(rows_.end(), family.begin(), family.end());
    }
    std::sort(rows_.begin(), rows_.end(),
              [](const OpInfo& a, const OpInfo& b) { return a.name < b.name; });
    slots_.assign(std::bit_ceil(rows_.size() * 4), -1);
    for (size_t i = 0; i < rows_.size(); ++i) {
      OXY_CHECK(i == 0 || rows_[i].name != rows_[i - 1].name, "two rows for ", rows_[i].name);
      size_t slot = start(rows_[i].name);
      while (slots_[slot] >= 0) slot = next(slot);
      slots_[slot] = static_cast<int32_t>(i);
    }
  }

  const OpInfo* find(std::string_view name) const {
    for (size_t slot = start(name); slots_[slot] >= 0; slot = next(slot)) {
      const OpInfo& row = rows_[static_cast<size_t>(slots_[slot])];
      if (row.name == name) return &row;
    }
    return nullptr;
  }

  std::span<const OpInfo> rows() const { return rows_; }

 private:
  size_t start(std::string_view name) const {
    return std::hash<std::string_view>()(name) & (slots_.size() - 1);
  }
  size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }

  std::vector<OpInfo> rows_;
  std::vector<int32_t> slots_;
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

const OpInfo* find(std::string_view name) { return table().find(name); }

std::span<const OpInfo> all_ops() { return table().rows(); }

}  // namespace oxy::ops
