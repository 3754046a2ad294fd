// The gradients of a joint graph as a function of its primals and tangents that autograd can
// differentiate: what a backward with create_graph calls. The forward is computed again, as behind
// a checkpoint, each op called above autograd, and autograd's engine has the gradients by what
// comes of it. So their formulas are eager's, and they have derivatives of every order.
#pragma once

#include "runtime/device.h"
#include "torch_bridge/input_signature.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {

class GradientFunction {
 public:
  using Tensors = std::vector<at::Tensor>;

  GradientFunction(ir::Graph joint, const Gradients& gradients, Tensors attributes);

  // Which primals the forward reads. Unsupported where it cannot be computed again (of a primal
  // that it writes), or the joint graph does not tell what autograd knows of it in eager.
  const std::vector<bool>& reads();
  // By primal; undefined where it is not asked for (empty: all are), or gets none. `primals`: those
  // that are read; `tangents`: by result, undefined or not; `then`: the default generator in front
  // of the forward, where that draws random numbers.
  Tensors operator()(std::span<const Input> primals, const Tensors& tangents,
                     const std::vector<bool>& asked,
                     const runtime::DeviceApi::GeneratorState& then) const;

 private:
  void prepare();
  // The input of the forward that stands for what a primal was given, by place in `as_written_`.
  size_t of_written(size_t i) const { return has_gradient_.size() + gradients_.count() + i; }

  std::mutex mutex_;
  bool is_prepared_ = false;
  std::string why_not_;
  ir::Graph graph_;  // the joint one; once it is prepared, the forward
  const Gradients gradients_;
  const Tensors attributes_;
  std::vector<bool> has_gradient_, reads_;  // by primal
  std::vector<uint32_t> as_written_;        // primals
  std::map<size_t, ir::TensorType> views_;  // results, by place: as views of the values given
  std::vector<uint32_t> uses_;              // by value
};

}  // namespace oxy::bridge
