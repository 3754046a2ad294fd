// One capture: a function is interpreted on the real objects that it meets, tensors apart, which are fakes.
//
// Whatever the code makes (lists, dicts, objects, closures) is really made, with fakes in the place of tensors, so that
// CPython's own types give it its meaning. What was there before the call (found through a source) is never changed and
// never handed to code that the interpreter does not see: reading from it leaves a guard. Calls of torch run on the fakes
// and become nodes of the Torch IR. A Break ends the capture; an exception of the captured code unwinds its frames as in
// CPython and, when nobody handles it, comes out of `run` as it is.
//
// Instructions are counted, and the same function on the same arguments takes the same steps. So what could be captured in
// front of a break is had by a second capture that stops at the step which the Break names (graph_break.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "python/capture/break.h"
#include "python/capture/left_frame.h"
#include "python/capture/number_input.h"
#include "python/capture/rebuild.h"
#include "python/control_flow.h"
#include "python/global_state.h"
#include "python/guards/guard.h"
#include "python/torch_ir.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {

// A function being interpreted. localsplus as in CPython: locals, cells, free variables.
struct TracedFrame {
  int32_t traced_line = -1;  // by the artefact trace_source
  py::object function;
  PyCodeObject* code = nullptr;
  std::shared_ptr<const Bytecode> bytecode;
  std::vector<py::object> fast, stack;
  size_t next = 0;          // instruction
  UserStack caller, place;  // where the caller stands; where this one stood at `placed`
  size_t placed = SIZE_MAX;
  size_t step = 0;      // the count of instructions in front of the current one
  bool direct = false;  // what it returns is what the caller's call instruction gives
  py::object kwnames;   // of the call that follows
  bool yielded = false;
  // Exceptions that the frame's handlers deal with, and where on the stack what POP_EXCEPT takes stands.
  struct Handled {
    size_t place;
    py::object exception;
  };
  std::vector<Handled> handled;
  std::unordered_map<size_t, size_t> rounds;  // of loops, by the instruction that jumps back
  std::unordered_map<size_t, size_t> loops;   // the step at which a FOR_ITER was come to first
  py::object handled_outside;                 // by whoever entered the frame last, or null
  py::object names;                           // of the body of a class: what it has bound
  py::object result;                          // that it returns or yields next
};

struct InnerGraph;

using Arguments = std::vector<py::object>;
using Keywords = std::vector<std::pair<py::object, py::object>>;

class Tracer {
 public:
  Tracer();
  ~Tracer();

  // Interprets `function` on its bound arguments (localsplus order, arguments first), up to its return or to
  // step `stop_at`.
  void run(py::handle function, std::span<const py::object> bound, size_t stop_at = SIZE_MAX);
  size_t break_at = SIZE_MAX;  // a step that breaks, for tests
  // Sources, as texts, of numbers that were another one at each call: inputs of the graph where that is possible.
  std::unordered_set<std::string> varying;
  std::map<size_t, std::string> left_alone;  // what LeftAlone said
  int loop_left = -1;  // Break::loop of the break in front of which the run stops
  PyTypeObject* compiled_type = nullptr;  // of functions that are compiled themselves
  bool reads_numbers = true;  // what the buffers of modules hold, where Python asks, under guards

  // After `run`.
  SourceTable sources;
  GuardSet guards;
  std::shared_ptr<TorchIr> ir = std::make_shared<TorchIr>();  // its result: a tuple of tensors
  std::vector<SourceId> fetch;  // of a hit: the graph's inputs, then what `rebuild` refers to
  size_t input_count = 0;
  std::vector<py::object> example_inputs;
  std::vector<NumberInput> number_inputs;
  std::vector<LeftFrame> left;  // outermost first; empty: the function returned
  Rebuild
      rebuild;  // its roots: the result, or the values of the left frames' states behind each other
  std::optional<ModesAfter> modes_after;  // at the end; null: those in front
  bool result_requires_grad = false;
  // What torch.compiler's error_on_graph_break says where the capture has ended, if anything.
  std::optional<bool> error_on_break;
  UserStack user_stack() const;

