// What captured code draws from generators of random numbers that live in Python.
#pragma once

#include <set>

#include "python/capture/part.h"
#include "python/draws.h"

namespace oxy::python {

// Python looks at a random number, which has been another one too often: the capture is to break in
// front of this draw.
struct DrawLookedAt {
  size_t draw;
};

class RandomDraws : public Part {
 public:
  using Part::Part;

  // At the start of a capture: behind how many arguments what is drawn stands.
  void begin(size_t arguments) { arguments_ = arguments; }
  // At its end: generators are as they were.
  void end() { before_.restore(); }
  // A function or method that draws from a generator; nothing for all else.
  Done call(py::handle callable, const Arguments& args, const Keywords& kwargs);
  // The same of torch's functions that take a torch.Generator. One that is torch's own by itself is
  // left out.
  Done call_torch(const std::string& name, py::handle callable, const Arguments& args,
                  Keywords& kwargs);
  // The same of methods that fill a tensor.
  Done fill(py::handle tensor, const std::string& name, const Arguments& args,
            const Keywords& kwargs);
  py::object seed_torch(const Arguments& args, const Keywords& kwargs);
  bool is_drawn(SourceId source) const;
  // Python looks at what has this source.
  void note_look(SourceId source) const;
  size_t count() const { return draws_.size(); }
  Draws taken() const;

  std::set<size_t> looked_at;    // draws to break in front of
  bool may_be_looked_at = true;  // else that is a DrawLookedAt

 private:
  py::object draw(const std::string& name, Draw draw, const py::object& generator);
  py::object make(py::handle type, const Arguments& args, const Keywords& kwargs);
  py::object generator_in(Keywords& kwargs);
  py::object plain_argument(const std::string& name, const py::object& o);
  void give(Draw& draw, const std::string& name, std::span<const py::object> args,
            const Keywords& kwargs);

  size_t arguments_ = 0;
  std::vector<Draw> draws_;
  GeneratorStates before_;
};

}  // namespace oxy::python
