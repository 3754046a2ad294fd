// Looked up in the modules of torch that the program has imported.
#include "python/torch_settings.h"

namespace oxy::python {
namespace {

constexpr const char* kDynamo = "torch._dynamo.config";

py::object object_of(const char* module, const char* name) {
  PyObject* config = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  return config ? py::getattr(config, name, py::none()) : py::none();
}

}  // namespace

bool setting_of(const char* module, const char* name, bool usual) {
  const py::object value = object_of(module, name);
  return PyBool_Check(value.ptr()) ? value.ptr() == Py_True : usual;
}

bool dynamo_setting(const char* name, bool usual) { return setting_of(kDynamo, name, usual); }

size_t dynamo_number(const char* name, size_t usual) {
  const py::object value = object_of(kDynamo, name);
  if (!PyLong_Check(value.ptr())) return usual;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow > 0) return SIZE_MAX;
  return number > 0 ? static_cast<size_t>(number) : 0;
}

py::object dynamo_object(const char* name) {
  py::object value = object_of(kDynamo, name);
  return value.is_none() ? py::object() : value;
}

std::string compiler_text(const char* name) {
  const py::object value = object_of("torch.compiler.config", name);
  return PyUnicode_Check(value.ptr()) ? value.cast<std::string>() : "";
}

std::optional<bool> chosen_setting(const char* name) {
  const py::object is_default = object_of(kDynamo, "_is_default");
  if (is_default.is_none() || is_default(name).cast<bool>()) return std::nullopt;
  return dynamo_setting(name, false);
}

}  // namespace oxy::python
