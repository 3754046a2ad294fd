// Operands in f32 multiply to the same sums.
#include "torch_bridge/wide_gemms.h"

#include <ATen/ops/bmm.h>
#include <torch/library.h>

namespace oxy::bridge {
namespace {

at::Tensor bmm_to_f32(const at::Tensor& self, const at::Tensor& mat2) {
  return at::bmm(self.to(at::kFloat), mat2.to(at::kFloat));
}

}  // namespace

void register_wide_gemms() {
  using torch::Library;
  [[maybe_unused]] static const Library& ops = *[] {
    auto* library = new Library(Library::FRAGMENT, "oxyfuel", std::nullopt, __FILE__, __LINE__);
    library->def(
        "bmm_to_f32(Tensor self, Tensor mat2) -> Tensor",
        torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(bmm_to_f32)));
    return library;
  }();
}

}  // namespace oxy::bridge
