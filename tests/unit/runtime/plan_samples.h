// Plans for tests: as text, with every kind of step, argument and result.
#pragma once

#include "runtime/code_table.h"
#include "runtime/plan.h"

namespace oxy::runtime {

// y = x + 1 over rows, then out = y * y and the sum of the row numbers: for (n, 4) inputs of any n.
// `row_add` and `square` are the texts that its kernels are named by.
inline constexpr const char* kRowAdd = "row_add";
inline constexpr const char* kSquare = "square";

inline std::string dynamic_plan() {
  return "plan arena=%3 {\n"
         "  size %0 = size(0, 0)\n"
         "  size %1 = mul(%0, 4)\n"
         "  size %2 = mul(%1, 4)\n"
         "  size %3 = mul(%2, 2)\n"
         "  input f32[%0, 4] strides=[4, 1]\n"
         "  buffer in0: input 0 f32[%0, 4] strides=[4, 1] bytes=%2\n"
         "  buffer buf0: arena at %2 f32[%0, 4] strides=[4, 1] bytes=%2\n"
         "  buffer buf1: output f32[%0, 4] strides=[4, 1] bytes=%2\n"
         "  buffer view2: view of buf1 f32[%1] strides=[1] bytes=%2\n"
         "  kernel add_0: @" +
         print(content_hash(kRowAdd)) +
         " range=%0 grain=1 scratch=0 moves=64 parameters=[%0, 4]\n"
         "  kernel square_1: @" +
         print(content_hash(kSquare)) +
         " range=%1 grain=16 scratch=64 moves=64\n"
         "  launch add_0(in0, buf0)\n"
         "  launch square_1(buf0, view2)\n"
         "  return buf1\n"
         "  return view2\n"
         "  return %1\n"
         "  return input 0\n"
         "  return view of input 0: f32[%1] strides=[1]\n"
         "}\n";
}

inline std::string extern_plan() {
  return "plan arena=64 {\n"
         "  size %0 = number(1, 0)\n"
         "  input f32[2, 3] strides=[3, 1] offset=5 cuda:1\n"
         "  input number %0\n"
         "  input number 7\n"
         "  buffer in0: input 0 f32[2, 3] strides=[3, 1] offset=5 cuda:1 bytes=44\n"
         "  buffer attr0: attribute 0 i64[] strides=[] bytes=8\n"
         "  buffer packed0: attribute 1 f32[64] strides=[1] bytes=256\n"
         "  buffer buf1: extern f32[2, 3] strides=[3, 1] bytes=24\n"
         "  buffer buf2: extern b8[] strides=[] bytes=1\n"
         "  buffer buf3: arena at 0 f32[4, 4] strides=[4, 1] bytes=64\n"
         "  kernel gemm_0: @00000000000000000000000000000001 range=8 grain=2 scratch=128 moves=9 "
         "parameters=[1, -2]\n"
         "  kernel tail_1: @ffffffffffffffffffffffffffffffff range=4 grain=1 scratch=0 moves=0\n"
         "  region plan arena=0 {\n"
         "    input f32[2, 3] strides=[3, 1]\n"
         "    buffer in0: input 0 f32[2, 3] strides=[3, 1] bytes=24\n"
         "    return in0\n"
         "  }\n"
         "  gemm gemm_0(in0, packed0, buf3) epilogue tail_1(buf3)\n"
         "  gemm gemm_0(in0, packed0, buf3)\n"
         "  buf1, buf2, _ = extern aten.odd.Tensor(in0, [attr0, None], [], %0, -4, 1.5, -inf, nan, "
         "complex(0.0, -2.5), True, False, \"a \\\"b\\\"\\n\", f32, cpu, cuda:1, layout(sparse), "
         "memory_format(9)) returns=[-1, 2] random origin=3\n"
         "  extern \"a name\"() origin=0\n"
         "  buf1 = cond [0, 0](buf2, in0)\n"
         "  free buf2\n"
         "  mutate input 0 <- buf1 as f32[3, 2] strides=[1, 3]\n"
         "  mutate input 0 in place: buf1 same_data\n"
         "  mutate input 0 <- buf1 unseen\n"
         "  return neg conj buf1\n"
         "  return view of output 0: f32[3] strides=[2] offset=1\n"
         "  return None\n"
         "  return 12\n"
         "  frozen [0]\n"
         "  pack in0 -> packed0 batch=1 k=2 n=3 batch_stride=0 k_stride=3 n_stride=1 offset=0 "
         "width=32\n"
         "}\n";
}

// Of known sizes, for two inputs and an attribute: every place where numbers of a plan say what the
// runtime itself reads and writes. Its kernel's text is `square`.
inline std::string static_plan() {
  return "plan arena=128 {\n"
         "  input f32[2, 4] strides=[4, 1] offset=3\n"
         "  input f32[8] strides=[1]\n"
         "  buffer in0: input 0 f32[2, 4] strides=[4, 1] offset=3 bytes=44\n"
         "  buffer in1: input 1 f32[8] strides=[1] bytes=32\n"
         "  buffer attr0: attribute 0 f32[4, 3] strides=[3, 1] bytes=48\n"
         "  buffer packed0: attribute 1 f32[16] strides=[1] bytes=64\n"
         "  buffer buf0: arena at 64 f32[4, 4] strides=[4, 1] bytes=64\n"
         "  buffer buf1: output f32[2, 4] strides=[4, 1] bytes=32\n"
         "  buffer view0: view of buf0 f32[8] strides=[2] bytes=60\n"
         "  buffer view1: view of buf1 f64[4] strides=[1] bytes=32\n"
         "  kernel square_0: @" +
         print(content_hash(kSquare)) +
         " range=8 grain=2 scratch=128 moves=64 parameters=[1, -2]\n"
         "  launch square_0(in0, buf0)\n"
         "  launch square_0(in1, view1, packed0)\n"
         "  mutate input 1 <- view0\n"
         "  return buf1\n"
         "  return view1\n"
         "  return view0\n"
         "  return view of output 0: f32[3] strides=[2] offset=1\n"
         "  return view of input 0: f32[4, 2] strides=[1, 4] offset=3\n"
         "  return attr0\n"
         "  return 12\n"
         "  pack attr0 -> packed0 batch=1 k=4 n=3 batch_stride=0 k_stride=3 n_stride=1 offset=0 "
         "width=4\n"
         "}\n";
}

}  // namespace oxy::runtime
