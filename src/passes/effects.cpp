// Traits of nodes.
#include "passes/effects.h"

#include <algorithm>
#include <array>

#include "ops/op_table.h"

namespace oxy::passes {
namespace {

// ATen's functional ops that draw from a generator, by torch's own tag, as the fallback for ops
// without a row. Sorted.
constexpr std::string_view kRandom[] = {"_cudnn_attention_backward",
                                        "_cudnn_attention_forward",
                                        "_cudnn_init_dropout_state",
                                        "_cudnn_rnn",
                                        "_efficient_attention_forward",
                                        "_flash_attention_forward",
                                        "_fused_dropout",
                                        "_fused_sdp_choice",
                                        "_sample_dirichlet",
                                        "_scaled_dot_product_attention_math",
                                        "_scaled_dot_product_cudnn_attention",
                                        "_scaled_dot_product_efficient_attention",
                                        "_scaled_dot_product_flash_attention",
                                        "_scaled_dot_product_flash_attention_for_cpu",
                                        "_scaled_dot_product_fused_attention_overrideable",
                                        "_standard_gamma",
                                        "alpha_dropout",
                                        "bernoulli",
                                        "binomial",
                                        "cauchy",
                                        "dropout",
                                        "exponential",
                                        "feature_alpha_dropout",
                                        "feature_dropout",
                                        "geometric",
                                        "gru",
                                        "log_normal",
                                        "lstm",
                                        "miopen_rnn",
                                        "multinomial",
                                        "native_dropout",
                                        "normal",
                                        "normal_functional",
                                        "poisson",
                                        "rand",
                                        "rand_like",
                                        "randint",
                                        "randint_like",
                                        "randn",
                                        "randn_like",
                                        "random",
                                        "randperm",
                                        "rnn_relu",
                                        "rnn_tanh",
                                        "rrelu",
                                        "rrelu_with_noise_functional",
                                        "scaled_dot_product_attention",
                                        "uniform"};
static_assert(std::ranges::is_sorted(kRandom));

struct Name {
  std::string_view space, op;
};

Name split(std::string_view target) {
  size_t first = target.find('.'), second = target.find('.', first + 1);
  return {target.substr(0, first), target.substr(first + 1, second - first - 1)};
}

bool is_known_space(std::string_view space) { return space == "aten" || space == "prims"; }

bool is_random(std::string_view target) {
  Name name = split(target);
  return is_known_space(name.space) && std::ranges::binary_search(kRandom, name.op);
}

}  // namespace

bool is_removable(const ir::Node& n) {
  if (n.kind != ir::NodeKind::CallOp || n.outputs.empty()) return false;
  if (const ops::OpInfo* info = ops::find(n)) return !info->has(ops::Random | ops::Effect);
  return !is_random(n.target);
}

bool is_mergeable(const ir::Node& n) {
  if (!is_removable(n)) return false;
  const ops::OpInfo* info = ops::find(n);
  if (info == nullptr) return is_known_space(split(n.target).space);
  // A creation op that no loop can express leaves its memory as it finds it.
  return !info->has(ops::Creation) || info->element != nullptr;
}

}  // namespace oxy::passes
