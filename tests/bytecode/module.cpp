// The extension module oxyfuel_bytecode: the bytecode layer alone, for a Python without torch.
#include <exception>
#include <utility>

#include "python/bytecode/code.h"
#include "python/cpython/boundary.h"
#include "python/cpython/opcodes.h"

void oxy::python::raise_in_python() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

using namespace oxy::python;

PyMODINIT_FUNC PyInit_oxyfuel_bytecode() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "oxyfuel_bytecode",
                                   nullptr,
                                   -1,
                                   bytecode_functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  PyObject* module = PyModule_Create(&definition);
  const std::pair<const char*, bool> habits[] = {{"raises_in_front", kRaisesInFront},
                                                 {"keywords_or_null", kKeywordsOrNull},
                                                 {"conditions_are_bools", kConditionsAreBools},
                                                 {"calls_take_null", kCallsTakeNull},
                                                 {"has_resume", kHasResume},
                                                 {"cells_made_at_entry", kCellsMadeAtEntry}};
  for (const auto& [name, value] : habits)
    if (module != nullptr && PyModule_AddIntConstant(module, name, value) < 0) return nullptr;
  return module;
}
