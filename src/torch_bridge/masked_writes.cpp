// Assignments through a mask as choices.
#include "torch_bridge/masked_writes.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace oxy::bridge {

std::optional<at::Tensor> chosen_by_mask(c10::ArrayRef<c10::IValue> args) {
  const at::Tensor& self = args[0].toTensor();
  at::Tensor values = args[2].toTensor();
  if (!c10::GradMode::is_enabled() || !values.requires_grad()) return {};
  const auto indices = args[1].toOptionalTensorVector();
  // Whole dimensions, then a mask of some dimensions.
  if (indices.empty() || !indices.back()) return {};
  if (std::any_of(indices.begin(), indices.end() - 1,
                  [](const auto& i) { return i && i->defined(); }))
    return {};
  const at::Tensor& mask = *indices.back();
  const auto whole = static_cast<int64_t>(indices.size()) - 1;
  if (!mask.defined() || mask.scalar_type() != at::kBool || mask.dim() == 0 ||
      whole + mask.dim() > self.dim() || values.scalar_type() != self.scalar_type() ||
      values.device() != self.device() || mask.device() != self.device())
    return {};
  for (int64_t d = 0; d < mask.dim(); ++d)
    if (mask.sym_size(d) != self.sym_size(whole + d)) return {};
  const int64_t rest = self.dim() - whole - mask.dim();
  // One for all that the mask picks.
  if (values.dim() == rest + 1 && values.sym_size(0).maybe_as_int() == 1)
    values = values.squeeze(0);
  if (values.dim() > rest) return {};
  for (int64_t d = 1; d <= values.dim(); ++d)
    if (values.sym_size(-d) != 1 && values.sym_size(-d) != self.sym_size(-d)) return {};
  at::Tensor choice = mask;
  for (int64_t d = 0; d < rest; ++d) choice = choice.unsqueeze(-1);
  const bool accumulate = args[3].toBool();
  return at::where(choice, accumulate ? at::add(self, values) : values, self);
}

}  // namespace oxy::bridge
