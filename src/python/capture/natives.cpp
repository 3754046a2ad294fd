// Maps of the rows of natives.def: by full name, by type, by name alone. What the interpreter
// follows instead of functions written in C that call what they are given: oxyfuel.polyfills.
#include "python/capture/natives.h"

#include <algorithm>
#include <unordered_map>

#include "python/capture/object_kinds.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

using namespace native;

constexpr const char* kPolyfills = "oxyfuel.polyfills";

std::string key_of(std::string_view module, std::string_view type, std::string_view name) {
  return cat(module, ":", type, ":", name);
}

struct Tables {
  std::vector<Native> rows;
  std::unordered_map<std::string, uint32_t> by_place;
  std::unordered_map<std::string_view, uint32_t> by_name;

  void add(std::string_view module, std::string_view type, std::string_view names,
           uint32_t traits) {
    while (!names.empty()) {
      const size_t end = std::min(names.find(' '), names.size());
      rows.push_back({module, type, names.substr(0, end), traits});
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }

  Tables() {
#define OXY_NATIVE(module, type, names, traits) add(module, type, names, traits);
#include "python/capture/natives.def"
#undef OXY_NATIVE
    for (const Native& n : rows) {
      by_place[key_of(n.module, n.type, n.name)] |= n.traits;
      by_name[n.name] |= n.traits;
    }
  }
};

const Tables& tables() {
  static const auto& all = *new Tables();
  return all;
}

template <typename Map, typename Key>
uint32_t found_in(const Map& map, const Key& key) {
  auto it = map.find(key);
  return it == map.end() ? 0 : it->second;
}

}  // namespace

const std::vector<Native>& native_table() { return tables().rows; }

uint32_t native_traits(std::string_view module, std::string_view type, std::string_view name) {
  return found_in(tables().by_place, key_of(module, type, name));
}

uint32_t type_traits(PyTypeObject* type) {
  static auto& known = *new std::unordered_map<PyTypeObject*, uint32_t>();  // types that stay
  const std::string_view name = type->tp_name;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
    return 0;  // a class of Python's
  if (auto it = known.find(type); it != known.end()) return it->second;
  const uint32_t traits = dot == std::string_view::npos
                              ? native_traits("builtins", "", name)
                              : native_traits(name.substr(0, dot), "", name.substr(dot + 1));
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) known.emplace(type, traits);
  return traits;
}

uint32_t method_traits(std::string_view name) { return found_in(tables().by_name, name); }

uint32_t target_traits(std::string_view target) {
  const size_t dot = target.rfind('.');
  return dot == std::string_view::npos
             ? tensor_traits(target)
             : native_traits(target.substr(0, dot), "", target.substr(dot + 1));
}

py::object polyfill_of(py::handle callable) {
  static const auto& table = *[] {
    auto* made = new std::unordered_map<PyObject*, py::object>();
    const RefusedFrames allowed(false);  // the import runs
    const py::module_ functions = py::module_::import(kPolyfills);
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
  return is_text(PyDict_GetItemString(PyFunction_GET_GLOBALS(function.ptr()), "__name__"),
                 kPolyfills);
}

}  // namespace oxy::python
