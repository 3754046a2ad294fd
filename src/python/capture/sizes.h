// Which sizes and numbers of a capture are symbols, and what a hit needs to know of them.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "python/capture/numbers.h"
#include "python/capture/part.h"
#include "python/guards/shape_guards.h"
#include "python/symbolic_int.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {

// What torch has given, with our objects for its SymInts, also in tuples, lists and torch.Sizes.
py::object from_torch(const py::object& o);

// Whether there are symbolic ints in `o`, and `o` with the ints in their place, which become facts.
bool mentions_symbolic_int(py::handle o);
py::object with_numbers(const py::object& o);

// Where `e` stands in the list, behind the others if it is new.
uint32_t add_once(std::vector<sym::Expr>& list, sym::Expr e);

// What a compiled function knows of sizes, from one capture to the next.
struct DynamicShapes {
  // Never: each combination of sizes has a capture. Automatic: what was another one at some call is
  // a symbol. Always: all but the sizes of a module's state. Barred: not even those that depend on
  // data may be symbols.
  enum class Mode : uint8_t { Never, Automatic, Always, Barred };
  Mode mode = Mode::Never;
  std::unordered_map<std::string, std::set<int64_t>> changed;  // dimensions, by source
  std::unordered_map<std::string, std::set<int64_t>> changed_strides;
  std::unordered_set<std::string> known;  // sources of tensors that captures have looked at
  // What the changed dimensions were in the calls that were captured. A dimension of this size of a
  // tensor that is new to captures (a cache, filled meanwhile) is a symbol, too; where a tensor has
  // several of them, each shares one with those of other tensors in its place alone.
  std::set<int64_t> sizes_before;
  std::unordered_set<std::string> numbers;  // sources of numbers that were others at some call
  bool assumed = false;                     // torch._dynamo.config.assume_static_by_default is off
  bool duck = true;                         // equal sizes share a symbol
  // torch._dynamo.config.force_parameter_static_shapes, and whether allow_unspec_int_on_nn_module
  // is off, where a program has set them: by itself a size of a module's state is a symbol once it
  // has changed, and so is an int.
  std::optional<bool> static_state;
  bool static_module_ints = false;
  bool marked = false;   // a tensor with marks was met
  bool refused = false;  // a capture with symbols could not be had
  // torch._dynamo.config.capture_scalar_outputs and the like; all where no break is allowed.
  // Numbers and sizes of data also where nobody has set anything, as long as that serves.
  bridge::OfData of_data;
  bridge::OfData unasked;     // what of it is by itself
  bridge::OfData of_no_use;   // and does not serve
  size_t unmet = 0;           // calls that eager ran, since something of data was another kind
  bool met_data = false;      // a size or number depends on data
  bool data_refused = false;  // a capture with such symbols could not be had
  // Code decides by a number in an argument: such numbers are read in front of the graph.
  bool reads_arguments = false;

  bool off() const { return mode == Mode::Never || mode == Mode::Barred || refused; }
  bool all() const { return mode == Mode::Always || (mode == Mode::Automatic && assumed); }
  bool wanted() const {
    if (has_data()) return true;
    return !off() && (all() || marked || reads_arguments || !changed.empty() ||
                      !changed_strides.empty() || !numbers.empty());
  }
  bool takes_data() const { return mode != Mode::Barred && !refused && !data_refused; }
  bool has_data() const { return takes_data() && met_data; }
  // A capture with symbols could not be had: those of data go first.
  void give_up() { (has_data() ? data_refused : refused) = true; }
  // Whether there was something of data that nobody has asked for: there is none from here on.
  // `numbers`: a capture has met numbers of data, which go first.
  bool give_up_unasked(bool numbers) {
    const auto kind =
        numbers && unasked.numbers ? &bridge::OfData::numbers : &bridge::OfData::sizes;
    if ((kind == &bridge::OfData::sizes && !has_data()) || !(unasked.*kind)) return false;
    of_no_use.*kind = true;
    met_data = unasked.*kind = of_data.*kind = false;
    return true;
  }
};

// Of a capture that is to start again with symbols, also those of data, or without.
struct WithSymbols {
  bool of_data = false;
};
struct WithoutSymbols {
  std::string why;
};

class Sizes : public Part {
 public:
  Sizes(Capture& capture, const DynamicShapes* policy)
      : Part(capture), policy_(policy), symbolic_(policy != nullptr && policy->wanted()) {}

