// The op table: the families' rows in one sorted array, found by name.
#include "ops/op_table.h"

#include <algorithm>
#include <unordered_map>

#include "ops/families.h"
#include "ops/schema.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

// Ops of which only the traits are known.
constexpr OpInfo kEffects[] = {
#include "ops/effects.def"
};

struct Table {
  std::vector<OpInfo> rows;
  std::unordered_map<std::string_view, const OpInfo*> by_name;

  Table() {
    for (FamilyRows family : {pointwise_ops(),
                              activation_ops(),
                              activation_gradient_ops(),
                              view_ops(),
                              view_gradient_ops(),
                              creation_ops(),
                              reduction_ops(),
                              normalization_ops(),
                              normalization_gradient_ops(),
                              indexing_ops(),
                              scatter_ops(),
                              contraction_ops(),
                              contraction_gradient_ops(),
                              ordering_ops(),
                              linear_algebra_ops(),
                              distance_ops(),
                              special_ops(),
                              approximation_ops(),
                              loss_ops(),
                              loss_gradient_ops(),
                              rearrange_ops(),
                              window_ops(),
                              window_gradient_ops(),
                              sampling_ops(),
                              quantization_ops(),
                              FamilyRows(kEffects)}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    std::ranges::sort(rows, {}, &OpInfo::name);
    for (const OpInfo& row : rows) {
      OXY_CHECK(by_name.emplace(row.name, &row).second, "two rows for ", row.name);
    }
  }
};

// Built once, read by every thread.
const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

const OpInfo* find(std::string_view name) {
  const auto row = table().by_name.find(name);
  return row == table().by_name.end() ? nullptr : row->second;
}

std::span<const OpInfo> all_ops() { return table().rows; }

bool has_unknown_number(const ir::Graph& g, const ir::Node& n, const OpInfo& info) {
  if (info.has(RuntimeNumber)) return false;
  auto may_be_number = [&](const ir::Arg& a) {
    if (!a.is_value()) return false;
    const ir::Type& t = g.value(a.value()).type;
    return t.is_tensor() && t.tensor.sizes.empty();
  };
  if (std::ranges::none_of(n.args, may_be_number)) return false;
  const std::vector<Param> params = params_of(info.schema);
  for (size_t i = 0; i < std::min(n.args.size(), params.size()); ++i)
    if (params[i].is_number() && may_be_number(n.args[i])) return true;
  return false;
}

bool rules_hold(const ir::Graph& g, const ir::Node& n, const OpInfo& info) {
  return !has_unknown_number(g, n, info) && (!info.applies || info.applies(g, n));
}

}  // namespace oxy::ops
