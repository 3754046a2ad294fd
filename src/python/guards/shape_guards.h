// The sizes of a capture that vary: which calls it is good for, as conditions over the sizes,
// strides, offsets and numbers of a call's inputs, checked by a size program in every call.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/types.h"
#include "pipeline/size_slots.h"
#include "python/guards/guard.h"
#include "python/guards/number_tree.h"

namespace oxy::python {

class ShapeGuards {
 public:
  // A tensor whose layout has symbols, or an int that is one.
  struct Input {
    uint32_t fetched;  // position among what the guards fetch
    ir::Type type;
    std::string name;
  };
  // An int that is computed of what was fetched, and takes the place of what was fetched there.
  struct Computed {
    uint32_t input, fetched;
    NumberTree number;
    std::vector<sym::Expr> sizes;  // in it, behind what was fetched; of inputs in front of this one
  };
  // `wanted`: what a hit computes of the sizes. `numbers`: what is asked about numbers of these.
  // `offsets`: whether those of tensors count.
  ShapeGuards(std::span<const Input> inputs, const sym::ShapeFacts& facts,
              std::span<const sym::Expr> wanted, std::vector<Computed> computed,
              std::vector<NumberGuard> numbers, bool offsets);

  // Whether the objects that were fetched fit; then `fetched` gets what is wanted, ints.
  bool check(Fetched& fetched) const;
  bool fits(Fetched& fetched) const;  // the same of the sizes alone
  struct Failure {
    std::string text, where;
  };
  // The first condition that does not hold. Nothing if all do.
  std::optional<Failure> why_not(std::span<PyObject* const> fetched) const;
  // A condition a line: what is read, then the facts with who asked for them.
  const std::vector<Failure>& conditions() const { return texts_; }
  // What became of each size and number: "L['x'].size()[0] = s0, 5 in the call that was captured",
  // or a number, with the facts that made it one.
  const std::vector<std::string>& dimensions() const { return dimensions_; }

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  struct Read {
    uint32_t fetched;
    bool tensor;
  };
  using Slots = c10::SmallVector<int64_t, 64>;
  // As pipeline::first_failure; nothing to evaluate where a number has no 64 bits: the first one.
  // The program reads the first inputs, so many.
  std::optional<size_t> first_failure(const pipeline::SizeCheck& check, size_t inputs,
                                      std::span<PyObject* const> fetched, Slots& slots) const;

  bool compute(Fetched& fetched) const;

  std::vector<Read> inputs_;  // of the programs
  std::vector<Computed> computed_;
  std::vector<pipeline::SizeCheck> computed_sizes_;  // by number; no checks where it has no sizes
  pipeline::SizeCheck check_;
  std::vector<NumberGuard> numbers_;
  std::vector<Failure> texts_;  // by check, and of `numbers_`
  std::vector<std::string> dimensions_;
};

}  // namespace oxy::python