  // What captured code wrote to something that was there before, to be done once the graph has run.
  struct Writes {
    py::dict items;        // of a dict by key, or attributes by name; missing() where deleted
    py::set moved;         // keys that were deleted and written again: they go to the end
    bool cleared = false;  // nothing of the old content is left
    py::object added;      // to a list of which nothing was read, or null
    py::object before;     // of a list or deque: its items when it was first written, a tuple
    py::list done;         // to a set: (SetChange, item), in order
    Py_ssize_t advanced =
        0;                // of an iterator: items taken, and 1 where it was seen to be at its end
    bool driven = false;  // of an iterator: by the enumerate or zip around it
    bool at_end = false;
  };

  struct Known {
    SourceId source;      // of what was there before
    py::object original;  // the real tensor behind a fake; the tuple behind a wrapped one
    py::object shadow;    // a list, dict, set or deque with its items wrapped, as it is by now
    std::unique_ptr<Writes> writes;
    std::optional<ir::ValueId> value;  // of tensors
    size_t graph = 0;  // that has the value: InnerGraph::number, 0 for the outermost
  };

  // A user's stack by its numbers in both graphs.
  struct StackIds {
    UserStack stack;
    ir::StackId torch, aten;
  };

  // iterators.cpp
  struct LazyIterator {
    py::object stand_in;                 // an empty iterator of its type
    std::unique_ptr<TracedFrame> frame;  // of a generator
    py::object function;                 // map, filter: called, or None
    std::vector<py::object> iterators;   // that it takes from; chain: the outer one, then the inner
    py::object count;                    // enumerate: the next number
    py::object bounds;                   // islice: a slice
    int64_t taken = 0, next = 0;         // islice: items taken, and the position of the next
    bool strict = false;                 // zip
    bool started = false, running = false, done = false;  // a generator
  };
  LazyIterator* lazy(py::handle o);
  py::object add_lazy(py::object stand_in, LazyIterator lazy);
  py::object make_generator(std::unique_ptr<TracedFrame> frame);
  std::vector<py::object> iterators_of(std::span<const py::object> iterables);
  bool runs_alone(py::handle iterator);
  std::optional<py::object> call_lazy_type(py::handle type, const Arguments& args,
                                           const Keywords& kwargs);
  py::object make_chain(py::object outer);
  py::object next_of_chain(LazyIterator& chain);
  py::object next_of_islice(LazyIterator& islice);
  std::optional<Arguments> next_of_each(const LazyIterator& lazy);
  py::object next_of(LazyIterator& lazy);
  py::object iterate(py::handle o);
  py::object iter_next(py::handle iterator);  // null at the end
  // existing_iterators.cpp
  py::object next_of_existing(py::handle iterator);
  py::object take_existing(py::handle iterator);
  py::object driven_part(py::handle iterator, int64_t index, Py_ssize_t taken);
  // ends_of_iterators.cpp
  bool reaches_unfinished(PyObject* root);
  void refuse_to_end(PyObject* held);
  bool has_plain_parts(py::handle iterator);
  size_t places_in_frames(py::handle o) const;
  bool is_last_place(py::handle o, size_t places = 1);
  bool ends_iterator(const TracedFrame& frame);
  bool unwinding_ends_iterator(const TracedFrame& frame, size_t depth);
  [[noreturn]] void break_at_end_of_iterator();
  void guard_nothing_handled();
  py::object list_of(py::handle iterable);
  py::object items_to_add(py::handle iterable);
  py::object dict_of(py::handle mapping);
  py::object resume_generator(LazyIterator& generator, py::object sent, py::object thrown);
  void close_generator(LazyIterator& generator);
  py::object thrown_by(const Arguments& args);
  py::object call_lazy_method(LazyIterator& lazy, const std::string& name, const Arguments& args);
  [[noreturn]] void stop_iteration();
  void close_dropped_iterators();
  static bool is_open_generator(const LazyIterator& lazy);

