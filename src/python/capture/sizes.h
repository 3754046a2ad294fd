// Which sizes and numbers of a capture are symbols, and what a hit needs to know of them.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "python/capture/part.h"
#include "python/guards/shape_guards.h"
#include "python/symbolic_int.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {

// What torch has given, with our objects for its SymInts, also in tuples, lists and torch.Sizes.
py::object from_torch(const py::object& o);

// Whether there are symbolic ints in `o`, and `o` with the ints in their place, which become facts.
bool mentions_symbolic_int(py::handle o);
py::object with_numbers(const py::object& o);

// What a compiled function knows of sizes, from one capture to the next.
struct DynamicShapes {
  // Never: each combination of sizes has a capture. Automatic: what was another one at some call is
  // a symbol. Always: all but the sizes of a module's state.
  enum class Mode : uint8_t { Never, Automatic, Always };
  Mode mode = Mode::Never;
  std::unordered_map<std::string, std::set<int64_t>> changed;  // dimensions, by source
  std::unordered_set<std::string> known;  // sources of tensors that captures have looked at
  // What the changed dimensions were in the calls that were captured. A dimension of this size of a
  // tensor that is new to captures (a cache, filled meanwhile) is a symbol, too.
  std::set<int64_t> sizes_before;
  std::unordered_set<std::string> numbers;  // sources of numbers that were others at some call
  bool assumed = false;                     // torch._dynamo.config.assume_static_by_default is off
  bool marked = false;                      // a tensor with marks was met
  bool refused = false;                     // a capture with symbols could not be had

  bool all() const { return mode == Mode::Always || (mode == Mode::Automatic && assumed); }
  bool wanted() const {
    if (mode == Mode::Never || refused) return false;
    return all() || marked || !changed.empty() || !numbers.empty();
  }
};

// Of a capture that is to start again with symbols, or without.
struct WithSymbols {};
struct WithoutSymbols {
  std::string why;
};

class Sizes : public Part {
 public:
  Sizes(Capture& capture, const DynamicShapes* policy)
      : Part(capture), policy_(policy), symbolic_(policy != nullptr && policy->wanted()) {}

  // Whether the recording may have symbols.
  bool symbolic() const { return symbolic_; }
  // The dimensions of a tensor from before the call whose sizes are symbols.
  std::vector<bridge::DynamicDim> dims_of(py::handle tensor, SourceId source);
  // The tensor has become an input of the graph, with this type.
  void add_tensor(py::handle real, const ir::TensorType& type);
  // What stands for an int that varies; null where it is to be a constant.
  py::object number(py::handle real, SourceId source);
  // min or max of ints, some of which are symbolic; null where others are among them.
  py::object extreme(const py::list& items, bool least);
  // Arguments of a function in C that looks at numbers: as plain ints.
  void make_plain(Arguments& args, Keywords& kwargs);

  // Which of the numbers behind what the guards fetch this is.
  uint32_t wanted(py::handle symbolic);
  // Null where nothing is symbolic. Once the recording has ended.
  std::shared_ptr<ShapeGuards> guards() const;
  // What is to be said of dimensions that are marked as dynamic and have become numbers; empty
  // where there are none.
  std::string violations() const;

 private:
  const DynamicShapes* policy_;
  const bool symbolic_;  // what the policy said when the capture began
  struct Marked {
    std::string name;  // L['x'].size()[0]
    int64_t hint;
    sym::Expr size;
  };
  // As torch._dynamo.mark_dynamic has left it: which sizes a dimension may have.
  void limit(py::handle tensor, const ir::TensorType& type);

  std::vector<Marked> marked_;
  std::vector<ShapeGuards::Input> inputs_;
  std::vector<sym::Expr> wanted_;
};

}  // namespace oxy::python
