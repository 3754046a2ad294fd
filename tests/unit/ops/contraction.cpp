// Who computes a gemm of bf16 on machines that differ in their instructions.
#include "ops/contraction.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace oxy::ops {
namespace {

constexpr const char* kTiles = "plain, avx512, avx512_bf16, amx_bf16";

// Of rows times a matrix, k x n, as a linear layer's weights lie or row-major.
Provider provider(const char* machine, int64_t m, int64_t k, int64_t n, bool transposed) {
  const std::string wide = cat("bf16[", k, ", ", n, ']');
  const std::string layout = transposed ? cat(" strides=[1, ", k, ']') : "";
  const ir::Graph g =
      ir::parse(cat("graph aten(%x: bf16[", m, ", ", k, "], %w: ", wide, layout, ") { %r: bf16[", m,
                    ", ", n, "] = aten.mm.default(%x, %w) return %r }"));
  return provider_of(g, g.node(g.order().back()), providers_on(parse_machine(machine), "auto"));
}

TEST(Providers, LargeProductsByTilesAreTheLibrarys) {
  EXPECT_EQ(provider(kTiles, 64, 64, 64, true), Provider::Own);
  EXPECT_EQ(provider(kTiles, 256, 256, 1024, false), Provider::Own);
  EXPECT_EQ(provider(kTiles, 512, 1024, 1024, true), Provider::Aten);
  EXPECT_EQ(provider("plain, avx512, avx512_bf16", 512, 1024, 1024, true), Provider::Own);
}

TEST(Providers, FewRowsAreBoundByTheMatrix) {
  EXPECT_EQ(provider(kTiles, 4, 8192, 8192, true), Provider::Own);
  EXPECT_EQ(provider(kTiles, 5, 8192, 8192, true), Provider::Aten);
  EXPECT_EQ(provider(kTiles, 4, 8192, 8192, false), Provider::Aten);
}

TEST(Providers, NarrowVectorsLeaveTilesToTheLibrary) {
  EXPECT_EQ(provider("plain, avx512, avx512_bf16, amx_bf16, vectors 32", 64, 64, 64, true),
            Provider::Aten);
}

}  // namespace
}  // namespace oxy::ops