  // interpret.cpp
  py::object interpret(TracedFrame& frame, py::object sent = {}, py::object thrown = {});
  py::object interpret_alone(TracedFrame& frame);
  void trace_source(TracedFrame& frame);
  void note_raised(const TracedFrame& frame, size_t at, py::handle value);
  void step(TracedFrame& frame);
  void instruction(TracedFrame& frame);
  py::object globals_of(const TracedFrame& frame);
  py::object load_global(TracedFrame& frame, py::handle name);

  // objects.cpp
  py::object wrap(py::handle real, SourceId source);
  py::object wrap_tensor(py::handle real, SourceId source);
  bool is_module_state(SourceId source) const;
  py::object wrap_tuple(py::handle real, SourceId source);
  py::object wrap_bound(py::handle real, SourceId source);
  py::object wrap_super(py::handle real, SourceId source);
  py::object wrap_held(py::handle real);
  py::object instead_of(py::handle real, SourceId source, const py::object& out);
  void wrap_function(py::handle real, SourceId source);
  bool is_made_anew(py::handle function, SourceId source) const;
  SourceId function_source(py::handle function, const std::string& name);
  Known* known(py::handle o);
  bool is_tensor(py::handle o);
  bool exists(py::handle o);            // it was there before, and is not a constant
  bool keeps_attributes(py::handle o);  // of the time before the call
  SourceId source_of(py::handle existing);
  py::object contents(py::handle o);  // what to read instead of an existing container
  py::object load_attr(py::handle o, py::handle name);
  py::object find_attr(py::handle o, py::handle name);
  // `generic`: as object.__getattribute__, whatever the class says.
  py::object load_super_attr(py::handle super, py::handle name);
  py::object metatype_attr(py::handle type, py::handle name);
  bool is_existing_tuple(py::handle o);  // of a class of its own
  void guard_no_attributes(PyObject* tuple, SourceId source);
  py::object load_instance_attr(py::handle o, py::handle name, bool generic = false);
  py::object load_type_attr(py::handle type, py::handle name);
  py::object bind(py::handle descriptor, py::handle o, PyTypeObject* type, py::handle name);
  py::object module_member(py::handle module, py::handle name);
  py::object instance_dict(py::handle o);
  py::object existing_dict(py::handle dict, SourceId source);
  void check_slot(py::handle o, py::handle name);
  void delete_member(PyTypeObject* type, py::handle dict, py::handle name);
  py::object module_dict(py::handle module);
  py::object function_attr(py::handle function, py::handle name);
  py::object function_member(py::handle function, py::handle name, PyObject* descriptor);
  void guard_code(py::handle function);
  py::object call_getter(py::handle descriptor, py::handle o, py::handle type, py::handle name);
  void call_setter(PyObject* descriptor, py::handle o, py::handle name, py::handle value);
  PyObject* type_member(PyTypeObject* type, py::handle name);
  PyObject* special_method(py::handle o, py::handle name);
  // `value` is null where the attribute is deleted.
  void store_generic_attr(py::handle o, py::handle name, py::handle value);
  void store_attr(py::handle o, py::handle name, py::handle value);
  bool truth(py::handle o);
  py::object type_of(py::handle o);
  // `generic`: as the builtin base does it, whatever the class says.
  py::object subscript(py::handle o, py::handle key, bool generic = false);
  void store_subscript(py::handle o, py::handle key, py::handle value);
  py::object contains(py::handle container, py::handle item, bool generic = false);
  py::object compare(py::handle a, py::handle b, int op);
  void guard(GuardKind kind, SourceId source, py::handle expected = {}, int64_t number = 0);

  void delete_subscript(py::handle o, py::handle key);
  py::list items_of(py::handle o);
  py::object deque_items(py::handle o);
  py::object dict_items(py::handle o);
  py::object set_items(py::handle o);
  py::object deep_contents(py::handle o, int depth = 0);

