// What a captured graph relies on: where it found its objects (sources), what must hold of them
// (guards), and who asked. guard_program.h makes a program of it.
#pragma once

#include <c10/util/SmallVector.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "python/cpython/handles.h"
#include "support/ids.h"

namespace oxy::python {

struct SourceTag;
using SourceId = Id<SourceTag>;

// Where capture found an object: a path from an argument of the captured function, or from an
// object that stays what it is.
enum class SourceKind : uint8_t {
  Local,   // an argument of the captured function: `index` in its bound arguments, `key` its name
  Pinned,  // the object `key` itself: held, and reached through what other guards keep fixed (a
           // module's globals, a type, a function guarded by identity)
#define OXY_SOURCE(kind, method, parameter, text) kind,
#include "python/guards/kinds.def"
};

struct Source {
  SourceKind kind;
  SourceId base;  // none for Local and Pinned
  py::object key;
  int64_t index = 0;
};

// Equal sources get one id. Keys are str, int and other hashable constants; those of Pinned compare
// by identity.
class SourceTable {
 public:
  SourceId local(int64_t index, const std::string& name) {
    return add(SourceKind::Local, {}, index, py::str(name));
  }
  // The name is for printing: "G", "torch", "Linear".
  SourceId pinned(py::handle object, std::string_view name);
  std::optional<SourceId> find_pinned(py::handle object) const;
#define OXY_None(kind, method) \
  SourceId method(SourceId base) { return add(SourceKind::kind, base); }
#define OXY_Index(kind, method) \
  SourceId method(SourceId base, int64_t index) { return add(SourceKind::kind, base, index); }
#define OXY_Key(kind, method) \
  SourceId method(SourceId base, py::handle key) { return add(SourceKind::kind, base, 0, key); }
#define OXY_SOURCE(kind, method, parameter, text) OXY_##parameter(kind, method)
#include "python/guards/kinds.def"
#undef OXY_None
#undef OXY_Index
#undef OXY_Key

  const Source& operator[](SourceId id) const { return sources_[id]; }
  size_t size() const { return sources_.size(); }
  int traverse(visitproc visit, void* arg) const;  // as tp_traverse
  // As torch.compile prints it where it can: L['self'].layers[0].weight, G['torch'].
  std::string text(SourceId id) const;

 private:
  SourceId add(SourceKind kind, SourceId base, int64_t index = 0, py::handle key = {});

  IdMap<SourceId, Source> sources_;
  std::unordered_multimap<size_t, SourceId> by_hash_;
  std::unordered_map<PyObject*, SourceId> pinned_;
  std::map<uint32_t, std::string> names_;  // of pinned objects
};

// Where the captured code stood when it asked for something: kept by the thousand, read rarely. So
// it is a list of links to the callers, each with its code object, and the names are looked up when
// somebody reads them.
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

enum class GuardKind : uint8_t {
#define OXY_GUARD(kind, by_value, text, failure) kind,
#include "python/guards/kinds.def"
};
inline bool is_of_tensor(GuardKind kind) {
  return kind == GuardKind::Tensor || kind == GuardKind::SizedTensor;
}
// Their names, in order.
constexpr const char* kGuardKinds[] = {
#define OXY_GUARD(kind, by_value, text, failure) #kind,
#include "python/guards/kinds.def"
};

struct Guard {
  GuardKind kind;
  SourceId source;
  py::object expected;
  int64_t number = 0;
  SourceId other;
  UserStack stack;
  // Of Apart: sorted, as a walk comes to them; it looks at them all at the last one.
  std::vector<SourceId> all;
};

// New references to what a hit hands over. Raw ones: there may be hundreds, on every call.
class Fetched {
 public:
  Fetched() = default;
  Fetched(const Fetched&) = delete;
  Fetched& operator=(const Fetched&) = delete;
  ~Fetched() { clear(); }

  void reserve(size_t n) { objects_.reserve(n); }
  // Where `n` references can be put; filled() then tells how many were.
  PyObject** room(size_t n) {
    before_ = objects_.size();
    objects_.resize_for_overwrite(before_ + n);
    return objects_.data() + before_;
  }
  void filled(size_t n) { objects_.resize_for_overwrite(before_ + n); }
  void add(PyObject* o) { objects_.push_back(Py_NewRef(o)); }
  void take(PyObject* o) { objects_.push_back(o); }  // the reference itself
  void replace(size_t i, PyObject* o) { Py_SETREF(objects_[i], Py_NewRef(o)); }
  void shrink(size_t n) {
    for (PyObject* o : objects().subspan(n)) Py_DECREF(o);
    objects_.resize_for_overwrite(n);
  }
  void clear() { shrink(0); }
  std::span<PyObject* const> objects() const { return objects_; }

 private:
  c10::SmallVector<PyObject*, 16> objects_;
  size_t before_ = 0;
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
