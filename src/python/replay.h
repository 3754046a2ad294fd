// Runs Torch IR by calling the real torch functions: on real tensors that is eager; on a recorder's
// fakes it records. What a call returns is taken apart to tensors and built again.
#pragma once

#include <memory>
#include <optional>

#include "python/global_state.h"
#include "python/torch_ir.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {

// The shape of what a compiled call returns: tensors among tuples, lists, dicts and constants.
struct ResultTree {
  enum class Kind : uint8_t { Output, Number, Constant, Tuple, List, Dict, NamedTuple };
  Kind kind = Kind::Constant;
  uint32_t output = 0;            // Output, Number: position among the flat ones
  py::object constant;            // Constant; NamedTuple: what makes one of a tuple
  std::vector<ResultTree> items;  // of containers
  std::vector<py::object> keys;   // Dict

  // The Python object with these outputs at the leaves.
  py::object build(const std::vector<py::object>& outputs,
                   std::span<const int64_t> numbers = {}) const;
};

// Takes a returned object apart. Each tensor object gets one position in `tensors`, however often
// it is returned.
ResultTree take_apart(py::handle result, std::vector<at::Tensor>& tensors);

// Calls every node in order. `args`: one per input of the graph. Exceptions are the called
// function's own. `reached`: gets the node that was called last.
py::object replay(const TorchIr& ir, py::handle args, ir::NodeId* reached = nullptr);

// What a recording gives.
struct Recording {
  ir::Graph graph{ir::Stage::Aten};
  std::vector<at::Tensor> attributes;  // behind the graph's attribute nodes, in order
  ResultTree result;  // what to hand back: leaves are outputs of the graph, or constants
  std::vector<sym::Expr> numbers;  // of sizes, among the results
  uint32_t visible_outputs = 0;    // outputs beyond these are memory that others are views of
  std::shared_ptr<const sym::ShapeFacts> facts;  // of a recording with symbolic sizes
  bool names_places = false;                     // see bridge::Recorder
  bridge::Gradients gradients;                   // of a joint graph
};

// A capture's own recording, for the state of torch and the inputs that the capture saw. Where
// sizes vary it is for all that the guards let through, once it has been compiled for those.
struct CapturedRecording {
  Recording recording;
  std::optional<std::vector<py::object>> inputs;
  GlobalState state;
};

// That recording where it fits `args` and the state of this moment; in any case `ir` keeps it no
// longer, but for one with symbolic sizes that is to be compiled `again`.
std::optional<Recording> take_captured(TorchIr& ir, py::handle args, bool again = false);

// What is symbolic of an input: some sizes of a tensor, or a number.
struct DynamicInput {
  std::vector<bridge::DynamicDim> dims;
  std::optional<std::string> number_group = "";  // see Recorder::add_symbolic_number
};

struct RecordOptions {
  bool shape_rules = true;
  std::map<size_t, DynamicInput> dynamic;  // by input
};

// How a recording at the command of Python code is set up.
bridge::Recorder::Options recorder_options(bool shape_rules = true, bool symbolic = false,
                                           bridge::OfData of_data = {});

// The same for a branch or loop of another recording.
bridge::Recorder::Options options_of_region(const bridge::Recorder& around);

// Records one call with these example inputs (tensors, numbers, None). Notes the types of tensors
// in the Torch IR. Unsupported where the computation cannot be recorded; any other exception is one
// that the computation raised.
Recording record(TorchIr& ir, py::handle args, const RecordOptions& options = {});

// "RuntimeError: the first line of its message"
std::string one_line(const py::error_already_set& e);

// The recorder hears of the op that the function is, where its name is "torch.ops.mylib.foo" or
// "torch.ops.mylib.foo.default".
void expect_op(bridge::Recorder& recorder, std::string_view function);

// The result of a function of torch, recorded on fakes, in the layout that the function has in
// eager.
void lay_out_as_eager(std::string_view function, py::object& result);

}  // namespace oxy::python
