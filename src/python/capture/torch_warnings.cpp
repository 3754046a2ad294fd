// Stands in for warnings.warn during such a call, and keeps what it was given.
#include "python/capture/torch_warnings.h"

#include <frameobject.h>

#include <algorithm>

#include "python/cpython/boundary.h"
#include "python/cpython/handles.h"

namespace oxy::python {
namespace {

py::object as_object(PyFrameObject* frame) { return owned(reinterpret_cast<PyObject*>(frame)); }

// (message, category, level or 0, file, line, globals): `level` is counted from the caller of
// warnings.warn, and frames in front of `boundary` stand for the captured ones.
py::tuple kept(py::handle message, py::handle category, int64_t level, py::handle boundary) {
  py::object frame = as_object(reinterpret_cast<PyFrameObject*>(Py_XNewRef(PyEval_GetFrame())));
  while (frame && !frame.is(boundary) && --level > 0)
    frame = as_object(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr())));
  if (!frame || frame.is(boundary))
    return py::make_tuple(message, category, std::max<int64_t>(level, 1), py::none(), 0,
                          py::none());
  const int line = PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame.ptr()));
  return py::make_tuple(message, category, 0, frame.attr("f_code").attr("co_filename"), line,
                        frame.attr("f_globals"));
}

// In the place of warnings.warn. `self`: the list, the thread, the real one, the frame that runs
// the capture.
PyObject* keep_one(PyObject* self, PyObject* args, PyObject* kwargs) {
  const auto held = py::reinterpret_borrow<py::tuple>(self);
  if (held[1].cast<unsigned long>() != PyThread_get_thread_ident())
    return PyObject_Call(py::object(held[2]).ptr(), args, kwargs);
  static const char* names[] = {"message", "category", "stacklevel", "source", nullptr};
  PyObject *message = nullptr, *category = Py_None, *source = Py_None;
  Py_ssize_t level = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OnO", const_cast<char**>(names), &message,
                                   &category, &level, &source))
    return nullptr;
  if (category == Py_None) category = PyExc_UserWarning;
  py::list(held[0]).append(kept(message, category, level, held[3]));
  return py::none().release().ptr();
}

PyObject* keep(PyObject* self, PyObject* args, PyObject* kwargs) {
  return boundary([=] { return keep_one(self, args, kwargs); }, nullptr);
}

py::module_ warnings() { return py::module_::import("warnings"); }

}  // namespace

TorchWarnings::TorchWarnings(py::handle callable) {
  if (!callable || !PyFunction_Check(callable.ptr())) return;
  static PyMethodDef method = {"warn", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(keep)),
                               METH_VARARGS | METH_KEYWORDS, nullptr};
  warn_ = warnings().attr("warn");
  auto* frame = reinterpret_cast<PyObject*>(PyEval_GetFrame());
  const py::object boundary = frame ? borrow(frame) : py::object(py::none());
  const py::tuple self = py::make_tuple(kept_, PyThread_get_thread_ident(), warn_, boundary);
  warnings().attr("warn") = owned(PyCFunction_New(&method, self.ptr()));
}

TorchWarnings::~TorchWarnings() {
  if (!warn_) return;
  const py::error_scope pending;  // the capture may end in an error
  boundary([this] { warnings().attr("warn") = warn_; });
}

std::vector<TorchWarning> TorchWarnings::given() const {
  std::vector<TorchWarning> out;
  for (py::handle one : kept_) {
    const auto t = py::reinterpret_borrow<py::tuple>(one);
    out.push_back({t[0], t[1], t[2].cast<size_t>(), t[3], t[5], t[4].cast<int>()});
  }
  return out;
}

}  // namespace oxy::python
