// Numbers that nobody has looked at, or that vary, and tensors whose number is a constant.
#pragma once

#include <map>
#include <unordered_set>

#include "python/capture/part.h"
#include "python/capture/rebuild.h"
#include "python/guards/guard.h"
#include "python/symbolic_float.h"
#include "symbolic/expr.h"

namespace oxy::python {

struct TracedFrame;
class SizeFloat;

enum class Rounding : uint8_t { Down, Up, ToZero, ToEven };
enum class Takes : uint8_t { Read, Varying, Deferred };

struct Deferred {
  py::object real;
  SourceId source;      // none where it was computed
  py::object function;  // of the modules operator and math, and what it was computed from
  Arguments parts;
  bool taken_apart = false;  // of a dict: it is what `real` holds from here on
  bool of_data = false;      // known once the graph has run: `real` is of its type, nothing more
  size_t steps = 1;          // of the tree that computes it: what is used twice counts twice
};

struct ConstantNumber {
  py::object value;  // null: no constant
  py::list of{};     // the inputs that hold what it was computed from
};

// How many values a BUILD_TUPLE, BUILD_LIST, BUILD_MAP or BUILD_CONST_KEY_MAP takes off the stack.
size_t parts_of_container(uint8_t op, uint32_t arg);

class Numbers : public Part, private FloatOwner {
 public:
  using Part::Part;
  Numbers(const Numbers&) = delete;
  ~Numbers();

  // Stands for `real`, which has a source, or is what the function gives for the parts.
  py::object defer(py::handle real, SourceId source, py::object function = {},
                   Arguments parts = {});
  py::object deferred_number(py::handle real, SourceId source);
  py::object read(const py::object& o);
  Arguments read(const Arguments& all);
  py::object carried(const py::object& o);
  py::object with_plain_floats(const py::object& o);
  bool may_share_nan(const py::object& a, const py::object& b);
  py::object typed(const py::object& o);
  void read_arguments(TracedFrame& frame);
  Takes taken_by_next(const TracedFrame& frame) const;
  bool is_packed(const py::object& o) const;
  py::object pack(const Arguments& items);
  py::object pack_named(const Keywords& items);
  Arguments unpack_numbers(const py::object& packed);
  Keywords unpack_named(const py::object& packed);
  py::object packed_item(const py::object& packed, const py::object& key);
  bool holds_varying(py::handle arguments, SourceId source);
  std::optional<py::object> compare_deferred(const py::object& a, const py::object& b,
                                             int operation);
  std::optional<py::object> compute_deferred(const py::object& function, const py::object& a,
                                             const py::object& b);
  std::optional<py::object> negate_deferred(const py::object& a);
  // Of sizes, a float: a quotient, a root, anything that a float was in. Nothing for all else.
  std::optional<py::object> float_of_sizes(std::string_view name, const py::object& function,
                                           const Arguments& args);
  // Whether it is a size, a float that varies, or made of such.
  bool is_of_sizes(const py::object& o) const;
  py::object combined(const py::object& function, const Arguments& args) override;
  // A float of data as an int of data.
  std::optional<py::object> whole_of_data(const py::object& o, Rounding how);
  bool is_of_data(const py::object& o) const;  // a float or truth, or a text of such
  bool may_be_int(const py::object& o) const;  // of a float of data
  // Such a float as an int; nothing where no expression of the sizes gives it.
  std::optional<py::object> rounded(const py::object& function, const py::object& o, Rounding how);
  // What the function gives for numbers of sizes, an int or a bool, guarded; null where it raises.
  py::object guarded_answer(const py::object& function, const Arguments& parts);
  std::optional<py::object> compare_sizes(const py::object& a, const py::object& b, int operation);
  py::object taken(const py::object& written);
  // What torch.equal and torch.allclose say, deferred; nothing for other functions.
  Done comparison_of_data(std::string_view name, const Arguments& args, const Keywords& kwargs);
  // Whether the next instruction calls item(), float() or one of those for what lands on the stack.
  bool asks_for_item(const TracedFrame& frame) const;
  // The float or truth in a tensor of one element, which a call knows behind the graph; where it
  // meets tensors, the graph has it. Null where it cannot be had.
  py::object number_of_data(const py::object& tensor, bool truths);
  py::object number_of_graph(const py::object& tensor, bool truths);  // whoever has asked
  bool is_varying(SourceId source) const;
  std::optional<NumberDtype> met_dtype(std::span<const py::object> args);
  // `plain`: not an operand of arithmetic, but where torch takes a number.
  py::object number_input(const py::object& o, NumberDtype met, bool plain = false);
  // Plain floats of torch's functions (stand_ins.cpp).
  py::object plain_float(const std::string& target, std::span<const py::object> args,
                         size_t position, std::string_view keyword, py::object o);
  // A float that varies, as a float64 tensor; null for all else.
  py::object float_argument(const py::object& o);
  // Whether what graphs were given of numbers since there were `met` is made of these arguments.
  bool computes_with(std::span<const py::object> args, size_t met);
  Done call_in_python(std::string_view name, const Arguments& args, const Keywords& kwargs);
  // Whether there are numbers that nobody has looked at, and `target` can have them all as inputs.
  bool takes_runtime_numbers(std::string_view target, std::span<const py::object> args,
                             std::span<const std::pair<py::object, py::object>> kwargs);
  py::object compare(const py::object& a, const py::object& b, int operation);
  // Of a tensor without dimensions that was there before: whether code has left its memory alone.
  bool is_unwritten(py::handle tensor);
  py::object use_number(py::handle tensor);
  std::optional<bool> truth_of_state(py::handle tensor);
  // Takes the truth of a tensor for granted: each call checks it, and runs in eager where it is not
  // so. Says whether it could.
  bool assume_truth(const py::object& tensor, bool truth);
  bool assume_number(const py::object& o, bool truth);  // of a float or truth of data
  void refuse_truth(const py::object& o) const;         // breaks where it is one
  // Of something that may be written to.
  static void forget_numbers(py::handle o);
  void set_constant_number(py::handle tensor, const ConstantNumber& number);
  py::object record_with_numbers(ir::NodeKind kind, const std::string& target, py::handle callable,
                                 const Arguments& args, const Keywords& kwargs);

