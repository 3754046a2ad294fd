// Records what a computation does below autograd and functionalisation, on tensors without data.
//
// A Recorder makes fakes for the inputs (optionally wrapped by ATen's Functionalize key), is entered, hears every ATen
// op that runs under it, and is closed with the results, which gives the ATen graph. See ARCHITECTURE.md, "Recording".
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace oxy::bridge {

ir::TensorType type_of(const at::Tensor& t);

class Recorder {
 public:
  struct Options {
    bool functionalize = true;
    bool shape_rules = true;  // false: every shape from torch's meta kernels (for the test that compares both)
  };
  explicit Recorder(Options options);
  ~Recorder();

  // A fake that stands for a real input: same metadata, view and leaf state, requires_grad. Inputs that share storage
  // are fakes that share storage. `aliases_of`: an earlier input in whose storage this one lies, or -1.
  at::Tensor add_input(const at::Tensor& real, const std::string& name, int aliases_of = -1);
  // A tensor found during the recording (a module's attribute): lifted as an attribute; the same tensor gives the same fake.
  at::Tensor add_attribute(const at::Tensor& real, const std::string& name);

  void enter();  // pushes the mode; calls nest properly
  void leave();  // pops it, also after an exception; a second call does nothing

  // Position of what runs next: its stack and the Torch node it comes from.
  void set_position(std::vector<ir::Frame> stack, ir::NodeId torch_node);

  // Closes the graph. `results` are what the computation returned: tensors (fakes) or data. After it the recorder is
  // used up; `attributes()` are the real tensors lifted, in the graph's order.
  ir::Graph finish(const std::vector<c10::IValue>& results);
  const std::vector<at::Tensor>& attributes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace oxy::bridge
