// The passes on ATen graphs: what each does and why it stands where it stands, and the list in
// which a compilation runs them. Each says whether it changed the graph.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/machine.h"
#include "support/timing.h"

namespace oxy::passes {

// One way to write each thing: permute for every transposition, view for every reshape that copies
// nothing, full for every constant tensor, the Tensor variant for Tensor and Scalar ones, sizes and
// dimensions without negative numbers, constants as second operand, views for copies of views that
// are not returned.
// Stands first, so that the other passes know one form of each op, and again after decompose, which
// brings in others. No rule changes a layout; each rule takes a form away that no rule brings back,
// so the pass ends.
bool canonicalize(ir::Graph& g);

// Removes calls whose result is their operand: multiplication by 1, views of the same sizes, copies
// of what nobody can tell from its copy, cat of one tensor, dropout in evaluation.
// Stands after canonicalize and again after simplify_views and fold_constants, which bring such
// calls out. x + 0 is one of them only for integers: for floats -0.0 + 0.0 is 0.0. A copy that
// keeps what is returned apart from an input, or two returned tensors from each other, stays
// (Replacements).
bool remove_noops(ir::Graph& g);

// Attention as one op of ATen's or as two gemms and a softmax, whichever is faster for its size.
// Written-out attention with large scores becomes _scaled_dot_product_flash_attention_for_cpu;
// that op with small scores is written out, for our own gemms.
// The cost model: written out, our gemms and one softmax kernel beat ATen's blocked kernel as long
// as the matrix of scores stays in the last-level cache (0.65 to 0.95 of its time at 128 to 512
// positions of 12 heads), and lose where it goes through memory (1.1 to 1.3 at 2,048 and more);
// with AVX2, a few times the second-level cache (tuning::avx2_attention_of_l2).
// Both round as f32 sums do; neither narrows anything. Bf16 and f16 are written out where our
// kernels multiply them, up to larger scores (0.3 to 0.6 of the op's time); shares are rounded
// where the op rounds them.
// Stand behind the first canonicalize and remove_noops, before decompose takes softmax apart.
bool fuse_attention(ir::Graph& g, const Machine& machine);
bool expand_attention(ir::Graph& g, const Machine& machine);
// The same for the op and its gradient in a joint graph, in front of the partition: the gradient
// takes the shares that the forward has made, where they need no more memory than the operands and
// the result, which are kept in any case. `formulas`: by node, whether autograd has called it;
// empty where that is not known.
bool expand_trained_attention(ir::Graph& joint, std::vector<bool>& formulas,
                              const Machine& machine);

// Convolutions of half precision and their gradients in f32, rounded once, where oneDNN does not
// multiply that dtype: bf16 without AVX-512, f16 without AVX512-FP16 or AMX-FP16.
// Stands in front of decompose, which takes some gradients of f32 apart, and of choose_layouts.
bool widen_convolutions(ir::Graph& g, const Machine& machine);

// Arithmetic on complex numbers as arithmetic on their parts, and so as loops, which fuse; numbers
// are put together where an op without such a rule, or the caller, reads them.
// Stands behind canonicalize, and in front of decompose, which knows the reals that it writes.
bool split_complex(ir::Graph& g);

// Writes ops in terms of simpler ones, by the decompositions of the op table, until none applies.
// Stands after canonicalize and remove_noops, so that nothing is taken apart that goes away, and
// before the passes that find what the parts have in common. Results keep their layouts: where a
// decomposition's last op would lay out its result differently, that op is asked for the recorded
// layout if it writes a tensor of its own by a loop; otherwise the call stays whole.
bool decompose(ir::Graph& g);

// What is read where a mask holds (x[m], masked_select), computed element by element, and folded or
// written back there, is computed everywhere, and the mask selects what counts: loops, which fuse,
// in the place of the list of places, which takes longer than the arithmetic. Only where nothing
// but the number of the selected elements is left of the selection.
// Stands in front of decompose, which takes apart what writes where a mask holds. Of a joint
// graph in front of the partition, which would keep the places. `formulas`: by
// node, whether autograd has called it; empty where that is not known.
bool predicate_masks(ir::Graph& g);
bool predicate_trained_masks(ir::Graph& joint, std::vector<bool>& formulas);

// Convolutions that sum few products (of each channel by itself, or single pixels of few channels)
// as shifted multiplications and sums, which fuse with what stands around them. f32 and f64, of
// rows; not in a graph whose convolutions want channels-last.
// Stands behind widen_convolutions and in front of choose_layouts.
bool thin_convolutions(ir::Graph& g, const Machine& machine);

// Gemms that sum few products, or of one row or column with a small matrix, as loops, which fuse
// with what stands around them, and those with few columns as the transposed gemm. Which ones:
// ops/contraction.h.
bool thin_gemms(ir::Graph& g, const Machine& machine);

// Adds the gradient of an embedding to another tensor of the table's size as rows, in that tensor's
// memory; of rows that are read more than once the sums are rounded in another order. f32 and f64.
// Stands where each gradient is one op, anywhere in front of the last dce.
bool accumulate_rows(ir::Graph& g);

// Computes at compile time what cannot change: casts, views, negation, sums and products of full
// tensors and numbers become full tensors.
// Stands after canonicalize (which knows one op that makes constants) and before remove_noops and
// cse. Contents of inputs and attributes are never looked at: what derives from a tensor that can
// change does not outlive a call (only freezing allows that). Arithmetic is the dtype's own,
// rounded as ATen rounds; dtypes that this pass does not know exactly stay in the graph.
bool fold_constants(ir::Graph& g);

// Chains of views become one view: view of view, of squeeze and of unsqueeze; permute of permute;
// expand of expand.
// Stands after canonicalize (transpositions are permutes by then) and before remove_noops, which
// drops a chain that ends where it began, and before cse. A chain is taken together only where the
// one view gives the same strides.
bool simplify_views(ir::Graph& g);

// Gives convolutions channels-last activations, where our own kernels then take them
// (ops/contraction.h).
// A copy in front of the first convolution is all it costs: layouts propagate through element-wise
// ops, whose result is laid out as their operands. An op whose layout rule does not know the new
// layout gets its operand in the old one; so does everything that the caller sees. Stands behind
// the decompositions, which show what is element-wise, and before the last clean-up, which removes
// copies that turned out to be equal.
bool choose_layouts(ir::Graph& g, const Machine& machine);

// A write into a part of a part (o[1:-1, 1:-1] = x) gives, one after the other, the inner part and
// the whole with what was written; the inner one has the layout of a view, with gaps and an offset.
// Where nobody sees that it becomes row-major, which loops can make.
// Stands behind decompose, which knows the writes that a circular padding is.
bool compact_writes(ir::Graph& g);

// Copies operands of gemms that our kernels would take but for their layout: the first one where
// its rows are not contiguous (the gradient of a linear layer's weight), the second where neither
// of its dimensions is.
// Stands behind simplify_views, when it shows how operands lie, and in front of cse.
bool copy_operands(ir::Graph& g, const Machine& machine);

// Common subexpressions: of two calls with equal op and arguments the later one goes.
// Stands after canonicalize, decompose and simplify_views, which make calls equal that were written
// differently, and before dce. Two values that are both returned stay two tensors.
bool cse(ir::Graph& g);

// Checks where a call that nothing reads raises for some values in eager: an index that is no
// place, a division of integers by zero. A check that fails leaves the call to eager.
// Stands at the end of a recording, in front of its gradients, while dead calls are those that the
// program has made. Each demand is checked once, and not where a call that stays makes it as well.
// `in_try`: calls of which the program may deal with what they raise. Those that nothing reads stay
// as they are, and so do calls that raise for values that no check of ours knows (a factorisation
// of what is not finite).
bool keep_checks(ir::Graph& g, const std::vector<ir::NodeId>& in_try);
inline bool keep_checks(ir::Graph& g) { return keep_checks(g, {}); }

// Drops calls that nothing reads.
// Stands last: every other pass leaves what it has replaced to be swept here. Random draws and
// effects stay, as do inputs and attributes, whose number the caller knows. A mutation that writes
// an input's own value back is dropped with them, because only here is it nobody's concern which
// pass made it so. An operand that no region of its node reads goes too, and so do the vectors of
// an eigenvalue or singular value decomposition of which the values alone are read.
bool dce(ir::Graph& g);

// What the setting `freezing` lets a compilation do: some inputs (parameters and buffers of
// modules) count as constants, and whoever runs the plan makes sure that they are what they were.
// `frozen` says so by input; attributes are constants too. A value is constant where it is computed
// from these and from nothing that varies, by calls that are neither random nor unknown to us. What
// is large beside what it is made of (an expanded tensor, int8 weights as floats) is not: reading
// it would cost more than computing it again.

// Inference batch norm behind a convolution whose weights are constant becomes part of them:
//   w' = w * s, b' = (b - mean) * s + beta with s = gamma / sqrt(var + eps)
// Rounds differently than the two ops. Stands first, while both are single calls.
bool fold_batch_norm(ir::Graph& g, const std::vector<bool>& frozen);

// Moves constant values out of the graph: each that is read by what remains becomes an attribute
// behind those that are there, and the graph that is returned computes them, in this order, from
// the same inputs and attributes. Views of inputs stay: they cost nothing. So does what the caller
// gets, which must be a tensor of its own each time. Stands last.
ir::Graph lift_constants(ir::Graph& g, const std::vector<bool>& frozen);

struct Pass {
  std::string_view name;
  bool (*run)(ir::Graph&, const Machine&);  // says whether it changed the graph
  std::string_view comment;
};

// Every pass once, sorted by name.
std::span<const Pass> all_passes();
// UserError that lists the known names.
const Pass& find_pass(std::string_view name);

// What a compilation runs, in this order.
std::span<const Pass> standard_passes();

struct RunOptions {
  Machine machine;
  bool verify = true;                       // after each pass; an InternalError names the pass
  Timeline* timeline = nullptr;             // gets a phase a pass
  std::function<bool(const Pass&)> wanted;  // which passes of the list run; empty: all
  // Called after each pass, for timing and dumps.
  std::function<void(const Pass&, const ir::Graph&, bool changed, double seconds)> after;
};
// Runs the passes in order, each on every region inside of the graph and then on the graph; says
// whether one of them changed the graph.
bool run_passes(ir::Graph& g, std::span<const Pass> passes, const RunOptions& options = {});

}  // namespace oxy::passes