  // effects.cpp
  Writes& writes_of(py::handle o);
  bool check_key(py::handle key);
  py::object written(py::handle dict, py::handle key);
  py::object dict_get(py::handle dict, py::handle key);  // null where it is not there
  bool dict_has(py::handle dict, py::handle key);
  void dict_write(py::handle dict, py::handle key, py::handle value);
  void dict_delete(py::handle dict, py::handle key);
  void dict_clear(py::handle dict);
  void dict_update(py::handle dict, const Arguments& args, const Keywords& kwargs);
  std::optional<py::object> dict_method(py::handle dict, const std::string& name, Arguments& args,
                                        Keywords& kwargs);
  py::object sequence_to_write(py::handle o);
  std::optional<py::object> list_method(py::handle list, const std::string& name, Arguments& args,
                                        Keywords& kwargs);
  std::optional<py::object> deque_method(py::handle deque, const std::string& name, Arguments& args,
                                         Keywords& kwargs);
  void sort(py::object list, const Keywords& kwargs);
  enum SetChange : int { kDiscarded, kPut, kPopped };
  void set_put(py::handle set, py::handle item, bool in);
  py::object pop_from_set(py::handle set);
  std::optional<py::object> set_method(py::handle set, const std::string& name, Arguments& args,
                                       Keywords& kwargs);
  // identity.cpp
  bool is_same(py::handle a, py::handle b);
  std::vector<SourceId> places_of(py::handle o);
  void guard_one_object(py::handle o);
  void guard_two_objects(py::handle a, py::handle b);
  py::object id_of(const py::object& o);

  // operators.cpp
  std::optional<py::object> ask_operands(const std::string& name, const Arguments& args);
  std::optional<py::object> change_in_place(const std::string& name, const Arguments& args);

  std::optional<py::object> change_existing(py::handle self, const std::string& name,
                                            Arguments& args, Keywords& kwargs);
  py::object read_cell(py::handle cell);
  void write_cell(py::handle cell, py::handle value);
  void write_attribute(py::handle o, py::handle name, py::handle value);
  PyObject* lookup(PyTypeObject* type, py::handle name);
  bool is_written_on(PyTypeObject* type, py::handle name);
  void write_type(py::handle type, py::handle name, py::handle value);
  void guard_distinct();
  void guard_apart(py::handle a, py::handle b, int depth = 0);

  // unread.cpp
  enum class Takes : uint8_t { Read, Varying, Unread };
  struct Unread {
    py::object real;
    SourceId source;      // none where it was computed
    py::object function;  // of the operator module, and what it was computed from
    Arguments parts;
    bool taken_apart = false;  // of a dict: it is what `real` holds from here on
  };
  py::object unread_argument(py::handle real, SourceId source);
  py::object unread_number(py::handle real, SourceId source);
  py::object read(const py::object& o);
  const py::object& typed(const py::object& o);
  void read_arguments(TracedFrame& frame);
  Takes taken_by_next(const TracedFrame& frame) const;
  bool is_called_unread(const TracedFrame& frame, size_t count) const;
  bool stays_unread_in_store(const TracedFrame& frame);
  bool goes_on_counting(const TracedFrame& frame);
  bool is_known_nonzero(const py::object& number);
  bool meets_tensor(const TracedFrame& frame);
  bool hands_on_numbers(TracedFrame& frame, size_t count);
  bool hands_on_packed(TracedFrame& frame, bool keywords);
  bool is_packed(const py::object& o) const;
  py::object pack(const Arguments& items);
  py::object pack_named(const Keywords& items);
  Arguments unpack_numbers(const py::object& packed);
  Keywords unpack_named(const py::object& packed);
  py::object packed_item(const py::object& packed, const py::object& key);
  bool merges_packed(const TracedFrame& frame) const;
  bool holds_varying(py::handle arguments, SourceId source);
  std::optional<py::object> compare_unread(const py::object& a, const py::object& b, int operation);
  std::optional<py::object> compute_unread(const py::object& function, const py::object& a,
                                           const py::object& b);
  std::optional<py::object> negate_unread(const py::object& a);
  py::object taken(const py::object& written);

