// Attention as one op of ATen's or as two gemms and a softmax, whichever is faster for its size, in
// f32.
//
// The cost model: written out, our gemms and one softmax kernel beat ATen's blocked kernel as long
// as the matrix of scores stays in the last-level cache (0.65 to 0.95 of its time at 128 to 512
// positions of 12 heads), and lose where it goes through memory (1.1 to 1.3 at 2,048 and more).
// Both round as f32 sums do; neither narrows anything.
//
// The forms of written-out attention that are known, in canonical ops, with q (batch, length,
// size), k the other way round, and views that leave the last two dimensions alone anywhere
// between:
//   scores = bmm(q, k)                  what is done to q and k before does not matter: scaled,
//                                       permuted, repeated
//   scores = mul(scores, number)        any number of times; div too
//   scores = add(scores, mask)          at most once, behind the scaling; a float mask that
//                                       broadcasts
//   bmm(softmax(scores, -1), v)
// These are the inference forms of Inductor's fuse_attention patterns but for those whose masks are
// selections by booleans: there a NaN under the mask would come through. Dropout is gone in
// inference. A row whose every key is masked by -inf stays NaN; one whose every score overflows to
// -inf is NaN written out and 0 by the op.
//
// Stands behind the first canonicalize and remove_noops, before decompose takes softmax apart.
#pragma once

#include "ir/graph.h"
#include "support/machine.h"

namespace oxy::passes {

// Written-out attention with large scores as _scaled_dot_product_flash_attention_for_cpu.
bool fuse_attention(ir::Graph& g, const Machine& machine);

// That op with small scores, written out; for our own gemms.
bool expand_attention(ir::Graph& g, const Machine& machine);

}  // namespace oxy::passes
