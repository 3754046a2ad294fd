// What the parts of a capture have in common: each reaches the others through the capture.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <ranges>
#include <string_view>

#include "python/cpython/handles.h"

namespace oxy::python {

using Arguments = std::vector<py::object>;
using Keywords = std::vector<std::pair<py::object, py::object>>;
using Done = std::optional<py::object>;  // what a call gave; null where others have to do it

// Whether it is one of these words, with blanks between them.
inline bool has_word(std::string_view words, std::string_view word) {
  for (auto one : std::views::split(words, ' '))
    if (std::string_view(one.begin(), one.end()) == word) return true;
  return false;
}

inline py::dict dict_of(const Keywords& kwargs) {
  py::dict out;
  for (const auto& [key, value] : kwargs) out[key] = value;
  return out;
}

// The fields of a structseq behind those of its tuple, by name: the tm_zone of a time.
py::dict hidden_fields(py::handle tuple);

// A tuple of the class of `like`, of these items and hidden fields.
py::object tuple_like(py::handle like, const py::object& items, const py::dict& hidden);

// A list, tuple, dict or slice with `each` of its items instead; itself where all are the same.
template <class Each>
py::object with_items(const py::object& o, const Each& each) {
  PyObject* p = o.ptr();
  if (PySlice_Check(p)) {
    auto* s = reinterpret_cast<PySliceObject*>(p);
    return steal(PySlice_New(each(borrow(s->start)).ptr(), each(borrow(s->stop)).ptr(),
                             each(borrow(s->step)).ptr()));
  }
  if (PyDict_CheckExact(p)) {
    py::dict out;
    for (auto [key, value] : py::dict(o)) out[key] = each(borrow(value));
    return std::move(out);
  }
  if (!PyList_CheckExact(p) && !PyTuple_Check(p)) return o;
  py::list items;
  bool same = true;
  for (py::handle item : o) {
    const py::object now = each(borrow(item));
    same &= now.is(item);
    items.append(now);
  }
  const py::dict hidden = hidden_fields(o);
  for (auto [name, value] : hidden) {
    const py::object now = each(borrow(value));
    same &= now.is(value);
    hidden[name] = now;
  }
  if (same) return o;
  if (PyList_Check(p)) return std::move(items);
  return tuple_like(o, items, hidden);
}

class Capture;
class Heap;
class Effects;
class Iterators;
class Numbers;
class Sizes;
class Objects;
class Classes;
class Arrays;
class Calls;
class Frames;
class Graphs;
class RandomDraws;
class Inference;
class Wrappers;

class Part {
 public:
  explicit Part(Capture& capture) : capture_(capture) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 protected:
  Heap& heap() const;
  Effects& effects() const;
  Iterators& iterators() const;
  Numbers& numbers() const;
  Sizes& sizes() const;
  Objects& objects() const;
  Classes& classes() const;
  Arrays& arrays() const;
  Calls& calls() const;
  Frames& frames() const;
  Graphs& graphs() const;
  RandomDraws& draws() const;
  Inference& inference() const;
  Wrappers& wrappers() const;

  Capture& capture_;
};

}  // namespace oxy::python
