// Machines: texts, narrowing, and what follows from them.
#include "support/machine.h"

#include <gtest/gtest.h>

#include "support/check.h"
#include "support/tuning.h"

namespace oxy {
namespace {

TEST(Machine, ReadsWhatItPrints) {
  for (const char* text : {"", "plain", "plain, avx2, l1 32K, l2 512K, l3 16M / 8, threads 16",
                           "avx512_bf16, amx_bf16, l2 1M, l3 0, line 128, page 65536, no onednn",
                           "l1 49153, threads 3", "vectors 32", "vectors 0"}) {
    const Machine m = parse_machine(text);
    EXPECT_EQ(parse_machine(print(m)), m) << text << "\n" << print(m);
  }
  EXPECT_EQ(parse_machine(print(host_machine())), host_machine());
  EXPECT_EQ(parse_machine("l2 1M # one, two\n threads 4\n"), parse_machine("threads 4, l2 1M"));
}

TEST(Machine, Errors) {
  for (const char* text : {"avx3", "l2", "l2 x", "l2 1G", "threads 0", "l3 1M /", "l3 1M / 0",
                           "no avx2", "l2 -1", "l2 99999999999999999999", "avx2 avx512"})
    EXPECT_THROW(parse_machine(text), UserError) << text;
}

TEST(Machine, InstructionsAgreeWithTheWidth) {
  EXPECT_EQ(parse_machine("plain").vector_bytes, 0);
  EXPECT_EQ(parse_machine("plain, avx2").vector_bytes, 32);
  EXPECT_TRUE(parse_machine("plain, avx512").avx2);
  const Machine all = parse_machine("avx512_bf16, avx512_fp16, amx_bf16, amx_fp16");
  EXPECT_EQ(all.with_vectors(64), all);
  EXPECT_EQ(all.with_vectors(32).vector_bytes, 32);
  EXPECT_TRUE(all.with_vectors(32).amx_bf16);
  EXPECT_EQ(parse_machine("plain, avx2").with_vectors(64), parse_machine("plain, avx2"));
  EXPECT_EQ(parse_machine("vectors 63").vector_bytes, 32);
}

TEST(Machine, LastLevelIsWhatItsThreadsCountOn) {
  using tuning::last_level_bytes;
  EXPECT_EQ(last_level_bytes(parse_machine("l3 4M")), 4 << 20);
  EXPECT_EQ(last_level_bytes(parse_machine("l3 512M / 2, threads 2")), tuning::last_level_most);
  EXPECT_EQ(last_level_bytes(parse_machine("l3 32M / 16, threads 4")), 8 << 20);
  EXPECT_EQ(last_level_bytes(parse_machine("l3 0, l2 1M")), 1 << 20);
}

}  // namespace
}  // namespace oxy