  // Whether the recording may have symbols.
  bool symbolic() const { return symbolic_; }
  bool may_be_symbolic() const { return policy_ != nullptr && !policy_->off(); }
  bridge::OfData of_data() const;  // what of data may be symbols
  // Whether a number of data may be one that is only checked.
  bool takes_checks() const { return policy_ != nullptr && policy_->takes_data(); }
  // What of a tensor from before the call is symbols.
  std::vector<bridge::DynamicDim> dims_of(py::handle tensor, SourceId source);
  // The tensor has become an input of the graph, with this type.
  void add_tensor(py::handle real, const ir::TensorType& type);
  // Whether it is an int of a module that is a number of each capture.
  bool is_static_int(SourceId source) const;
  // Whether it is an int that varies; what stands for one, where Python looks at it, else null.
  bool varies(py::handle real, SourceId source) const;
  py::object number(py::handle real, SourceId source);
  // An int that calls compute so of a float and sizes, of `value` in this one; null where it is no
  // symbol.
  py::object computed_number(NumberTree number, std::vector<sym::Expr> of_sizes,
                             const py::object& of, const py::object& value);
  void shift_computed(uint32_t by, uint32_t sizes_by);
  void read_computed();  // where no call computes any
  // min or max of ints, some of which are symbolic; null where others are among them.
  py::object extreme(const py::list& items, bool least);
  // What a loop over range(*args) of sizes goes through, of which only how many there are is a
  // fact; null where no sizes are among the arguments.
  py::object rounds(const Arguments& args);
  // How many these are, and their sum; null where no expression says it.
  py::object count(const Arguments& args);
  py::object sum_of_range(const Arguments& args);
  // range(*args) as a tensor, an index; null where it is none of sizes.
  py::object range_tensor(const Arguments& args);
  // Whether an int is in it, which becomes a fact; nothing where it is no int.
  std::optional<bool> is_in_range(py::handle number, const Arguments& args);
  // The integer in a tensor of one element, as a symbol where the settings have it: what item()
  // gives, and an index. Those of a tensor, as tolist() gives them. Null where they are none.
  py::object number_in(const py::object& tensor);
  py::object list_of(const py::object& tensor);
  // The number in a tensor without dimensions from before the call, to which captured code has not
  // written, as of a call; null where that is not wanted: `met_argument` says that it could be.
  py::object number_in_argument(const py::object& tensor);
  bool met_argument = false;
  bool met_number = false;  // a number of data has been had
  // tensor[key] where symbolic ints are among the indices, which torch's Tensor.__getitem__ does
  // not take: view[key], or the view itself where the key is null. Nothing where there are none.
  py::object with_index_tensors(const py::object& key);
  struct Selected {
    py::object view, key;
  };
  std::optional<Selected> select(const py::object& tensor, const py::object& key);
  // torch._check and the like: what holds from here on. False where it is no condition of symbols.
  bool assume(py::handle condition, bool holds = true);
  // The exact square root of an int, which Python rounds to a float, as an int; null where it is
  // none, is negative or large.
  std::optional<py::object> square_root(py::handle x, Rounding how);
  // What an operator or a function of torch makes of tensors of int64 that hold these ints; null
  // where no expression gives it.
  std::optional<py::object> computed(std::string_view function, const Arguments& numbers,
                                     const Keywords& kwargs);
  // Arguments of a function in C that looks at numbers: as plain ints.
  void make_plain(Arguments& args, Keywords& kwargs);

  // Which of the numbers behind what the guards fetch this is.
  uint32_t wanted(py::handle symbolic);
  std::vector<std::string> wanted_texts() const;
  // Null where nothing is symbolic. Once the recording has ended.
  // `offsets`: where in its storage a tensor begins counts.
  std::shared_ptr<ShapeGuards> guards(bool offsets) const;
  // What calls check while they run, with who asked for it.
  std::vector<std::string> checks() const;
  // Whether a tensor whose sizes are symbols lies in one storage with another input: at some sizes
  // they may overlap.
  bool share_written_storage() const;
  // What is to be said of dimensions that are marked as dynamic and have become numbers; empty
  // where there are none.
  std::string violations() const;

 private:
  struct Range {
    sym::Expr first, step, count;
  };
  // range(*args) of sizes; nothing where it is another one.
  std::optional<Range> range_of(const Arguments& args);
  py::object recorded_item(const py::object& tensor);  // null where it holds no integers
  // A number of each call becomes an input of the graph.
  py::object add_number(py::handle real, SourceId source, std::string what);

  const DynamicShapes* policy_;
  const bool symbolic_;  // what the policy said when the capture began
  struct Marked {
    std::string name;  // L['x'].size()[0]
    size_t dim;
    int64_t hint;
    sym::Expr size;
    std::optional<int64_t> least = {}, most = {};

    bool holds(int64_t n) const { return n >= least.value_or(n) && n <= most.value_or(n); }
  };
  // As torch._dynamo.mark_dynamic has left it: which sizes a dimension may have.
  void limit(py::handle tensor, const ir::TensorType& type, size_t first_mark);
  // What the code has left of the sizes that a mark names; empty where that is all of them.
  std::string narrowed(const Marked& m) const;

  std::vector<Marked> marked_;
  std::map<SourceId, py::object> in_arguments_;  // symbols, by source
  std::vector<ShapeGuards::Input> inputs_;
  std::vector<ShapeGuards::Computed> computed_;
  std::vector<std::pair<py::object, py::object>> computed_symbols_;  // the float, the symbol
  std::vector<sym::Expr> wanted_;
};

}  // namespace oxy::python
