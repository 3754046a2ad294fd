// Where capture found an object: a path from an argument of the captured function, or from an
// object that stays what it is.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/cpython/handles.h"
#include "support/ids.h"

namespace oxy::python {

namespace py = pybind11;

struct SourceTag;
using SourceId = Id<SourceTag>;

enum class SourceKind : uint8_t {
  Local,   // an argument of the captured function: `index` in its bound arguments, `key` its name
  Pinned,  // the object `key` itself: held, and reached through what other guards keep fixed (a
           // module's globals, a type, a function guarded by identity)
  InstanceDict,   // base.__dict__, the real dict (made if it was not there)
  TypeAttribute,  // what _PyType_Lookup finds for the name `key` on the type `base`
  Attribute,      // getattr(base, key) by a descriptor written in C (a slot, a member)
  DictItem,       // base[key] of a dict or a subclass, by dict's own lookup
  Item,           // base[index] of a list, tuple or deque, by their own storage
  CellContents,   // base is a cell
  Closure,        // base is a function: the cell `index` of its closure
  Default,        // base is a function: __defaults__[index]
  KwDefault,      // base is a function: __kwdefaults__[key]
  Code,           // base is a function: __code__
  NextPopped,     // base is a set: the item that its pop() takes next
  NextItem,  // base is an iterator written in C: what it gives when `index` items more are taken
  Referent,  // base is a weakref.ref: what it refers to, None where that is gone
  ContextValue,  // base is a context variable: its value in the current context; where `index` is
                 // 1, else its default
  Handled,  // base is sys.exc_info: the exception that the code around the call deals with, or None
  Key,      // base is a dict or a set: key or item `index` in its order
  IteratorPart,  // base is an enumerate or zip: part `index` of what its __reduce__ tells
  Answer,        // base is a function of torch's, written in C: what it gives for the tuple `key`
  ArrayTensor,   // base is a numpy.ndarray or a NumPy scalar: a tensor of it, another one each time
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
  SourceId instance_dict(SourceId base) { return add(SourceKind::InstanceDict, base); }
  SourceId type_attribute(SourceId base, py::handle name) {
    return add(SourceKind::TypeAttribute, base, 0, name);
  }
  SourceId attribute(SourceId base, py::handle name) {
    return add(SourceKind::Attribute, base, 0, name);
  }
  SourceId dict_item(SourceId base, py::handle key) {
    return add(SourceKind::DictItem, base, 0, key);
  }
  SourceId item(SourceId base, int64_t index) { return add(SourceKind::Item, base, index); }
  SourceId cell_contents(SourceId base) { return add(SourceKind::CellContents, base); }
  SourceId closure(SourceId base, int64_t index) { return add(SourceKind::Closure, base, index); }
  SourceId default_(SourceId base, int64_t index) { return add(SourceKind::Default, base, index); }
  SourceId kw_default(SourceId base, py::handle name) {
    return add(SourceKind::KwDefault, base, 0, name);
  }
  SourceId code(SourceId base) { return add(SourceKind::Code, base); }
  SourceId next_popped(SourceId base) { return add(SourceKind::NextPopped, base); }
  SourceId next_item(SourceId base, int64_t index) {
    return add(SourceKind::NextItem, base, index);
  }
  SourceId referent(SourceId base) { return add(SourceKind::Referent, base); }
  SourceId context_value(SourceId base, bool or_default) {
    return add(SourceKind::ContextValue, base, or_default);
  }
  SourceId handled(SourceId base) { return add(SourceKind::Handled, base); }
  SourceId key(SourceId base, int64_t index) { return add(SourceKind::Key, base, index); }
  SourceId iterator_part(SourceId base, int64_t index) {
    return add(SourceKind::IteratorPart, base, index);
  }
  SourceId answer(SourceId base, const py::tuple& args) {
    return add(SourceKind::Answer, base, 0, args);
  }
  SourceId array_tensor(SourceId base) { return add(SourceKind::ArrayTensor, base); }

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

}  // namespace oxy::python
