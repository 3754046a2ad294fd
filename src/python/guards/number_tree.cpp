// Numbers, computed with Python's own functions.
#include "python/guards/number_tree.h"

#include <algorithm>

#include "python/guards/evaluate.h"

namespace oxy::python {

py::object NumberTree::value(std::span<PyObject* const> objects) const {
  if (constant) return constant;
  if (!function) return borrow(objects[fetched]);
  std::vector<py::object> values;
  std::vector<PyObject*> arguments;
  for (const NumberTree& part : parts) {
    values.push_back(part.value(objects));
    if (!values.back()) return {};
    arguments.push_back(values.back().ptr());
  }
  PyObject* made = PyObject_Vectorcall(function.ptr(), arguments.data(), arguments.size(), nullptr);
  if (made == nullptr) PyErr_Clear();
  return owned(made);
}

bool NumberTree::depends_on_sizes() const {
  return size || std::ranges::any_of(parts, &NumberTree::depends_on_sizes);
}

bool NumberTree::is_same(const NumberTree& other) const {
  if (!constant != !other.constant || size != other.size || fetched != other.fetched ||
      !function.is(other.function) || parts.size() != other.parts.size())
    return false;
  if (constant && !same_constant(constant.ptr(), other.constant.ptr())) return false;
  return std::ranges::equal(parts, other.parts, &NumberTree::is_same);
}

void NumberTree::shift(uint32_t by, uint32_t sizes_by) {
  fetched += size ? sizes_by : by;
  for (NumberTree& part : parts) part.shift(by, sizes_by);
}

int NumberTree::traverse(visitproc visit, void* arg) const {
  Py_VISIT(constant.ptr());
  Py_VISIT(function.ptr());
  for (const NumberTree& part : parts)
    if (int stop = part.traverse(visit, arg)) return stop;
  return 0;
}

bool NumberGuard::holds(std::span<PyObject* const> objects) const {
  const py::object now = question.value(objects);
  if (now && !answer) return true;
  if (!now || Py_TYPE(now.ptr()) != Py_TYPE(answer.ptr())) return false;
  return PyObject_RichCompareBool(now.ptr(), answer.ptr(), Py_EQ) == 1;
}

}  // namespace oxy::python
