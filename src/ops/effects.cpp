// Ops of which only the traits are known: random ones, ones with an effect, ones whose result's
// shape depends on data, and ones that read no data at all.
#include "ops/families.h"

namespace oxy::ops {
namespace {

constexpr OpInfo kRows[] = {
#include "ops/effects.def"
};

}  // namespace

std::span<const OpInfo> effect_ops() { return kRows; }

}  // namespace oxy::ops
