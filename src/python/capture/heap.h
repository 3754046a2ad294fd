// The objects that captured code meets: what was there before the call, by its sources; which
// objects are one object; the guards; what is written to them.
#pragma once

#include <memory>
#include <unordered_set>

#include "python/capture/part.h"
#include "python/guards/guard.h"

namespace oxy::bridge {
struct DynamicDim;
}

namespace oxy::python {

struct TracedFrame;

// What captured code wrote to something that was there before, to be done once the graph has run.
struct Writes {
  py::dict items;           // of a dict by key, or attributes by name; missing() where deleted
  py::set moved;            // keys that were deleted and written again: they go to the end
  bool cleared = false;     // nothing of the old content is left
  py::object added;         // to a list of which nothing was read, or null
  py::object before;        // of a list or deque: its items when it was first written, a tuple
  py::list done;            // to a set: (SetChange, item), in order
  Py_ssize_t advanced = 0;  // of an iterator: items taken, and 1 where it was seen to be at its end
  bool driven = false;      // of an iterator: by the enumerate or zip around it
  bool at_end = false;
};

// Of a dict that was there before.
struct DictEntry {
  py::object key, value;
  Py_hash_t hash;  // that the dict knows the key by
};

struct Tracked {
  SourceId source;      // of what was there before
  py::object original;  // the real tensor behind a fake; the tuple behind a wrapped one
  py::object shadow;    // a list, dict, set or deque with its items wrapped, as it is by now
  std::unique_ptr<Writes> writes;
  std::optional<ir::ValueId> value;  // of tensors
  size_t graph = 0;                  // that has the value: InnerGraph::number, 0 for the outermost
};

class Heap : public Part {
 public:
  using Part::Part;

  py::object wrap(py::handle real, SourceId source);
  py::object wrap_tensor(py::handle real, SourceId source);
  // One more input of the graph.
  py::object add_input(py::handle real, SourceId source,
                       const std::vector<bridge::DynamicDim>& dims);
  bool is_module_state(SourceId source) const;
  py::object wrap_item(py::handle real, SourceId source);
  py::object wrap_held(py::handle real);
  Tracked* tracked(py::handle o);
  Tracked& found_at(py::handle o, SourceId source);  // it was there before; its first source stays
  bool is_tensor(py::handle o);
  bool is_view_of_normal_input(py::handle tensor);
  bool is_made_here(py::handle function);  // by the captured code
  bool exists(py::handle o);               // it was there before, and is not a constant
  bool mentions_existing(py::handle o);    // the same, or in tuples and frozensets
  // Code that is not torch's asks for an object's class or attributes, which the first call of a
  // lazy module changes.
  void note_question(py::handle o);
  bool was_asked_lazily(py::handle module) const { return asked_lazily_.contains(module.ptr()); }
  bool surely_lives(py::handle real);
  bool keeps_attributes(py::handle o);  // of the time before the call
  // Pinned, by this name, where it has none: as functions, whose parts are reached by it.
  SourceId source_of(py::handle existing, const std::string& name = "");
  const Source& root_of(SourceId source) const;  // the one that it begins with
  py::object contents(py::handle o);             // what to read instead of an existing container
  void guard(GuardKind kind, SourceId source, py::handle expected = {}, int64_t number = 0);
  void guard_pair(GuardKind kind, SourceId source, SourceId other);  // SameAs or NotSameAs
  std::vector<DictEntry> entries_of_objects(py::handle dict);
  py::object deep_contents(py::handle o, int depth = 0);
  bool is_same(py::handle a, py::handle b);
  void guard_one_object(py::handle o);
  py::object id_of(const py::object& o);
  void guard_apart(py::handle a, py::handle b, int depth = 0);
  void guard_key(py::handle o, int depth = 0);
  void guard_keys_apart();
  void guard_nothing_handled();  // by the code around the call

  Tracked& entry(PyObject* p) { return tracked_[p]; }  // made where there is none
  void hold(py::object o) { held_.push_back(std::move(o)); }
  const std::vector<py::object>& held() const { return held_; }
  void fix(PyObject* p) { fixed_.insert(p); }  // it is guarded by identity
  bool is_fixed(PyObject* p) const { return fixed_.contains(p); }
  const auto& existing() const { return existing_; }
  const auto& fakes() const { return fake_of_; }
  auto& stand_ins() { return stand_in_of_; }
  const auto& by_source() const { return by_source_; }
  void shadow(PyObject* shadow, PyObject* of) { shadowed_[shadow] = of; }
  // How often somebody has asked for what the captured code has written to.
  size_t met_written() const { return met_written_; }
  // How often a tensor was read of what was there before; of what was read already, while code is
  // rehearsed. What that code is given, with what lies in it, does not count.
  size_t met_tensors() const { return met_tensors_; }
  using Given = std::unordered_set<PyObject*>;
  std::optional<Given> begin_rehearsal(const Arguments& given);
  void end_rehearsal(std::optional<Given> around) { given_ = std::move(around); }
  const auto& shadowed() const { return shadowed_; }

  SourceTable sources;
  GuardSet guards;

 private:
  py::object wrap_slice(py::handle real, SourceId source);
  py::object wrap_tuple(py::handle real, SourceId source);
  py::object wrap_bound(py::handle real, SourceId source);
  py::object instead_of(py::handle real, SourceId source, const py::object& out);
  void wrap_function(py::handle real, SourceId source);
  bool is_made_anew(py::handle function, SourceId source) const;
  bool is_held_by(SourceId source);
  py::list items_of(py::handle o);
  py::object dict_items(py::handle o);
  py::object items_of_objects(py::handle o);
  py::object set_items(py::handle o);
  std::vector<SourceId> places_of(py::handle o);
  void guard_two_objects(py::handle a, py::handle b);
  void note_handed_out(py::handle container);

