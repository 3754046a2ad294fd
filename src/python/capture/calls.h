// Calls: which function means what, and what is called as it is. Class statements.
#pragma once

#include <functional>
#include <set>

#include "python/capture/frames.h"
#include "python/capture/heap.h"
#include "python/global_state.h"

namespace oxy::python {

struct TorchWarning {
  py::object message, category;
  size_t level = 0;  // of the captured frame that it names, the innermost is 1; 0: a frame of
                     // torch's, which is
  py::object file, globals;
  int line = 0;
};

// While it lives, warnings.warn of this thread is kept; other threads warn as ever. A function of
// torch written in Python that is called as a whole is called once, at the capture; eager would
// warn at each call, from the captured code's own lines.
class TorchWarnings {
 public:
  explicit TorchWarnings(py::handle callable);
  ~TorchWarnings();
  TorchWarnings(const TorchWarnings&) = delete;
  TorchWarnings& operator=(const TorchWarnings&) = delete;

  std::vector<TorchWarning> given() const;

 private:
  py::object warn_;  // the real one; null for a function that is not written in Python
  py::list kept_;
};

// A call of a function with a cache: the function, and the code that calls it.
using CachedCall = std::pair<PyObject*, PyCodeObject*>;

class Calls : public Part {
 public:
  using Part::Part;

  Done text_of(py::handle o, bool repr);
  // What a function with a cache has given is its callers' in common: where the captured code, as
  // its end shows, has changed it or hands it out, it starts again without such calls.
  void check_cached(const std::function<bool(py::handle)>& hands_out) const;
  // What the objects' __torch_function__ makes of the call; nothing where there are none.
  Done ask_objects(py::handle function, const Arguments& args, const Keywords& kwargs);
  Done formatted_value(py::handle o, const py::object& spec);
  Done text_of_value(py::handle o, const char* method, const Arguments& args = {});
  void refuse_saved_hooks(BreakId reason, const char* what);
  void require_saved_hooks(BreakId reason);
  py::object call(py::handle callable, Arguments args, Keywords kwargs = {});
  py::object call_function(py::handle function, Arguments args, Keywords kwargs);
  py::object call_real(py::handle callable, const Arguments& args, const Keywords& kwargs);
  void require_plain(py::handle o, py::handle callable);
  bool is_plain(py::handle o, py::handle callable);
  void require_plain(const Arguments& args, const Keywords& kwargs, py::handle callable);
  void require_key(const py::object& o, py::handle callable);
  void refuse_objects(const Arguments& args, const Keywords& kwargs, const std::string& target);
  bool is_read_by_key(py::handle mapping);
  bool is_enum(py::handle type);
  bool is_missing_member(py::handle type, py::handle value);
  py::object dict_of_mapping(py::handle mapping);
  py::object plain_contents(py::handle o, py::handle callable);
  Done call_of_texts(py::handle callable, const Arguments& args, const Keywords& kwargs);
  py::object tensor_attr(py::handle tensor, py::handle name);
  void set_data(py::handle tensor, py::handle value);
  void set_tensor_attr(py::handle tensor, py::handle name, py::handle value);
  py::object attributes_of_input(py::handle tensor);
  bool is_hidden(py::handle tensor, py::handle name);
  void set_gradient(py::handle tensor, py::handle value);
  py::object call_method(py::handle tensor, const std::string& name, const Arguments& args,
                         const Keywords& kwargs);
  py::object warn_behind(const Arguments& args, const Keywords& kwargs);
  void warn_behind(TorchWarning warning);

  const auto& behind() const { return behind_; }
  bool is_reordered(py::handle function);  // called behind the graph, as the program has set it
  void refuse_told_late(PyObject* o) const {
    if (told_late_.contains(o)) throw Break(BreakId::builtin_call, "a list of recorded messages");
  }
  void call_behind(const py::object& function, const Arguments& args) {
    behind_.emplace_back(function, args);
  }
  // It is written once all of `behind` has been called.
  static bool is_state_of_warnings(py::handle o);
  // Of matches and patterns that the capture has made: what has given them.
  const auto& made_of_texts() const { return made_of_texts_; }

  // What torch.compiler's error_on_graph_break says where the capture has ended, if anything.
  std::optional<bool> error_on_break;
  PyTypeObject* compiled_type = nullptr;  // of functions that are compiled themselves

  // What functions have given that a capture calls for real and for good: the captures that follow
  // each other in one call call them once. Keyed by the step, which of the calls at that step it
  // is, and the function.
  using Answers = std::map<std::tuple<size_t, size_t, PyObject*>, py::object>;
  Answers* answers = nullptr;

  // torch.full and its like with a float that a call computes, the last argument.
  py::object filled_with_float(const std::string& name, py::handle callable, Arguments args,
                               const Keywords& kwargs);

