// Gemms and 2-D convolutions of f32 in kernels of our own, whose shapes are parameters: they are
// compiled once for a machine. Gemms of bf16 and f16 in others: A is converted a block of rows at a
// time, B where it is packed, sums are f32 and rounded once, as ATen does. Where the machine has
// AVX512_BF16, bf16 is multiplied as it lies, in pairs along k, by an instruction that takes
// denormals for 0, as oneDNN does; with AMX whole tiles of rows and columns. (Where there are few
// values of k, it is converted there too.)
//
//   C[b, m, n] = bias[n] + sum over k of A[b, m, k] * B[b, k, n]
//
// The method is that of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication",
// 2008) without packing A, whose rows are read as broadcasts (columns that are far apart are copied
// as rows, a piece of k of a block at a time): for a block of values of k, a panel of B as wide as
// two vectors (four with AVX-512) is packed, which stays in the second-level cache, and tiles of up
// to six rows of A times that panel stay in registers. While a panel is worked on the next one is
// prefetched a line at a time, so that weights arrive from memory without having been packed before
// the call. Gemms of few rows do not pack B at all: see below.
//
// A convolution is a gemm with one row an output pixel of any image, one column an output channel,
// and k running over the input channels at each tap of the filter (Dukhan, "The Indirect
// Convolution Algorithm", 2019): each row has a pointer a tap, to the input pixel or, outside the
// image, to zeros.
// Activations are channels-last, weights plain (out, in, kh, kw); k is ordered (channel, tap) as in
// the weights' memory. A plain gemm has one tap.
//
// Sizes may be slots of a plan's size program: then so is what follows from them, the blocking
// included, and a size of 0 gives no iterations. Only k is at least 1.
//
// An epilogue (schedule/cpu/epilogues.h) is a kernel of its own that is called on a few rows of a
// panel as soon as they are done. What it reads beside them is prefetched while they are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cpp/emit.h"
#include "runtime/size.h"

namespace oxy::codegen::cpp {

using runtime::Size;

struct Gemm {
  // Which text takes a gemm of a number of rows that varies: as many as there are at the hints, or
  // one of the two, where a plan has both (few_rows_limit).
  enum class Rows : uint8_t { AsHinted, Few, Many };

  ir::DType dtype = ir::DType::F32;  // of all operands and the result; BF16 and F16 without taps
  bool to_f32 = false;               // the result of BF16 and F16 is F32; without bias
  Size batch = 1, m = 0, n = 0;
  Size channels = 0;                   // k, or the input channels of a convolution; not 0
  Size a_batch = 0, a_row = 0;         // strides of A in elements
  Size a_k = 1;                        // 1, or a_row is: columns, of F32 and F16 and many rows
  Size b_batch = 0, b_k = 0, b_n = 0;  // strides of B; one of b_k and b_n is 1
  Size c_batch = 0, c_row = 0;         // strides of C; along n it is 1
  // Of the first element, from the start of its buffer.
  Size a_offset = 0, b_offset = 0, c_offset = 0, bias_offset = 0;
  bool bias = false;  // n values, contiguous
  Rows rows = Rows::AsHinted;
  // B has been packed once (runtime/pack.h): its strides do not count, and panels of
  // tuning::gemm_panel_columns follow each other.
  bool packed = false;
  // One more buffer, a runtime::Epilogue: a kernel whose iterations are the rows of each panel of C
  // in turn. It runs on each block that is done, with so many bytes of scratch.
  bool epilogue = false;
  Size epilogue_scratch = 0;
  std::vector<int64_t>
      epilogue_reads;  // its buffers that lie as C does, and are prefetched while a block is made
  // A convolution: m counts output pixels of an image, batch images; in_h is 0 otherwise.
  Size in_h = 0, in_w = 0, out_w = 0;
  Size kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1,
       dilation_w = 1;

  bool is_convolution() const { return !in_h.is_constant(0); }
  Size taps() const { return kernel_h * kernel_w; }
  Size multiplications() const { return batch * m * n * channels * taps(); }
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

// Whether pairs of values along k are multiplied and added up by one instruction.
bool multiplies_pairs(ir::DType dtype, const Machine& target);
// Whether tiles of them are, where there are more than a few rows.
bool multiplies_tiles(ir::DType dtype, const Machine& target);

// The kernel, with the interface of emit.h. Its buffers are the parameters (an array of i64), A, B,
// C, the bias where there is one, and the epilogue. `target` must have vectors.
// All gemms of one pair of dtypes have one of four texts: those of dot_gemm.cpp, row_gemm.cpp,
// narrow_gemm.cpp and gemm.cpp; bf16 with few values of k those of a machine without AVX512_BF16.
std::string emit_gemm(const Gemm& shape, const Machine& target);
// All that emit_gemm gives, but for the latter.
std::vector<std::string> gemm_texts(const Machine& target);
std::vector<Size> gemm_parameters(const Gemm& shape, const Machine& target);
Size gemm_range(const Gemm& shape, const Machine& target);          // parallel iterations
Size gemm_scratch_bytes(const Gemm& shape, const Machine& target);  // a thread
int64_t gemm_bytes(const Gemm& shape);  // of operands and result, at the hints
// B is not packed, also where it is constant.
bool reads_as_it_lies(const Gemm& shape, const Machine& target);
// The most rows that a text for few rows is for; 0: none is.
int64_t few_rows_limit(const Gemm& shape, const Machine& target);
std::string print(const Gemm& shape);

// Gemms of few rows with a matrix that is contiguous along k (a linear layer's weights): each
// element of C is a sum along the lanes, so that B is read once, as it lies, without being packed.
// Six rows of A (three without AVX-512) times four columns of B stay in registers.
int64_t dot_most_rows(const Gemm& p, const Machine& target);
bool is_dot_gemm(const Gemm& p, const Machine& target);
std::string emit_dot_gemm(ir::DType dtype, bool to_f32, const Machine& target);
std::vector<Size> dot_gemm_parameters(const Gemm& p, const Machine& target);
Size dot_gemm_scratch_bytes(const Gemm& p, const Machine& target);
Size dot_gemm_range(const Gemm& p);

// Gemms of few rows with a matrix whose rows are contiguous: eight rows of B at a time are read
// once, as they lie, each value times one of A and added to the row of sums (in f32), which stays
// in the first-level cache.
int64_t row_most_rows(const Gemm& p);
bool is_row_gemm(const Gemm& p, const Machine& target);
std::string emit_row_gemm(ir::DType dtype, bool to_f32, const Machine& target);
std::vector<Size> row_gemm_parameters(const Gemm& p);
Size row_gemm_range(const Gemm& p);
Size row_gemm_scratch_bytes(const Gemm& p);

// Gemms with no more columns than a vector of f32 has: a row of B is one vector, so that twelve
// rows of sums stay in registers. Of halves, those of few values of k.
bool is_narrow_gemm(const Gemm& p, const Machine& target);
std::string emit_narrow_gemm(ir::DType dtype, bool to_f32, const Machine& target);
std::vector<Size> narrow_gemm_parameters(const Gemm& p);
Size narrow_gemm_range(const Gemm& p);
Size narrow_gemm_scratch_bytes(const Gemm& p, const Machine& target);

}  // namespace oxy::codegen::cpp