  // Floats that the graph computes, in code of torch.optim and batch norms (graph_numbers.cpp).
  bool is_graph_float(py::handle o) const;
  std::optional<Arguments> settings_in_schedule(const Arguments& args) const;
  py::object float_in(const py::object& tensor, bool item);
  py::object varying_float(py::handle real, SourceId source);
  py::object written_setting(const py::object& written);
  SourceId source_of_float(py::handle o) const;
  Done compare_state(const py::object& a, const py::object& b, int operation);

  // Texts of numbers that vary, deferred (texts_of_numbers.cpp); null for all else.
  py::object formatted(const py::object& o, char conversion, const py::object& spec);
  py::object joined(const Arguments& parts);
  py::object text_of_operator(uint32_t operation, const py::object& a, const py::object& b);
  py::object text_of_call(const py::object& callable, const Arguments& args);
  bool is_deferred_text(const py::object& o) const;

  bool is_deferred(py::handle o) const { return deferred_.contains(o.ptr()); }
  // Whether it is deferred, and no container may have it.
  bool must_be_packed(py::handle o) const { return is_deferred(o) && !is_symbolic_float(o); }
  bool any_deferred() const { return !deferred_.empty(); }
  const auto& deferred() const { return deferred_; }
  bool is_loaded(SourceId source) const { return loaded_.contains(source); }

  // Sources, as texts, of numbers that are another one at each call: graph inputs if possible.
  std::unordered_set<std::string> varying;
  // Of a capture that has come to its end; before that they are what was asked.
  std::vector<NumberGuard> guards;
  void make_guards();
  // Where a capture does not come to its end: what was asked about is guarded itself.
  void read_asked();
  bool reads_numbers = true;  // what the buffers of modules hold, where Python asks, under guards
  bool item_asked = false;    // see asks_for_item, of the instruction that is being interpreted
  // Whether whoever asks for a number next can do with a deferred one: any, or one that varies.
  Takes takes = Takes::Read;

  // Of a number that varies, something of before the call that it is computed of.
  SourceId first_source(const py::object& deferred) const;

