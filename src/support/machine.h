// The machine that code is made for: what passes, the scheduler and the emitters ask instead of
// knowing one.
//
// Made once, from the host or from a text, and passed down as a const reference. What follows from
// it for a rule stands in tuning.h. A text says what differs from the default machine; entries are
// separated by commas or lines, `#` begins a comment:
//   plain, avx2, l1 32K, l2 512K, l3 16M / 8, threads 16, line 64, page 4096, no onednn
// Instruction sets come one by one; `plain` takes all of them away. Kernels use the widest vectors
// that there are, or those of `vectors 32`. Behind a cache's size stands how many threads share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oxy {

struct Cache {
  int64_t bytes = 0;  // 0: there is none
  int64_t shared_by = 1;
  friend bool operator==(const Cache&, const Cache&) = default;
};

struct Machine {
  int vector_bytes =
      64;  // of the vectors that kernels use: 64 (avx512), 32 (avx2), or 0, plain C++
  // What the machine has, whether kernels use it or not.
  bool avx2 = true;    // with FMA
  bool avx512 = true;  // F, BW, DQ and VL
  bool avx512_bf16 = false, avx512_fp16 = false;
  bool amx_bf16 = false, amx_fp16 = false;
  Cache l1{48 << 10, 1}, l2{2 << 20, 1}, l3{32 << 20, 1};
  int64_t line_bytes = 64, page_bytes = 4096;
  int threads = 1;     // that run at once
  bool onednn = true;  // ATen's gemms are oneDNN's, which uses all instructions that there are

  // The same, with kernels whose vectors have at most so many bytes.
  Machine with_vectors(int bytes) const;
  friend bool operator==(const Machine&, const Machine&) = default;
};

// The machine of this process.
const Machine& host_machine();
// The same but for what a text says. Instruction sets that it lacks stay away. Throws UserError.
Machine host_machine_with(std::string_view text);

// One line; `parse_machine` gives the same machine again.
std::string print(const Machine& m);
// Throws UserError.
Machine parse_machine(std::string_view text);

}  // namespace oxy
