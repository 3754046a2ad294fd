// What verify() refuses, and what parse() says of a bad text.
#include <gtest/gtest.h>

#include "loops/loop_ir.h"
#include "support/check.h"

namespace oxy::loops {

namespace {

constexpr const char* kBuffers =
    "buffer in0: input 0 f32[4, 8]\nbuffer buf0: temp f32[4, 8]\nbuffer buf1: output f32[4]\n";

Program program(const std::string& steps) { return parse(kBuffers + steps); }

}  // namespace

TEST(Verify, AcceptsAReduction) {
  Program p = program(
      "loop a (p0: 4) reduce (r0: 8) {\n%0 = load f32 in0[p0, r0]\n%1 = reduce f32 sum %0\n"
      "store buf1[p0] = %1\n}\n");
  EXPECT_NO_THROW(verify(p));
  EXPECT_EQ(print(parse(print(p))), print(p));
}

TEST(Verify, RefusesAReadBeforeTheWrite) {
  Program p = program("loop a (p0: 4) {\n%0 = load f32 buf0[p0, 0]\nstore buf1[p0] = %0\n}\n");
  EXPECT_THROW(verify(p), InternalError);
}

TEST(Verify, RefusesALoopThatReadsWhatItWrites) {
  Program p = program(
      "loop a (p0: 4, p1: 8) {\n%0 = load f32 in0[p0, p1]\nstore buf0[p0, p1] = %0\n}\n"
      "loop b (p0: 4) {\n%0 = load f32 buf1[p0]\nstore buf1[p0] = %0\n}\n");
  EXPECT_THROW(verify(p), InternalError);
}

TEST(Verify, RefusesAFreeVariable) {
  Program p = program(
      "loop a (p0: 4, p1: 8) {\n%0 = load f32 in0[p0, p1]\nstore buf0[p0, p1] = %0\n}\n"
      "loop b (p0: 4) {\n%0 = load f32 buf0[p0, p1]\nstore buf1[p0] = %0\n}\n");
  EXPECT_THROW(verify(p), InternalError);
}

TEST(Verify, RefusesTheWrongNumberOfIndices) {
  Program p = program("loop a (p0: 4) {\n%0 = load f32 in0[p0]\nstore buf1[p0] = %0\n}\n");
  EXPECT_THROW(verify(p), InternalError);
}

TEST(Verify, ContractionsAreOfTheirBuffersSizes) {
  const std::string buffers =
      "buffer w: input 1 f32[8, 3]\nbuffer bias: input 2 f32[3]\nbuffer wide: input 3 f32[7, 3]\n"
      "buffer out: temp f32[4, 3]\nbuffer made: extern f32[4, 3]\n";
  auto contraction = [&](const char* step) { return program(cat(buffers, step, "\n")); };
  for (const char* good :
       {"gemm op0: in0, w, bias -> out by own", "gemm op0: in0, w -> made by aten"}) {
    const Program p = contraction(good);
    EXPECT_NO_THROW(verify(p));
    EXPECT_EQ(print(parse(print(p))), print(p));
  }
  for (const char* bad :
       {"gemm op0: in0, wide -> out by own", "gemm op0: in0, w, in0 -> out by own",
        "gemm op0: in0, w -> made by own", "gemm op0: in0, w -> out by onednn",
        "gemm op0: in0, w -> out by loops", "gemm op0: in0 -> out by own",
        "gemm op0: in0, w, stride [1, 1] -> out by own", "convolution op0: in0, w -> out by own"})
    EXPECT_THROW(verify(contraction(bad)), InternalError) << bad;
  EXPECT_THROW(contraction("gemm op0: in0, w -> out by nobody"), UserError);
}

TEST(Parse, SaysWhere) {
  try {
    program("loop a (p0: 4) {\n%0 = frobnicate f32 %0\n}\n");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("5:"), std::string::npos) << e.what();
  }
  EXPECT_THROW(program("loop a (p0: 4) {\n%0 = load f32 nowhere[p0]\n}\n"), UserError);
  EXPECT_THROW(program("buffer in0: temp f32[4]\n"), UserError);
}

}  // namespace oxy::loops
