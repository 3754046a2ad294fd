// What captured code draws from generators of random numbers that live in Python: the module
// random, a random.Random, NumPy's, a torch.Generator. Each call draws it in front of its graph, in
// the order of the code, and the guards see it as they see arguments, behind these.
#pragma once

#include <memory>

#include "python/guards/guard_program.h"

namespace oxy::python {

// The states of generators, as they were in front of what was drawn: put back, unless forgotten.
class GeneratorStates {
 public:
  GeneratorStates() = default;
  ~GeneratorStates();
  GeneratorStates(const GeneratorStates&) = delete;

  // Whether the state of such an object can be kept.
  static bool knows(py::handle generator);
  static bool is_of_torch(py::handle generator);
  static bool is_default(py::handle generator);
  // In front of a draw. `bits_alone`: that moves the generator's bits, and not the second of a pair
  // of normal numbers, which NumPy's RandomState keeps for the next one.
  void keep(py::handle generator, bool bits_alone = false);
  void restore();
  void forget() { kept_.clear(); }

 private:
  struct Kept {
    py::object generator;
    std::string memory;  // of a random.Random, or of what a RandomState has its bits of
    py::object state;    // the whole; of a random.Random its attribute gauss_next
  };
  std::vector<Kept> kept_;
};

struct Draw {
  SourceId generator;           // none where the draw makes one
  uint32_t place = 0;           // of the generator, among those that a call has found
  std::optional<size_t> maker;  // or the draw that has made it
  py::object function;  // that the generator is the first argument of, or the one of this name
  const char* keyword = nullptr;
  bool bits_alone = false;  // see GeneratorStates::keep
  bool of_default = false;  // the generator is torch's own, whose numbers graphs draw as well
  py::tuple args;
  py::dict kwargs;

  py::object value(py::handle of) const;  // raises as the function does
};

class Draws {
 public:
  Draws() = default;
  // `arguments`: behind how many what is drawn stands.
  Draws(std::vector<Draw> draws, size_t arguments, const SourceTable& sources,
        const GuardSet& guards);

  bool empty() const { return draws_.empty(); }
  // The call's arguments with what is drawn behind them, null where that cannot be, as in no call
  // for which the guards hold: then it says false.
  struct Arguments {
    std::vector<PyObject*> locals;
    std::vector<py::object> held;
  };
  bool draw(std::span<PyObject* const> locals, GeneratorStates& before, Arguments& out) const;

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  std::vector<Draw> draws_;
  std::shared_ptr<GuardProgram> generators_;
};

}  // namespace oxy::python
