// Where the captured code stood when it asked for something: kept by the thousand, read rarely. So
// it is a list of links to the callers, each with its code object, and the names are looked up when
// somebody reads them.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <vector>

#include "ir/graph.h"

namespace oxy::python {

class UserStack {
 public:
  UserStack() = default;  // empty
  // `code`: of the innermost frame, which stands at `line`.
  UserStack(const UserStack& caller, PyCodeObject* code, int32_t line);
  explicit UserStack(std::vector<ir::Frame> frames);  // innermost last

  bool empty() const { return place_ == nullptr; }
  UserStack caller() const;
  ir::Frame innermost() const;
  std::vector<ir::Frame> frames() const;  // innermost last
  const void* id() const { return place_.get(); }

 private:
  struct Place;
  std::shared_ptr<const Place> place_;
};

}  // namespace oxy::python
