// Gemms (matrix products) and convolutions: which nodes are some, on which operands, and who
// computes each.
//
//   gemm         c[b, m, n] = bias[n] + sum over k of a[b, m, k] * b[b, k, n]
//                mm, bmm, addmm with a vector; bmm_to_f32, which leaves sums of halves in f32
//   convolution  a gemm with a row m a pixel of the result, a column n an output channel, and k
//                running over the input channels at each tap of the filter: two spatial dimensions,
//                one group
//
// Our own kernels (codegen/cpp/gemm.h) take f32, bf16 or f16 (convolutions: f32) on the CPU, rows
// of c contiguous, b contiguous along one of its dimensions, a along its rows or, of f32 and f16
// with many rows, its columns; of convolutions, activations that are channels-last.
#pragma once

#include "ir/graph.h"
#include "support/machine.h"

namespace oxy::ops {

using ir::DType;
using ir::Expr;

// bmm of f16 or bf16, of which passes make some where our kernels run them.
inline constexpr const char* kBmmToF32 = "oxyfuel.bmm_to_f32.default";

// Whether the call that was recorded says what it is there: choices are made for that.
bool has_hint(Expr e);

struct Contraction {
  enum class Kind : uint8_t { Gemm, Convolution };
  Kind kind = Kind::Gemm;
  std::vector<Expr> stride, padding, dilation;  // of a convolution: one a spatial dimension
};

std::string_view name(Contraction::Kind k);  // gemm, convolution

// The types of the operands and of the result.
struct ContractionTypes {
  const ir::TensorType *a = nullptr, *b = nullptr, *bias = nullptr,
                       *c = nullptr;  // bias: may be missing
};

// A node that is a contraction, and its operands.
struct ContractionNode {
  Contraction what;
  ir::ValueId a, b, bias;  // bias: may be invalid
  ContractionTypes types(const ir::Graph& g, const ir::Node& n) const;
};
std::optional<ContractionNode> contraction_of(const ir::Graph& g, const ir::Node& n);

enum class Provider : uint8_t {
  Own,     // a kernel of ours, which writes to planned memory and cannot fail
  OneDnn,  // mkldnn::_linear_pointwise: with AVX-512 faster than the BLAS that ATen calls
  Aten,    // the op of the node
  Loops,   // no call at all: passes/thin_gemms makes it a multiplication and a sum
};
std::string_view name(Provider p);
std::optional<Provider> provider_from_name(std::string_view name);

// Who there is on a machine, as far as the setting `gemm_backend` (auto, own, onednn, aten) allows.
struct Providers {
  bool own = false, onednn = false;
  // The library multiplies these by instructions that our kernels do not use: twice to sixteen
  // times as many a cycle.
  bool fast_bf16 = false, fast_f16 = false;
  bool tiles_bf16 = false;  // ours are tiles, as the library's
  int lanes = 0;            // of a vector of f32
};
Providers providers_on(const Machine& m, std::string_view setting);

// Where our kernels are wanted, they run all that they take: f32 and f16 as fast as the libraries'
// or faster at all shapes that were tried, but for convolutions whose output channels are one
// vector: six sums at a time wait for each other (124 GFLOP/s of 16 channels, the library's 200).
// Sizes that vary decide at their hints; whoever is chosen computes all of them.
Provider provider_of(const Contraction& what, const ContractionTypes& types,
                     const Providers& available);
Provider provider_of(const ir::Graph& g, const ir::Node& n, const Providers& available);
// Operands to be copied row-major, so that our kernels take a gemm that they would not take; none
// where that is slower than the library.
struct OperandCopies {
  bool a = false, b = false;
};
OperandCopies wants_row_major(const ir::Graph& g, const ir::Node& n, const Providers& available);
// Who computes b^T a^T of a gemm with few columns whose left operand is contiguous along k, in less
// time than a b: our kernel of few rows, loops, or Aten: nobody.
Provider provider_of_transposes(const ir::Graph& g, const ir::Node& n, const Providers& available);
// A convolution that our kernels take once its activations are channels-last.
bool wants_channels_last(const ir::Graph& g, const ir::Node& n, const Providers& available);
// Whether oneDNN convolves the half dtype on this machine in less time than f32. Else ATen's
// kernels take ten to forty times as long as those of f32; oneDNN's of f16 with AVX512-FP16 alone
// take twice as long, and for the gradient of a filter a thousand times.
bool library_convolves(DType half, const Machine& m);
// A 2-D convolution or its gradient by oneDNN that takes less time with channels-last, which it
// takes as they lie, where it lays out others anew at each call: of halves, of each channel by
// itself, transposed ones, and gradients of f32 with AVX-512; but for filters of several taps and
// few pixels, where laying out the filter takes more.
bool library_wants_channels_last(const ir::Graph& g, const ir::Node& n, const Machine& m);

// Sizes, and strides in elements, of a contraction that our kernels take: strides that are missing
// here are 1.
struct ContractionLayout {
  DType dtype = DType::F32, result = DType::F32;  // of the operands and of c
  Expr batch = 1, m = 0, n = 0, k = 0;            // k of a convolution: its input channels
  Expr a_batch = 0, a_row = 0, a_k = 1;           // one of a_row and a_k is 1
  Expr b_batch = 0, b_k = 0, b_n = 0;
  Expr c_batch = 0, c_row = 0;
  // Of a convolution: its images, its filter, and how that moves over them.
  Expr in_h = 0, in_w = 0, out_w = 0, kernel_h = 1, kernel_w = 1;
};
ContractionLayout layout_of(const Contraction& what, const ContractionTypes& types);
// Whether a gemm of ours with so many columns and values of k, where they are known, has one vector
// of columns (codegen/cpp/narrow_gemm.cpp), if it has many rows.
bool is_narrow(DType dtype, std::optional<int64_t> n, std::optional<int64_t> k,
               const Machine& machine);

}  // namespace oxy::ops
