// The extension module oxyfuel._C.
#include "python/bindings.h"
#include "python/cpython/compile_lock.h"
#include "python/inner_frames.h"
#include "torch_bridge/interpreter_vtable.h"

namespace {

// A forked process has to forget the captures and compilations of threads that it does not have.
void forget_other_threads_after_forks() {
  const pybind11::object module = pybind11::module_::import("os");
  if (!pybind11::hasattr(module, "register_at_fork")) return;
  module.attr("register_at_fork")(pybind11::arg("after_in_child") = pybind11::cpp_function([] {
                                    oxy::python::CompileLock::renew();
                                    oxy::python::forget_frames_of_other_threads();
                                    oxy::bridge::forget_recordings_of_other_threads();
                                  }));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Oxyfuel's compiler.";
  oxy::python::bind_settings(m);
  oxy::python::bind_recording(m);
  oxy::python::bind_execution(m);
  oxy::python::bind_guards(m);
  oxy::python::bind_bytecode(m);
  forget_other_threads_after_forks();
}
