// What a captured graph relies on, as a list; guard_program.h makes a program of it.
#pragma once

#include <c10/util/SmallVector.h>

#include <iterator>
#include <span>
#include <unordered_map>
#include <vector>

#include "python/guards/source.h"
#include "python/guards/user_stack.h"

namespace oxy::python {

enum class GuardKind : uint8_t {
  TypeIs,  // type(source) is expected
  IdIs,    // source is expected
  Equals,  // same type and equal to expected: a constant (None, bool, int, float by its bits, str,
           // bytes, complex, torch constants, tuples, frozensets and slices of such)
  Compares,  // source, an int or float, compares with expected, a number, as it did: `number` is
             // twice the operator (Py_LT ...) plus the answer
  Length,    // len(source) == number: list, tuple, dict, set, deque
  HasKey,    // expected in source, a dict
  LacksKey,  // expected not in source, a dict
  Keys,    // list(source) == list(expected), a tuple: the keys of a dict, or the items of a set, in
           // order
  Tensor,  // the type of `expected`, a tensor, and all that torch_bridge/input_signature.h looks
           // at. The tensors of all such guards share storages as the expected ones did.
  Number,  // source, a tensor of one element in the CPU's memory, holds expected: a bool, int or
           // float
  Missing,  // `_PyType_Lookup(type, key)` finds nothing; source is a TypeAttribute
  SameAs,   // source is other
  NotSameAs,
};
// Their names, in order.
constexpr const char* kGuardKinds[] = {"TypeIs",  "IdIs",     "Equals",   "Compares", "Length",
                                       "HasKey",  "LacksKey", "Keys",     "Tensor",   "Number",
                                       "Missing", "SameAs",   "NotSameAs"};
static_assert(std::size(kGuardKinds) == static_cast<size_t>(GuardKind::NotSameAs) + 1);

struct Guard {
  GuardKind kind;
  SourceId source;
  py::object expected;
  int64_t number = 0;
  SourceId other;
  UserStack stack;
};

// New references to what a hit hands over. Raw ones: there may be hundreds, on every call.
class Fetched {
 public:
  Fetched() = default;
  Fetched(const Fetched&) = delete;
  Fetched& operator=(const Fetched&) = delete;
  ~Fetched() { clear(); }

  void reserve(size_t n) { objects_.reserve(n); }
  void add(PyObject* o) { objects_.push_back(Py_NewRef(o)); }
  void clear() {
    for (PyObject* o : objects_) Py_DECREF(o);
    objects_.clear();
  }
  std::span<PyObject* const> objects() const { return {objects_.data(), objects_.size()}; }

 private:
  c10::SmallVector<PyObject*, 16> objects_;
};

// Equal guards are kept once, the first one's stack with them; in the order of addition.
class GuardSet {
 public:
  void add(Guard guard);
  const std::vector<Guard>& guards() const { return guards_; }

 private:
  std::vector<Guard> guards_;
  std::unordered_multimap<size_t, size_t> by_hash_;
};

}  // namespace oxy::python
