// "oxyfuel.bmm_to_f32" (ops/contraction.h) for torch's dispatcher: what runs where none of our
// kernels does.
#pragma once

namespace oxy::bridge {

void register_wide_gemms();

}  // namespace oxy::bridge