  // number_input.cpp
  bool is_varying(SourceId source) const;
  bool is_runtime_number(const py::object& o) const;
  std::optional<at::ScalarType> met_dtype(std::span<const py::object> args);
  bool takes_runtime_numbers(std::string_view target, std::span<const py::object> args,
                             std::span<const std::pair<py::object, py::object>> kwargs);
  NumberTree number_tree(const py::object& o);
  SourceId first_source(const py::object& unread) const;
  py::object number_input(const py::object& o, at::ScalarType fits);
  py::object compare_runtime(const py::object& a, const py::object& b, int operation);

  // inner_graphs.cpp
  struct Captured {
    py::object result;
    std::string form;  // of the result
    ControlFlow::Inner graph;
    std::vector<py::object> given;  // to its inputs
  };
  using Snapshot = std::unordered_map<PyObject*, std::pair<py::object, std::vector<py::object>>>;
  TorchIr& ir_now();
  bridge::Recorder& recorder_now();
  py::object lift(const py::object& tensor);
  py::object lifted(const py::object& o);
  py::object add_inner_input(const py::object& outside);
  void tensors_in(const py::object& tree, std::vector<py::object>& leaves, std::string& form);
  py::object with_tensors(const py::object& tree, const py::list& leaves, size_t& next);
  Snapshot snapshot(const Arguments& roots);
  bool is_unchanged(const Snapshot& before, const Snapshot& after);
  Arguments with_fresh_inputs(const Arguments& args);
  void finish_inner(const std::vector<py::object>& leaves, ControlFlow::Inner& out);
  Captured capture_inner(const py::object& function, Arguments args, bool fresh);
  static void add_operands(const Captured& captured, size_t carried, std::vector<py::object>& all,
                           ControlFlow::Inner& graph);
  Arguments items_of_call(const py::object& sequence);
  py::object record_control_flow(const char* op, std::shared_ptr<ControlFlow> entry, Arguments args,
                                 const py::object& form);
  py::object choose_in_graph(const Arguments& args);
  py::object repeat_in_graph(const Arguments& args);
  py::object call_control_flow(std::string_view name, const Arguments& args);

  // context_variables.cpp
  py::object call_of_context(py::handle self, const std::string& name, const Arguments& args,
                             const Keywords& kwargs);

  // controls.cpp
  std::optional<py::object> call_control(py::handle callable, Arguments& args, Keywords& kwargs);
  static py::object control_flow_of(PyFunctionObject* f);
  std::optional<py::object> call_of_torch_dynamo(PyFunctionObject* f, Arguments& args,
                                                 Keywords& kwargs);
  py::object call_once_for_all(py::handle callable, const Arguments& args, const Keywords& kwargs);
  py::object call_cached(py::handle callable, const Arguments& args, const Keywords& kwargs);
  py::object call_autograd_function(py::handle type, Arguments args, Keywords kwargs);
  std::optional<py::object> reduce_plain(py::handle o);
  void refuse_transforms(PyFunctionObject* f);

  // special_calls.cpp
  std::optional<py::object> call_special(py::handle callable, Arguments& args, Keywords& kwargs);
  std::optional<py::object> text_of(py::handle o, bool repr);
  void refuse_lost_class(py::handle o, int depth = 0);
  py::object traceback_of(py::handle exception);
  std::optional<py::object> call_dispatched(py::handle callable, const Arguments& args,
                                            const Keywords& kwargs);
  std::optional<py::object> extreme(py::handle callable, const Arguments& args,
                                    const Keywords& kwargs, bool least);

  // exception_groups.cpp
  void refuse_existing_group(py::handle e);
  void match_group(TracedFrame& frame);
  py::object left_of_group(const py::object& group, const py::list& raised);

