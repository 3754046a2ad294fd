// C++ exceptions as Python's, for the extension oxyfuel._C.
#include "python/cpython/boundary.h"

#include <torch/csrc/utils/pybind.h>

namespace oxy::python {

void raise_in_python() noexcept {
  try {
    throw;
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const py::builtin_exception& e) {
    e.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "an exception of C++ that is no std::exception");
  }
}

}  // namespace oxy::python
