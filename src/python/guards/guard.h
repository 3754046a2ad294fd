// What a captured graph relies on, as a list; guard_program.h makes a program of it.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "python/guards/source.h"

namespace oxy::python {

enum class GuardKind : uint8_t {
  TypeIs,  // type(source) is expected
  IdIs,    // source is expected
  Equals,  // same type and equal to expected: a constant (None, bool, int, float by its bits, str, bytes, complex, torch
           // constants, tuples, frozensets and slices of such)
  Length,  // len(source) == number: list, tuple, dict, set, deque
  HasKey,  // expected in source, a dict
  LacksKey,  // expected not in source, a dict
  Keys,  // list(source) == list(expected), a tuple: the keys of a dict, or the items of a set, in order
  Tensor,  // the type and requires_grad of `expected`, a tensor; its metadata is the business of InputSignature
  Missing,  // `_PyType_Lookup(type, key)` finds nothing; source is a TypeAttribute
  SameAs,   // source is other
  NotSameAs,
};

struct Guard {
  GuardKind kind;
  SourceId source;
  py::object expected;
  int64_t number = 0;
  SourceId other;
  std::vector<ir::Frame> stack;  // the user's, innermost last
};

// Equal guards are kept once, the first one's stack with them; in the order of addition.
class GuardSet {
 public:
  void add(Guard guard);
  const std::vector<Guard>& guards() const { return guards_; }

 private:
  std::vector<Guard> guards_;
  std::multimap<size_t, size_t> by_hash_;
};

}  // namespace oxy::python
