// What stands for a float that comes of sizes, or varies, in captured code: an object that can lie
// anywhere, in a container, an attribute, an argument. Captured code sees a float
// (Objects::type_of, isinstance). What it is made of is known to the capture, which is its owner:
// sums, products and the like are such floats again, comparisons are decided there, and whoever
// needs the number itself (a hash, a text, any function in C that asks for a float) gets it, with
// guards that it is this one.
#pragma once

#include <vector>

#include "python/cpython/handles.h"
#include "python/symbolic_int.h"

namespace oxy::python {

class FloatOwner {
 public:
  // The float that it is in this call, guarded.
  virtual py::object guarded_float(const py::object& symbolic) = 0;
  // What a function of the module operator makes of numbers; null where it is to be done on plain
  // ones.
  virtual py::object combined(const py::object& function, const std::vector<py::object>& args) = 0;
  virtual py::object compared(const py::object& a, const py::object& b, int operation) = 0;

 protected:
  ~FloatOwner() = default;
};

bool is_symbolic_float(py::handle o);
inline bool is_symbolic(py::handle o) {
  return is_symbolic_int(o) || is_symbolic_bool(o) || is_symbolic_float(o);
}
// Of what is symbolic: the number, guarded.
py::object guarded_number(py::handle symbolic);

py::object symbolic_float(FloatOwner& owner);
// Of one whose owner is gone nobody knows the number.
void disown(py::handle symbolic);
FloatOwner& owner_of(py::handle symbolic);

}  // namespace oxy::python
