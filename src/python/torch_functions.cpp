// Sets of torch's functions: what is there now, compared with those that there were.
#include "python/torch_functions.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "python/cpython/changes.h"
#include "python/cpython/handles.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

constexpr std::array kModules{"torch", "torch.functional", "torch.nn.functional"};
// Functions of torch that no other one calls, and that programs replace.
constexpr std::array<std::string_view, 3> kCalledByUsers{"compile", "load", "save"};
// How many sets are remembered, those that were seen last: what code puts back is known again.
constexpr size_t kSets = 16;

PyTypeObject* tensor_class() {  // its bases are torch.Tensor's
  return as_type(member_of<"torch.nn", "Parameter">());
}

// Of the class, 0 where it has to be looked at, and the modules.
using Versions = std::array<uint64_t, 1 + kModules.size()>;

struct Set {
  uint32_t number = 0;
  std::vector<py::dict> members;  // by class and module
  bool patched = false;
};

// Of a function in Python: torch wraps some of its own when TorchDynamo is imported.
py::object unwrapped(py::handle function) {
  py::object inner = borrow(function);
  while (PyFunction_Check(inner.ptr()) && !is_put_by_user(inner.ptr()) &&
         py::hasattr(inner, "__wrapped__"))
    inner = inner.attr("__wrapped__");
  return inner;
}

bool same_members(const py::dict& a, const py::dict& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(
      a, [&](auto item) { return PyDict_GetItem(b.ptr(), item.first.ptr()) == item.second.ptr(); });
}

class Sets {
 public:
  const Set& now() {
    const Versions versions = read_versions();
    if (versions_ != versions || versions[0] == 0) [[unlikely]] {
      look();
      versions_ = versions;
    }
    return *current_;
  }

 private:
  Versions read_versions() const {
    static PyObject* const name = PyUnicode_InternFromString("__add__");
    if (type_version(type_) == 0) _PyType_Lookup(type_, name);  // gives it one
    Versions out{type_version(type_)};
    for (size_t i = 0; i < kModules.size(); i++) out[i + 1] = dict_version(modules_[i].ptr());
    return out;
  }

  void look() {
    Set found;
    for (py::handle base : borrow(type_->tp_mro))
      if (!base.is(type_object(&PyBaseObject_Type)))
        found.members.push_back(steal(PyDict_Copy(type_dict(as_type(base)))));
    const auto shows = [](std::string_view name) {  // code that is in no graph
      return name == "__repr__" || name == "__format__";
    };
    for (const py::dict& members : found.members)
      for (auto [name, value] : members)
        found.patched |= is_put_by_user(value.ptr()) && was_there(name, found.members.back()) &&
                         !shows(view_of(name.ptr()));
    for (const py::object& module : modules_) found.members.push_back(functions(module, found));
    if (first_.empty()) first_ = found.members;
    remember(std::move(found));
  }

  // Those that were there at first: torch's own code knows no others, and torch imports some late.
  py::dict functions(py::handle module, Set& found) const {
    py::dict out;
    const size_t place = found.members.size();
    for (auto [name, value] : py::reinterpret_borrow<py::dict>(module)) {
      if (!PyFunction_Check(value.ptr()) && !PyCFunction_Check(value.ptr())) continue;
      if (std::ranges::count(kCalledByUsers, view_of(name.ptr())) > 0) continue;
      if (!first_.empty() && !first_[place].contains(name)) continue;
      out[name] = unwrapped(value);
      found.patched |= is_put_by_user(value.ptr());
    }
    return out;
  }

  // Whether tensors had something by this name, in C or when they were first looked at.
  bool was_there(py::handle name, const py::dict& tensor_base) const {
    constexpr size_t kTensor = 1;  // behind Parameter
    return tensor_base.contains(name) || (!first_.empty() && first_[kTensor].contains(name));
  }

  void remember(Set found) {
    Set dropped;  // at the end: it may run code of the user's
    auto known = std::ranges::find_if(sets_, [&](const Set& s) {
      return std::ranges::equal(s.members, found.members, same_members);
    });
    if (known != sets_.end()) {
      std::rotate(known, known + 1, sets_.end());
    } else {
      found.number = next_++;
      sets_.push_back(std::move(found));
      if (sets_.size() > kSets) {
        std::swap(dropped, sets_.front());
        sets_.erase(sets_.begin());
      }
    }
    current_ = &sets_.back();
  }

  PyTypeObject* const type_ = tensor_class();
  const std::array<py::object, kModules.size()> modules_ = [] {
    std::array<py::object, kModules.size()> out;
    for (size_t i = 0; i < kModules.size(); i++) {
      out[i] = py::module_::import(kModules[i]).attr("__dict__");
      tracked_version(out[i].ptr());
    }
    return out;
  }();
  Versions versions_{};
  std::vector<py::dict> first_;  // the members of the first one
  std::vector<Set> sets_;        // the one that was last found is last
  const Set* current_ = nullptr;
  uint32_t next_ = 0;
};

const Set& now() {
  static Sets& sets = *new Sets();
  return sets.now();
}

}  // namespace

uint32_t torch_functions() { return now().number; }

bool is_torch_patched() { return now().patched; }

bool is_put_by_user(PyObject* o) {
  if (PyObject_TypeCheck(o, &PyProperty_Type)) {
    const py::object getter = py::handle(o).attr("fget");
    return PyFunction_Check(getter.ptr()) && is_put_by_user(getter.ptr());
  }
  if (!PyFunction_Check(o)) return false;
  const std::string_view home = written_in(as_function(o));
  return !home.starts_with("torch") && !home.starts_with("typing");
}

}  // namespace oxy::python
