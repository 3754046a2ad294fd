// What capture knows of functions, types, methods and attributes written in C (natives.def).
#pragma once

#include "python/cpython/handles.h"

#include <string>
#include <string_view>
#include <vector>

namespace oxy::python {

namespace native {

// What a row of the table may say.
enum Trait : uint32_t {
  Pure = 1 << 0,          // depends on its arguments alone
  ReadsFrame = 1 << 1,    // looks at the frame of its caller
  TakesFirst = 1 << 2,    // goes through its first argument to the end
  TakesEach = 1 << 3,     // ... through each argument
  TakesAll = 1 << 4,      // a type: takes all items of what it is given at once
  TakesApart = 1 << 5,    // an iterator: takes what it is given apart, and calls nothing
  Keeps = 1 << 6,         // puts its arguments in, or looks for them, and does not take them apart
  Compares = 1 << 7,      // compares its arguments with what is in the container
  Reads = 1 << 8,         // changes nothing
  Changes = 1 << 9,       // changes its container in a way that a copy can be changed in
  Extends = 1 << 10,      // puts all items of its argument in
  InPlace = 1 << 11,      // an operator that changes its first operand
  OfIterator = 1 << 12,   // what a lazy iterator's stand-in may be asked for
  PartOfAlias = 1 << 13,  // what a generic alias or a union holds
  OperatorObject = 1 << 14,  // itemgetter and its kind
  EndsLate = 1 << 15,        // an iterator: code of the user's may run when it dies
  Reducible = 1 << 16,       // an iterator: its __reduce__ says all of it
  AsItIs = 1 << 17,          // ... and asks no class of the user's for its __iter__
  Scalar = 1 << 18,          // of NumPy: stands for a tensor without dimensions
  FixedAttribute = 1 << 19,  // of a tensor: the guards on its metadata keep it fixed
  FixedMethod = 1 << 20,     // the same, of a method
  ViewAttribute = 1 << 21,   // of a tensor: a view, a node of the graph
  ReadsValue = 1 << 22,      // of a tensor: Python gets what it holds
  NotInGraph = 1 << 23,      // of a tensor: no graph can have it
  OfNumbers = 1 << 24,       // makes a tensor of two numbers
  // Its result is a new tensor, constant where its arguments are (constant_numbers.cpp).
  Computes = 1 << 25,
  Converts = 1 << 26,    // ... or the tensor itself
  TakesSizes = 1 << 27,  // a constant tensor stands for a size
  ByElement = 1 << 28,   // makes each element from the same element of its arguments
  From312 = 1 << 29,     // CPython 3.11 does not have it
  From311 = 1 << 30,     // CPython 3.10 does not have it
};

}  // namespace native

struct Native {
  std::string_view module, type, name;
  uint32_t traits;
};
const std::vector<Native>& native_table();

// The traits of what a module, or one of its types, has by this name; 0 where no row says anything.
uint32_t native_traits(std::string_view module, std::string_view type, std::string_view name);
// Of a type by its name: "itertools.chain", "list_iterator".
uint32_t type_traits(PyTypeObject* type);
// Of a method, or a function, of this name, which means the same thing for all containers.
uint32_t method_traits(std::string_view name);
// Of what a node of the Torch IR calls: "torch.add", "operator.add", or a tensor's method.
uint32_t target_traits(std::string_view target);
// The name in torch of a function that is called as a whole, "torch.?" for one that cannot be found
// by a name; empty for all else.
std::string torch_name(py::handle callable);
inline uint32_t tensor_traits(std::string_view name) {
  return native_traits("torch", "Tensor", name);
}

}  // namespace oxy::python
