#include "python/after_fork.h"

#include <torch/csrc/utils/pybind.h>

#include "python/cpython/compile_lock.h"
#include "python/inner_frames.h"
#include "torch_bridge/interpreter_vtable.h"

namespace oxy::python {

void forget_other_threads_after_forks() {
  const py::object module = py::module_::import("os");
  if (!py::hasattr(module, "register_at_fork")) return;
  module.attr("register_at_fork")(py::arg("after_in_child") = py::cpp_function([] {
                                    CompileLock::renew();
                                    forget_frames_of_other_threads();
                                    bridge::forget_recordings_of_other_threads();
                                  }));
}

}  // namespace oxy::python
