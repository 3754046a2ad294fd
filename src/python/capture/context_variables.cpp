// Context variables: reading one leaves a guard on the value that the caller's context has. Writing
// one is a break.
#include "python/capture/capture.h"

namespace oxy::python {

bool is_of_context(py::handle o) {
  PyObject* p = o.ptr();
  return PyContextVar_CheckExact(p) || PyContext_CheckExact(p) || PyContextToken_CheckExact(p);
}

// A method of a context variable, a context or a token.
py::object Calls::call_of_context(py::handle self, const std::string& name, const Arguments& args,
                                  const Keywords& kwargs) {
  if (!PyContextVar_CheckExact(self.ptr()) || !heap().exists(self) || name != "get" ||
      args.size() > 1 || !kwargs.empty())
    throw Break(BreakId::context_variable, Py_TYPE(self.ptr())->tp_name, ".", name);
  auto value = [&](PyObject* otherwise) {
    PyObject* found = nullptr;
    check(PyContextVar_Get(self.ptr(), otherwise, &found));
    return owned(found);
  };
  const SourceId var = heap().tracked(self)->source, set = heap().sources.context_value(var, false);
  const py::object in_context = value(missing().ptr());
  if (!in_context.is(missing())) return heap().wrap(in_context, set);
  heap().guard(GuardKind::Missing, set);
  if (!args.empty()) return args[0];
  const SourceId any = heap().sources.context_value(var, true);
  if (const py::object own = value(nullptr)) return heap().wrap(own, any);
  heap().guard(GuardKind::Missing, any);
  raise_with(PyExc_LookupError, self);
}

}  // namespace oxy::python
