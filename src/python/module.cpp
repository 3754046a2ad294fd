// The extension module oxyfuel._C.
#include "python/after_fork.h"
#include "python/bindings.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Oxyfuel's compiler.";
  oxy::python::bind_settings(m);
  oxy::python::bind_recording(m);
  oxy::python::bind_execution(m);
  oxy::python::bind_guards(m);
  oxy::python::bind_bytecode(m);
  oxy::python::forget_other_threads_after_forks();
}
