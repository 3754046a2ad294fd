// Maps of the rows of natives.def: by full name, by type, by name alone.
#include "python/capture/natives.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "support/text.h"

namespace oxy::python {
namespace {

using namespace native;

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

}  // namespace oxy::python