 private:
  py::object text_part(const py::object& o, bool number);
  py::object text_of_tensors(const py::object& function, Arguments parts, bool numbers);
  py::object guarded_float(const py::object& symbolic) override;
  py::object compared(const py::object& a, const py::object& b, int operation) override;
  const Deferred* find(const py::object& o) const;
  bool is_fused_attention(std::span<const py::object> args);
  // Whether it lies between the two, as a guard.
  bool is_within(const py::object& number, double least, double most);
  // Of a number that is computed of these. One of more steps than kMostSteps is read.
  size_t steps_with(const Arguments& parts) const;
  static constexpr size_t kMostSteps = 256;
  std::optional<py::object> float_of_data(const py::object& function, const Arguments& args);
  bool never_raises(std::string_view name, const Arguments& args);
  bool is_float_power(const py::object& base, const py::object& exponent);
  std::optional<sym::Expr> whole(const py::object& o);
  std::optional<SizeFloat> size_float(const py::object& o);
  py::object computed_int(const py::object& function, const py::object& o);
  std::optional<py::object> rounded_logarithm(const py::object& o, Rounding how);
  bool is_graph_number(const py::object& o) const;
  std::string data_text(const py::object& o) const;
  [[noreturn]] static void refuse_branch(const std::string& question);
  bool builds_result(const TracedFrame& frame) const;
  py::object graph_number(const py::object& o);
  py::object tensor_of_data(const py::object& o, NumberDtype dtype, bool plain);
  py::object real_of(const py::object& o) const;
  bool have_runtime_numbers() const {
    return !varying.empty() || floats_of_sizes_ || numbers_of_data_;
  }
  bool varies_in_text(const py::object& o) const;
  py::object deferred_text(const py::object& function, Arguments parts);
  bool makes_text(uint32_t operation, const py::object& a, const py::object& b) const;
  bool is_called_deferred(const TracedFrame& frame, size_t count) const;
  bool goes_on_counting(const TracedFrame& frame);
  bool is_nonzero(const py::object& number);
  bool hands_on_numbers(TracedFrame& frame, size_t count);
  bool hands_on_packed(TracedFrame& frame, bool keywords);
  bool is_runtime_number(const py::object& o) const;
  NumberDtype input_dtype(const py::object& o, NumberDtype met) const;
  bool is_computed_anew(const Arguments& parts) const;  // what is made of them, by each call
  // The sizes in it are numbered in `sizes`; where there is none, among those that a hit computes.
  NumberTree number_tree(const py::object& o, std::vector<sym::Expr>* sizes = nullptr);
  ConstantNumber constant_number(py::handle tensor);
  ConstantNumber computed_number(const std::string& target, py::handle function,
                                 const Arguments& args, const Keywords& kwargs);
  ConstantNumber computed_size(const std::string& target, const Arguments& args,
                               const Keywords& kwargs);
  py::object with_constant_sizes(const py::object& o);
  bool is_unwritten_state(py::handle tensor);
  py::object graph_float(const py::object& tensor);
  bool in_optimizer() const;
  bool in_batch_norm() const;
  Done record_graph_numbers(ir::NodeKind kind, const std::string& target, py::handle callable,
                            const Arguments& args, const Keywords& kwargs);

  // Constants that nothing has looked at yet, by what stands for them (deferred_numbers.cpp).
  std::unordered_map<PyObject*, Deferred> deferred_;
  std::unordered_set<SourceId> loaded_;               // sources of numbers among them
  std::unordered_map<SourceId, py::object> varying_;  // what stands for these
  std::map<std::pair<PyObject*, NumberDtype>, py::object> number_inputs_;
  // By what a GraphNumber holds: the input whose number it is.
  std::unordered_map<PyObject*, py::object> state_of_number_;
  // Of GraphNumbers that are as they came: where from, unless the code has computed them, and the
  // deferred number.
  struct Setting {
    SourceId source;
    py::object number;
  };
  std::unordered_map<PyObject*, Setting> found_at_;
  struct Asked {
    py::object function;
    Arguments parts;
    py::object answer;  // none: whether it is a float
    std::string where;
  };
  std::vector<Asked> asked_;
  bool floats_of_sizes_ = false, numbers_of_data_ = false;    // are among the deferred ones
  std::unordered_map<PyObject*, std::string> names_of_data_;  // of floats and truths, in messages
};

}  // namespace oxy::python
