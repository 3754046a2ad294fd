// 2-D convolutions of f32 in our own kernels, on channels-last activations and plain (out, in, kh, kw) weights.
//
// A convolution is a product with one row an output pixel, one column an output channel, and k running over the input
// channels at each tap of the filter (the indirect form of Dukhan, "The Indirect Convolution Algorithm", 2019): instead
// of gathering patches, each row of a tile has a pointer a tap, to the input pixel or, outside the image, to zeros. A panel of
// weights is packed as in matmul.h; k is ordered (channel, tap) as in the weights' memory.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/cpp/emit.h"

namespace oxy::codegen::cpp {

struct Conv2d {
  int64_t batch = 1, in_channels = 0, in_h = 0, in_w = 0;
  int64_t out_channels = 0, out_h = 0, out_w = 0;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  int64_t x_offset = 0, w_offset = 0, bias_offset = 0;  // of the first element, from the start of its buffer
  bool bias = false;
  int64_t taps() const { return kernel_h * kernel_w; }
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};

// The kernel, with the interface of emit.h; its buffers are the input, the weights, the bias where there is one, the
// output; input and output are dense in the order (batch, height, width, channel).
std::string emit_conv2d(const Conv2d& shape, const Target& target);
int64_t conv2d_range(const Conv2d& shape, const Target& target);          // parallel points
int64_t conv2d_scratch_bytes(const Conv2d& shape, const Target& target);  // a thread
std::string print(const Conv2d& shape);

}  // namespace oxy::codegen::cpp