 private:
  bool answers_itself(py::handle o);
  void refuse_object(py::handle o, const std::string& target, int depth);
  py::object call_of_context(py::handle self, const std::string& name, const Arguments& args,
                             const Keywords& kwargs);
  Done call_control(py::handle callable, Arguments& args, Keywords& kwargs);
  bool is_ignored(py::handle function, const Arguments& args);
  Done call_reordered(py::handle function, const Arguments& args, const Keywords& kwargs);
  Done call_format(py::handle callable, const Arguments& args, const Keywords& kwargs);
  Done call_of_optimizer(PyFunctionObject* f, const Arguments& args, const Keywords& kwargs);
  Done step_if_finite(const Arguments& args, const Keywords& kwargs);
  bool is_profiled();
  bool is_in_optimizer() const;
  void set_error_on_break(py::handle value);
  py::object combine_elements(const Arguments& args);
  bool is_chosen(const py::object& condition);
  void leave_no_frame_in_level(bool enters);
  py::object switch_level(py::handle callable, const char* home, const Arguments& args,
                          const Keywords& kwargs, bool begins = false);
  py::object switch_dual_level(py::handle callable, const Arguments& args, const Keywords& kwargs,
                               bool begins);
  py::object wrap_by_level(py::handle callable, const char* home, const Arguments& args,
                           const Keywords& kwargs);
  static void refuse_outer_tangent();
  void require_forward_mode(const Arguments& args);
  bool is_none_of_hooks(const char* question, const py::tuple& given);
  py::object switch_saved_hooks(py::handle callable, const Arguments& args, const Keywords& kwargs);
  Done call_of_attributes(py::handle tensor, const std::string& name, const Arguments& args);
  py::object call_backward(const Arguments& args, const Keywords& kwargs);
  Done apply_on_tensors(py::handle function, const Arguments& args, const Keywords& kwargs);
  void follow_contexts(const py::object& function, bool reentrant);
  py::object call_checkpoint(const Arguments& args, const Keywords& kwargs);
  using Written = std::vector<std::pair<at::Tensor, std::pair<uint32_t, size_t>>>;
  Written written_so_far(const Arguments& args);
  bool is_written_since(const Written& before);
  bool rehearse(const std::string& name, const Arguments& args, const Arguments& code,
                const std::function<std::pair<py::object, py::object>(size_t& draws)>& follow);
  void rehearse_vmap(py::handle type, const Arguments& args);
  py::object call_differentiable(py::handle type, const Arguments& args, const Keywords& kwargs);
  py::object register_hook(const py::object& tensor, const py::object& hook);
  py::object register_late_hook(const py::object& tensor, const py::object& hook,
                                const char* function);
  py::object register_with_node(const py::object& tensor, const py::object& hook);
  py::object register_leaf_hook(const py::object& leaf, const py::object& hook, const char* kind);
  py::object retain_gradient(const py::object& tensor);
  Done init_handle(const Arguments& args, const Keywords& kwargs);
  py::object call_for_good(py::handle callable, Arguments args, Keywords kwargs);
  py::object call_once_for_all(py::handle callable, const Arguments& args, const Keywords& kwargs);
  Done call_without_cache(py::handle callable, const Arguments& args, const Keywords& kwargs);
  bool is_result_of_values(py::handle o) const;
  void note_cached(py::handle o, const CachedCall& place);
  static py::tuple items_of(py::handle container);
  std::pair<size_t, size_t> effects_met() const;
  py::object call_cached(py::handle callable, Arguments args, Keywords kwargs);
  py::object call_autograd_function(py::handle type, Arguments args, Keywords kwargs);
  Done reduce_plain(py::handle o);
  // One of torch.ops.higher_order.
  py::object call_higher_order(py::handle op, const Arguments& args, const Keywords& kwargs);
  // A function of ours in Python, in the place of the one that is called.
  py::object call_own(const char* module, const std::string& name, const Arguments& args,
                      const Keywords& kwargs, bool direct = false);
  struct Special;  // a row of special_calls.def
  Done call_special(py::handle callable, Arguments& args, Keywords& kwargs);
  Done call_special_by_name(py::handle function, Arguments& args, Keywords& kwargs, bool direct);
  void refuse_lost_class(py::handle o, int depth = 0);
  Done call_dispatched(py::handle callable, const Arguments& args);
  py::object join_arguments(py::handle partial, Arguments& args, Keywords& kwargs);
  void take_partial_apart(Arguments& args, Keywords& kwargs);
  py::object call_operator_object(py::handle callable, const Arguments& args);
  py::object call_new(PyTypeObject* type, const Arguments& args, const Keywords& kwargs);
  // `generic`: as type.__call__ does, whatever the metaclass says.
  py::object call_type(py::handle type, Arguments args, Keywords kwargs, bool generic = false);
  py::object call_native(py::handle callable, Arguments args, Keywords kwargs);
  py::object call_module_function(py::handle callable, const std::string& name, Arguments args,
                                  Keywords kwargs);
  py::object subclasses(py::handle callable, const py::object& self);
  py::object call_class_method(py::handle callable, const py::object& self, const std::string& name,
                               Arguments args, Keywords kwargs);
  py::object call_container_method(py::handle callable, const py::object& self,
                                   const std::string& name, Arguments args, Keywords kwargs);
  std::vector<py::object> bind_arguments(py::handle function, Arguments args, Keywords kwargs);
  py::object is_leaf(py::handle tensor, py::handle name);
  py::object gradient(py::handle tensor, py::handle name);
  py::object ask_torch(Folded guarded_by, const std::string& name, py::handle callable,
                       const Arguments& args, const Keywords& kwargs);
  Done call_torch(py::handle callable, Arguments& args, Keywords& kwargs);
  Done one_hot(const std::string& name, const Arguments& args, const Keywords& kwargs);
  // What a method of a tensor that reads its number gives for a symbolic one.
  py::object number_of_size(const py::object& number, const std::string& method);
  void drop_rate(Arguments& args, Keywords& kwargs);
  Done tensor_of_numbers(const std::string& name, py::handle callable, const Arguments& args,
                         const Keywords& kwargs);
  Done tensor_like(py::handle tensor, const Arguments& args, const Keywords& kwargs);
  bool reads_objects(py::handle callable, const Arguments& args, const Keywords& kwargs);
  py::object storage_offset(py::handle tensor);
  py::object deep_copy(py::handle tensor, const py::object& table);
  Done call_that_tells(py::handle callable, Arguments& args, Keywords& kwargs);
  void require_harmless_warnings();
  py::object log_behind(const Arguments& args, const Keywords& kwargs);
  void note_handlers(py::object logger);
  Done call_logging_once(py::handle callable, Arguments& args, Keywords& kwargs);

