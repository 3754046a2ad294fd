// The extension module oxyfuel_bytecode: the bytecode layer alone, for a Python without torch.
#include <exception>

#include "python/bytecode/code.h"
#include "python/cpython/boundary.h"

void oxy::python::raise_in_python() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

PyMODINIT_FUNC PyInit_oxyfuel_bytecode() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "oxyfuel_bytecode",
                                   nullptr,
                                   -1,
                                   oxy::python::bytecode_functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  return PyModule_Create(&definition);
}
