// What the interpreter follows instead of functions written in C that call what they are given:
// oxyfuel.polyfills.
#include "python/capture/capture.h"
#include "python/inner_frames.h"

namespace oxy::python {

constexpr const char* kModule = "oxyfuel.polyfills";

py::object polyfill_of(py::handle callable) {
  static const auto& table = *[] {
    auto* made = new std::unordered_map<PyObject*, py::object>();
    const RefusedFrames allowed(false);  // the import runs
    const py::module_ functions = py::module_::import(kModule);
    auto add = [&](const char* module, const char* name) {
      const py::object original = py::module_::import(module).attr(name);
      made->emplace(original.inc_ref().ptr(), functions.attr(name));
    };
    add("collections", "_count_elements");
    for (const char* name :
         {"accumulate", "takewhile", "dropwhile", "filterfalse", "groupby", "tee", "starmap"})
      add("itertools", name);
    return made;
  }();
  auto it = table.find(callable.ptr());
  return it == table.end() ? py::object() : it->second;
}

bool is_polyfill(py::handle function) {
  return is_text(PyDict_GetItemString(PyFunction_GET_GLOBALS(function.ptr()), "__name__"), kModule);
}

}  // namespace oxy::python