  // classes.cpp
  struct MadeClass {
    std::vector<size_t> steps;  // where a capture may stop in front of it
    UserStack stack;
  };
  py::object load_build_class(const TracedFrame& frame);
  py::object build_class(Arguments args, Keywords kwargs);
  py::object run_class_body(const py::object& body, py::object names);
  py::object make_class(py::handle metaclass, const Arguments& args, const Keywords& kwargs);
  py::object make_dataclass(py::handle maker, const Arguments& args, const Keywords& kwargs);
  void add_made_class(const py::object& made);
  void refuse_class_hooks(py::handle bases, py::handle names);
  bool is_made_class(py::handle type) const { return made_classes_.contains(type.ptr()); }
  SourceId member_source(py::handle type, py::handle name);
  void refuse_made_class(py::handle o) const;
  py::object load_name(TracedFrame& frame, py::handle name);
  void store_name(TracedFrame& frame, py::handle name, py::handle value);

  // calls.cpp
  py::object call(py::handle callable, Arguments args, Keywords kwargs = {});
  py::object call_function(py::handle function, Arguments args, Keywords kwargs);
  std::optional<py::object> call_operator(py::handle function, const std::string& name,
                                          const Arguments& args);
  py::object call_operator_object(py::handle callable, const Arguments& args);
  py::object call_new(PyTypeObject* type, const Arguments& args, const Keywords& kwargs);
  py::object call_type(py::handle type, Arguments args, Keywords kwargs);
  py::object call_native(py::handle callable, Arguments args, Keywords kwargs);
  py::object call_real(py::handle callable, const Arguments& args, const Keywords& kwargs);
  std::vector<py::object> bind_arguments(py::handle function, Arguments args, Keywords kwargs);
  void require_plain(py::handle o, py::handle callable);
  py::object plain_contents(py::handle o, py::handle callable);

  // torch_calls.cpp
  py::object tensor_attr(py::handle tensor, py::handle name);
  py::object is_leaf(py::handle tensor, py::handle name);
  py::object ask_torch(Folded guarded_by, const std::string& name, py::handle callable,
                       const Arguments& args, const Keywords& kwargs);
  std::optional<py::object> call_torch(py::handle callable, Arguments& args, Keywords& kwargs);
  std::optional<py::object> one_hot(const std::string& name, const Arguments& args,
                                    const Keywords& kwargs);
  bool reads_objects(py::handle callable, const Arguments& args, const Keywords& kwargs);
  py::object storage_offset(py::handle tensor);
  py::object call_method(py::handle tensor, const std::string& name, const Arguments& args,
                         const Keywords& kwargs);
  py::object record(ir::NodeKind kind, const std::string& target, py::handle callable,
                    const Arguments& args, const Keywords& kwargs);
  py::object operate(py::handle function,
                     const Arguments& args);  // an operator on tensors, or on constants
  void note_results(py::handle result, ir::ValueId value);
  StackIds stack_ids(const UserStack& stack);

  // known_numbers.cpp
  struct KnownNumber {
    py::object value;  // null: not known
    py::list of;       // the inputs that hold what it was computed from
  };
  KnownNumber known_number(py::handle tensor);
  py::object use_number(py::handle tensor);
  void set_known_number(py::handle tensor, const KnownNumber& number);
  KnownNumber computed_number(const std::string& target, py::handle function, const Arguments& args,
                              const Keywords& kwargs);
  py::object record_with_numbers(ir::NodeKind kind, const std::string& target, py::handle callable,
                                 const Arguments& args, const Keywords& kwargs);
  py::object with_known_sizes(const py::object& o);
  bool is_unwritten_state(py::handle tensor);

  // arrays.cpp
  py::object wrap_array(py::handle real, SourceId source);
  SourceId source_of_array(py::handle array) const;
  py::object array_over(py::handle tensor, const Arguments& args, const Keywords& kwargs);
  std::optional<py::object> call_numpy(py::handle callable, Arguments& args, Keywords& kwargs);
  py::object call_array_code(TracedFrame& frame);
  Arguments with_numbers(const Arguments& args);
  bool in_array_code() const;
  bool is_of_array_code(SourceId source) const;

