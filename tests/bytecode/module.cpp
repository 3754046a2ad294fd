// The extension module oxyfuel_bytecode: the bytecode layer alone, for a Python without torch.
#include "python/bytecode/python_functions.h"

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