  std::vector<std::pair<py::object, Arguments>> behind_;  // calls once the graph has run
  std::unordered_set<PyObject*> told_late_;  // of before the call: changed by what is told then
  std::unordered_set<PyObject*> tell_;       // loggers and handlers that are guarded
  std::unordered_map<PyObject*, std::pair<py::object, Arguments>> made_of_texts_;
  std::set<std::pair<PyObject*, const c10::StorageImpl*>> deep_copied_;  // by copy.deepcopy's table
  bool in_context_function_ = false;                                     // of a checkpoint
  std::unordered_map<size_t, size_t> answered_;  // by step: how many of its calls
  // Of caches with a limit, by function: the keys of the entries that the capture relies on.
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> cached_keys_;
  // torch._dynamo.config.ignore_logging_functions and reorderable_logging_functions, once read.
  std::optional<py::object> ignored_, reordered_;
  int indexing_modes_ = 0;           // entered: TransformGetItemToIndex
  bool asked_for_hooks_ = false;     // of the caller's, on saved tensors
  bool asked_why_no_hooks_ = false;  // the same
  // Lists and dicts that calls without their cache have given, and what they held.
  struct CachedResult {
    py::object container;
    py::tuple items;
    CachedCall place;
  };
  std::vector<CachedResult> cached_results_;
};

// Class statements, and the names of their bodies.
class Classes : public Part {
 public:
  using Part::Part;
  ~Classes();

  py::object load_build_class(const TracedFrame& frame);
  py::object build_class(Arguments args, Keywords kwargs);
  py::object make_class(py::handle metaclass, const Arguments& args, const Keywords& kwargs);
  py::object make_dataclass(py::handle maker, const Arguments& args, const Keywords& kwargs);
  std::optional<py::object> make_named_tuple(py::handle maker, const Arguments& args,
                                             const Keywords& kwargs);
  struct Again {
    py::object function;
    Arguments arguments;
  };
  const Again* made_again(py::handle type) const;  // null for what is no such class
  bool is_made_class(py::handle type) const { return made_classes_.contains(type.ptr()); }
  SourceId member_source(py::handle type, py::handle name);
  void guard_registrations(PyTypeObject* type, py::handle asked);
  void guard_bases(PyTypeObject* type);
  // Whether a match statement takes the object for a sequence, or a mapping (Py_TPFLAGS_...).
  bool matches_as(py::handle o, unsigned long flag);
  void refuse_made_class(py::handle o) const;
  py::object load_name(TracedFrame& frame, py::handle name);
  void store_name(TracedFrame& frame, py::handle name, py::handle value);

 private:
  struct MadeClass {
    Place place;
    Again again;  // what makes it for a call that gives it away
  };

  void add_made_class(const py::object& made);
  void add_made_methods(const py::object& made);
  void refuse_class_hooks(py::handle bases, py::handle names);

  std::unordered_map<PyObject*, MadeClass> made_classes_;
};

}  // namespace oxy::python
