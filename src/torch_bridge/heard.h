// How many ops the recordings of this thread have heard, and how many of them draw random numbers.
#pragma once

#include <cstddef>

namespace oxy::bridge {

struct Heard {
  size_t ops = 0, draws = 0;
};
Heard heard();

}  // namespace oxy::bridge