  // messages.cpp
  std::optional<py::object> call_that_tells(py::handle callable, Arguments& args, Keywords& kwargs);
  void call_behind(py::handle callable, const Arguments& args);
  void require_harmless_warnings();
  py::object warn_behind(const Arguments& args, const Keywords& kwargs);
  py::object log_behind(const Arguments& args, const Keywords& kwargs);

  // torch_modes.cpp
  std::optional<py::object> set_mode(const std::string& name, py::handle callable,
                                     const Arguments& args, const Keywords& kwargs);
  ir::ValueId add_mode_call(const std::string& name, py::handle callable,
                            std::vector<ir::Arg> args);
  void bring_graph_to(const TorchModes& modes);
  void end_modes();

  // plan_rebuild.cpp
  // Ends the capture: plans `values` and what was written, together; the roots of `rebuild` are the values.
  void finish(std::span<const py::object> values);
  uint32_t fetched(SourceId source);  // position behind the graph's inputs
  static void drop_unused_items(TorchIr& ir);
  void finish_recording(const std::vector<at::Tensor>& outputs);

  // graph_break.cpp
  struct Stopped {};
  void place(Break& b) const;
  void choose_loop(Break& b) const;
  std::vector<size_t> places_to_stop() const;
  FrameState state_left(const TracedFrame& frame, const std::vector<bool>& live,
                        std::vector<py::object>& values, std::vector<int>& with_finalizer);
  [[noreturn]] void stop();

  std::vector<TracedFrame*> frames_;
  std::unordered_map<PyObject*, Known> known_;
  std::vector<std::unique_ptr<LazyIterator>> lazies_;  // in the order in which they were made
  py::object returned_;  // by the generator that `iter_next` has found at its end
  std::unordered_map<SourceId, py::object> by_source_;
  std::unordered_map<PyObject*, py::object> fake_of_;      // by real tensor
  std::unordered_map<PyObject*, py::object> stand_in_of_;  // by tuple, method or super object
  std::unordered_map<const void*, StackIds> stack_ids_;    // by UserStack::id
  std::vector<py::object> held_;
  // Constants that nothing has looked at yet, by what stands for them (unread.cpp).
  std::unordered_map<PyObject*, Unread> unread_;
  std::unordered_set<SourceId> loaded_;  // sources of numbers among them
  // Whether whoever asks for a number next can do with an unread one: any, or one that was seen to vary.
  Takes takes_ = Takes::Read;
  std::unordered_map<SourceId, py::object> varying_;  // what stands for these
  std::map<std::pair<PyObject*, at::ScalarType>, py::object> number_inputs_;
  std::unordered_map<SourceId, uint32_t> fetched_;
  std::unordered_map<PyObject*, PyObject*> shadowed_;  // by shadow: what was there before
  std::unordered_set<PyObject*> fixed_;                // guarded by identity
  std::unordered_set<PyCodeObject*> codes_;            // that were interpreted
  std::unordered_map<PyTypeObject*, std::vector<py::object>> identified_;  // by id_of
  // Exceptions that were raised, with the places that they have passed, innermost first.
  struct RaisedAt {
    py::object code, globals;
    int offset, line;
    int left;  // the offset of the frame's last instruction
  };
  std::unordered_map<PyObject*, std::vector<RaisedAt>> raised_;
  std::unordered_map<PyObject*, SourceId> array_sources_;  // of arrays that were there before
  bool has_array_inputs_ = false;
  std::vector<std::pair<py::object, Arguments>> behind_;  // calls once all is done
  std::vector<py::object> written_;  // what has `Writes`, in the order of the first
  std::vector<py::object>
      existing_;  // what was there before, apart from what is guarded by identity
  std::unordered_set<PyObject*> without_unfinished_;  // what holds no unfinished generator
  std::unordered_map<PyObject*, std::unique_ptr<Writes>> type_writes_;
  std::unordered_map<PyObject*, MadeClass> made_classes_;
  std::unique_ptr<bridge::Recorder> recorder_;
  const GlobalState state_;   // in front
  bool recorded_all_ = true;  // every op that was heard belongs to a node of `ir`
  TorchModes graph_modes_;    // at the graph's end so far
  struct Autocast {
    ir::ValueId value;  // what `_enter_autocast` gave
    TorchModes before;
  };
  std::vector<Autocast> autocasts_;  // that the graph stands in
  int autocast_nesting_ = 0;         // by which it has changed
  bool handled_outside_ = false;     // the code around the call deals with an exception
  bool took_iterator_ = false;       // the instruction went through one, which its end has moved
  size_t steps_ = 0, stop_at_ = SIZE_MAX;
  InnerGraph* inner_ = nullptr;      // the graph that ops go to; null: `ir`
  std::vector<size_t> inner_steps_;  // by number: the step of the outermost choice or loop
  std::string why_left_alone_;       // of the choice that comes next
  size_t writes_ = 0;                // to what was there before
  bool direct_ = false;              // of the frame that comes next
  bool traces_source_ = false;
};

