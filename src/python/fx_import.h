// torch.fx.GraphModule to Torch IR. call_module nodes become calls of the module as an object; the
// package inlines them first where it can (python/oxyfuel/fx.py).
#pragma once

#include <memory>

#include "python/torch_ir.h"

namespace oxy::python {

std::shared_ptr<TorchIr> torch_ir_from_fx(const py::object& graph_module);

// The frames of a stack trace as torch.fx keeps it in node.meta["stack_trace"], innermost last.
std::vector<ir::Frame> parse_stack_trace(std::string_view text);

}  // namespace oxy::python