  std::unordered_map<PyObject*, Tracked> tracked_;
  std::unordered_map<SourceId, py::object> by_source_;
  std::unordered_map<PyObject*, py::object> fake_of_;      // by real tensor
  std::unordered_map<PyObject*, py::object> stand_in_of_;  // by tuple, method or super object
  std::vector<py::object> held_;
  std::unordered_map<PyObject*, PyObject*> shadowed_;  // by shadow: what was there before
  std::unordered_set<PyObject*> fixed_;                // guarded by identity
  size_t met_written_ = 0, met_tensors_ = 0;
  std::optional<Given> given_;                                             // to what is rehearsed
  std::unordered_map<PyTypeObject*, std::vector<py::object>> identified_;  // by id_of
  std::vector<py::object> keys_;  // of before the call, each once
  std::unordered_set<PyObject*> are_keys_;
  std::unordered_set<PyObject*> asked_lazily_;  // modules
  // What was there before, apart from what is guarded by identity.
  std::vector<py::object> existing_;
};

enum SetChange : int { kDiscarded, kPut, kPopped };

// What captured code writes to what was there before, to be done once the graph has run.
class Effects : public Part {
 public:
  using Part::Part;

  Writes& writes_of(py::handle o);
  py::object written(py::handle dict, py::handle key);
  py::object dict_get(py::handle dict, py::handle key);  // null where it is not there
  bool dict_has(py::handle dict, py::handle key);
  py::object key_of_size(py::handle inside, const py::object& size);
  void dict_write(py::handle dict, py::handle key, py::handle value);
  void dict_delete(py::handle dict, py::handle key);
  void dict_update(py::handle dict, const Arguments& args, const Keywords& kwargs);
  py::object sequence_to_write(py::handle o);
  void sort(py::object list, const Keywords& kwargs);
  void set_put(py::handle set, py::handle item, bool in);
  Done change_existing(py::handle self, const std::string& name, Arguments& args, Keywords& kwargs);
  py::object read_cell(py::handle cell);
  void write_cell(py::handle cell, py::handle value);
  void write_attribute(py::handle o, py::handle name, py::handle value);
  PyObject* lookup(PyTypeObject* type, py::handle name);
  bool is_written_on(PyTypeObject* type, py::handle name);
  bool writes_classes() const { return !type_writes_.empty(); }
  void write_type(py::handle type, py::handle name, py::handle value);
  void guard_distinct();

  const std::vector<py::object>& all_written() const { return written_; }
  bool no_type_is_written() const { return type_writes_.empty(); }
  size_t count() const { return writes_; }

 private:
  bool check_key(py::handle key);
  py::object find_by_code(py::handle dict, py::handle asked);
  bool is_reference_key(py::handle key) const;
  py::object find_reference(py::handle dict, py::handle asked);
  py::object key_in(py::handle dict, py::handle key);
  Done dict_method(py::handle dict, const std::string& name, Arguments& args, Keywords& kwargs);
  Done list_method(py::handle list, const std::string& name, Arguments& args, Keywords& kwargs);
  Done deque_method(py::handle deque, const std::string& name, Arguments& args, Keywords& kwargs);
  Done set_method(py::handle set, const std::string& name, Arguments& args);

  std::vector<py::object> written_;  // what has `Writes`, in the order of the first
  std::unordered_map<PyObject*, std::unique_ptr<Writes>> type_writes_;
  size_t writes_ = 0;  // to what was there before
};

// What stands for arrays and scalars of NumPy.
class Arrays : public Part {
 public:
  using Part::Part;

  py::object wrap_array(py::handle real, SourceId source);
  SourceId source_of_array(py::handle array) const;
  py::object array_over(py::handle tensor, const Arguments& args, const Keywords& kwargs);
  void refuse_sampler(PyFunctionObject* function, const Arguments& args, const Keywords& kwargs);
  Done call_numpy(py::handle callable, Arguments& args, Keywords& kwargs);
  py::object call_array_code(TracedFrame& frame);
  // Of a call of the function with this name.
  Arguments with_numbers(std::string_view word, const Arguments& args, bool varies);
  // The number in a NumPy scalar of before the call, of which this tensor is the memory: one that
  // may vary, as Python's. Null for all else.
  py::object number_of_scalar(py::handle tensor);
  // As Python's own number, which compares with others as it does; null for all else.
  py::object as_python_number(const py::object& o);
  // A NumPy scalar of before the call itself, guarded by its value, in the place of what stands for
  // it; anything else as it is.
  py::object with_scalars(const py::object& o, bool also_varying = true);
  // The same of a key that C code hashes, also of a scalar that the code has made of constants; of
  // what is hashed and compared as an object, that its class does not come to say otherwise.
  py::object as_key(const py::object& o);
  // The same of the items, or the first of the pairs, that a dict or set is filled with.
  void guard_keys_in(const py::object& o);
  // Of what stands for an array, as a key that C code has asked for its hash.
  static bool is_refusal(const py::error_already_set& e);
  bool in_array_code() const;
  bool is_of_array_code(SourceId source) const;

  bool are_inputs() const { return has_array_inputs_; }

 private:
  Arguments with_computed_floats(std::string_view word, const Arguments& args);
  std::unordered_map<PyObject*, SourceId> array_sources_;  // of arrays that were there before
  bool has_array_inputs_ = false;
};

}  // namespace oxy::python
