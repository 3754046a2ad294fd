// Plans how to make again what captured code leaves behind: values, and what it wrote.
#pragma once

#include <map>
#include <unordered_set>

#include "python/capture/capture.h"
#include "python/cpython/types.h"

namespace oxy::python {

// One plan for all that is rebuilt together, so that an object is one object wherever it is met.
// What cannot be made again is a Break.
class RebuildPlan {
 public:
  explicit RebuildPlan(Capture& capture);

  void add_root(py::handle value);
  bool makes(py::handle o) const { return step_of_.contains(o.ptr()); }
  void add_effects();

  Rebuild rebuild;
  std::vector<ir::Arg> outputs;  // of the graph
  std::vector<at::Tensor> output_tensors;
  std::map<size_t, sym::Expr> output_numbers;             // in the place of tensors, by position
  std::unordered_set<const at::TensorImpl*> only_hooked;  // of them: nobody else gets them

 private:
  using Kind = RebuildStep::Kind;
  using Write = RebuildWrite::Kind;

  uint32_t place(py::handle o);
  uint32_t place_tensor(py::handle o);
  uint32_t place_output(py::handle o);
  uint32_t place_existing(py::handle o, SourceId source);
  uint32_t place_size(py::handle o);
  SourceId own_place(py::handle o);
  uint32_t place_made(py::handle o);
  uint32_t place_derived_value(py::handle o);
  uint32_t place_tuple(py::handle o);
  uint32_t place_instance(py::handle o);
  uint32_t constant(py::handle o);
  std::vector<uint32_t> place_all(py::handle iterable);

  // plan_objects.cpp: what is neither a list, a tuple, a dict, a set nor a plain object
  std::optional<uint32_t> place_special(py::handle o);
  uint32_t place_function(py::handle o);
  // arrays.cpp
  uint32_t place_array(py::handle o);
  std::optional<uint32_t> place_array_method(py::handle method);
  uint32_t place_call(py::handle o, py::handle callable, const std::vector<py::object>& arguments);
  uint32_t place_iterator(py::handle o);
  uint32_t place_lazy(py::handle o);
  uint32_t place_generator(py::handle o, const LazyIterator& generator);
  uint32_t place_reduced(py::handle o);
  py::object made_by(py::handle o, const py::tuple& reduced);
  uint32_t place_exception(py::handle o);
  uint32_t place_wrapper(py::handle o);
  uint32_t place_traceback(const std::vector<RaisedAt>& places);
  void fill_function(py::handle o, uint32_t step);
  void fill_slots(py::handle o, uint32_t step);
  py::list items_of_set(py::handle set);

  void add_effect(RebuildWrite write);
  void add_effects_on(const py::object& o);
  void add_dict_effects(py::handle dict);
  void add_list_effects(py::handle list);

  // A step for `o`; of one that can change, filled later.
  uint32_t add(py::handle o, RebuildStep step);
  uint32_t fill_later(py::handle o, uint32_t step);
  uint32_t add_unfilled(py::handle o, RebuildStep step);
  uint32_t add_instance(py::handle o, RebuildStep step);
  void fill_all();
  void fill(py::handle o, uint32_t step);
  void write(Write kind, uint32_t target, std::vector<uint32_t> parts);
  void fill_dict(uint32_t target, py::handle dict);
  void require_plain_hash(py::handle key);

  py::object attributes_of(py::handle o);
  bool made_here(py::handle o) const { return made_.contains(o.ptr()); }
  [[noreturn]] void refuse(py::handle o);

  Capture& capture_;
  std::unordered_map<PyObject*, uint32_t> step_of_;
  std::unordered_map<PyObject*, uint32_t> owner_;  // of a __dict__: the step of its object
  // Values that came with the call, by the first of their sources.
  std::optional<std::unordered_map<PyObject*, SourceId>> own_;
  std::vector<std::pair<py::object, uint32_t>> unfilled_;
  std::unordered_set<PyObject*> made_;
  std::unordered_set<uint32_t> iterated_;  // steps of dicts that have an iterator
  // By the places that they show: what stands for each, and its step.
  std::map<std::vector<std::tuple<PyObject*, int, int>>, std::pair<py::object, uint32_t>>
      tracebacks_;
  std::vector<py::object> kept_;  // addresses in the maps stay their own
  int depth_ = 0;
};

PyTypeObject* builtin_base(PyTypeObject* type);  // the nearest class that is written in C
// The dict that a view, an iterator or a proxy holds; null where there is none any more.
py::object dict_inside(py::handle o);
py::list plain_list(py::handle o);  // the items as that class has them
// Of a key that iteration gave. Both are a Break for an OrderedDict that was written to as a dict.
py::handle held_at(py::handle dict, py::handle key);
bool is_deque(py::handle o);

// What makes a result of one whose history a recorded backward has used up (gradients.cpp).
const py::object& spent_function();
const py::object& hidden_function();

}  // namespace oxy::python
