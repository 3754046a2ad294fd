// Guards and sources in the order of one full walk: each source once, parent before child, the
// guards on it at once.
#pragma once

#include "python/guards/evaluate.h"
#include "torch_bridge/input_signature.h"

namespace oxy::python {

struct WalkNode {
  SourceId id;
  SourceStep step;
  uint32_t first_guard = 0, last_guard = 0;  // in GuardWalk::order
  bool may_miss = false;                     // a Missing guard wants that nothing is found
  bool compared = false;                     // in a SameAs, NotSameAs or Apart
  std::vector<uint32_t> children;            // positions in GuardWalk::nodes
};

// Where in their storages tensors begin: of all, or of those that share a written one.
struct GuardedPlaces {
  bool all = false;
  std::vector<const void*> written;
};

class GuardWalk {
 public:
  GuardWalk(const SourceTable& sources, const GuardSet& guards, std::span<const SourceId> fetch,
            const GuardedPlaces& places);

  // Objects by source, borrowed; those that no guard needs stay nullptr.
  using Values = std::vector<PyObject*>;

  // Whether all holds. On true `values` has the objects of all needed sources.
  bool run(PyObject* const* locals, Values& values, Temporaries& made) const;

  PyObject* evaluate_node(const WalkNode& node, PyObject* const* locals, const Values& values,
                          Temporaries& made) const {
    PyObject* base = node.step.base ? values[node.step.base.index] : nullptr;
    if (node.step.base && !base) return nullptr;
    return evaluate(node.step, base, locals, made);
  }
  bool guard_holds(size_t guard, const Values& values) const {
    const Guard& g = guards_[guard];
    PyObject* value = values[g.source.index];
    if (!holds(g, value, g.other ? values[g.other.index] : nullptr)) return false;
    if (g.kind == GuardKind::Apart) return are_apart(g, values);
    return !is_of_tensor(g.kind) || tensor_holds(g, value);
  }
  bool guards_hold(const WalkNode& node, const Values& values) const {
    for (uint32_t i = node.first_guard; i < node.last_guard; ++i)
      if (!guard_holds(order_[i], values)) return false;
    return true;
  }

  // The storages of the tensors of the Tensor guards; whether they are shared as they were.
  std::vector<const void*> storages(const Values& values) const;
  std::vector<const void*> objects(const Values& values) const;
  bool sharing_holds(const Values& values) const;
  // Two of those tensors that are one object now: each was one of its own. The same index twice
  // where there are none. `tensors`: by position among the Tensor guards.
  using Tensors = std::span<const void* const>;
  std::pair<size_t, size_t> one_object(Tensors tensors) const;
  bool may_be_one_object() const { return !beside_others_.empty(); }
  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

  const SourceTable& sources() const { return sources_; }
  const std::vector<WalkNode>& nodes() const { return nodes_; }
  const std::vector<Guard>& guards() const { return guards_; }  // prepared
  const std::vector<uint32_t>& order() const { return order_; }
  const std::vector<SourceId>& fetch() const { return fetch_; }
  // The guards of tensors, and what their tensors were; `number` of such a guard is its position in
  // both.
  const std::vector<uint32_t>& tensor_guards() const { return tensor_guards_; }
  const bridge::InputSignature& tensors() const { return tensors_; }
  // What the tensor of guard `i` among them has in its __dict__ in front of a member of its class,
  // and had not when it was captured; null where there is nothing.
  PyObject* newly_hidden(size_t i, PyObject* tensor) const {
    return hidden_by(tensor, hidden_[i].ptr());
  }

 private:
  void take_tensors(const GuardedPlaces& places);
  static bool are_apart(const Guard& guard, const Values& values);
  bool tensor_holds(const Guard& guard, PyObject* value) const;
  void place_guards(const std::vector<std::vector<uint32_t>>& by_source);
  void link_nodes();

  SourceTable sources_;
  std::vector<Guard> guards_;
  std::vector<SourceId> fetch_;
  std::vector<WalkNode> nodes_;
  std::vector<uint32_t> order_;  // positions in guards_, by node
  std::vector<uint32_t> tensor_guards_;
  std::vector<uint32_t> beside_others_;  // tensors whose storage another one of them shares
  bridge::InputSignature tensors_;
  std::vector<py::tuple> hidden_;  // names of members that the tensors hid
};

// For people: what guards say, and what was found instead (guard_text.cpp).

// "type(L['x']) is int": guard `index` of the walk.
std::string guard_text(const GuardWalk& walk, size_t index);

// All of them with their kinds, below the user's stack that asked for them.
std::string guard_log(const GuardWalk& walk);

// A line a frame, innermost last.
std::string stack_text(const UserStack& stack);

// "L['x'] is a float, was an int": the guard does not hold for these objects (nullptr: nothing was
// found).
std::string failure_text(const GuardWalk& walk, size_t index, const GuardWalk::Values& values);

}  // namespace oxy::python