// A generator, or an iterator written in C that may hold one: code of the user's may run when it dies.
bool ends_late(PyObject* iterator);

// One object for all calls: numbers, strings, dtypes; functions, classes, modules; enum members, ops.
bool is_constant(PyObject* p);
bool is_number(PyObject* p);
bool is_callable_constant(PyObject* p);
bool is_singleton(py::handle o);
bool is_enum_member(py::handle o);
bool may_be_another(PyObject* p);  // elsewhere an equal one may be another object

// Of the module `operator`, by the argument of BINARY_OP.
[[noreturn]] void name_error(py::handle name, const char* format = "name '%U' is not defined");
const char* binary_operator_name(uint32_t arg);
bool is_binary_operator(std::string_view name);

// Breaks at a class with __del__: an object that capture makes and drops would run it.
void refuse_finalizer(PyTypeObject* type);
[[noreturn]] void raise(PyObject* type, const std::string& text);
[[noreturn]] void type_error(const std::string& text);
// What a callable says of itself; of what says nothing, the name of its type, and no module.
std::string name_of(py::handle callable);
std::string module_of(py::handle callable);
// Whether what the function written in C is given may be found in what it returns.
bool keeps_arguments(const std::string& name);
void require_name(py::handle name);  // of an attribute
bool mentions(py::handle o, bool (*is_one)(py::handle), bool beyond, int depth = 0);
bool mentions_tensor(py::handle o);  // or an array
bool mentions_array(py::handle o);
bool any_argument(const Arguments& args, const Keywords& kwargs, bool (*is_one)(py::handle));

// What the interpreter follows instead of a function written in C; null for most (polyfills.cpp).
py::object polyfill_of(py::handle callable);
bool is_polyfill(py::handle function);

// Stands for what was deleted.
py::object missing();

// What the body of a class has bound to the name; null where there is nothing.
py::object name_in(py::handle names, py::handle name);

bool is_exception_group(py::handle o);
// A context variable, a context, or the token of a change.
bool is_of_context(py::handle o);

// What stands for a numpy.ndarray or a NumPy scalar: oxyfuel.arrays.Array.
bool is_array(py::handle o);
py::object type_of_array(py::handle array);  // the one of NumPy
py::object method_of_array(py::handle array, py::handle name);
// Raises AttributeError, or breaks at what only NumPy's own array has.
void check_array_attr(py::handle array, py::handle name);
// A function of oxyfuel.arrays or oxyfuel.array_functions.
bool is_array_code(PyFunctionObject* function);

// A method of a type written in C, without an object: list.append, int.__add__.
bool is_unbound_native(PyObject* o);
// A method with the object that it was found on. Of functions written in C: one that its object's type has.
bool is_bound_method(PyObject* o);
// What such a method was made from, which a class further down may hide; nullptr for what no type has.
PyObject* method_descriptor(PyObject* bound);
py::object bind(PyObject* descriptor, py::handle self);

// The bytecode of a code object, kept with it.
std::shared_ptr<const Bytecode> bytecode_of(PyCodeObject* code);

}  // namespace oxy::python
