// Random ops whose numbers we draw ourselves, from torch's generator and as torch does: the same
// numbers, and the generator is left in the same state.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

namespace oxy::bridge {

// Takes the arguments of the op off the stack and puts its result there; false, and nothing has
// happened, where torch is to run it.
using OwnDraw = bool (*)(torch::jit::Stack& stack);

// nullptr where the op is none of them, or torch draws in another way here (on Intel's processors
// by MKL): that is asked once, by drawing from generators of equal seeds.
OwnDraw own_draw_of(std::string_view op);

}  // namespace oxy::bridge
