// One capture: a function is interpreted on the real objects that it meets, tensors apart, which
// are fakes (ARCHITECTURE.md, Capture). What was there before the call (found through a source) is
// never changed and never handed to code that the interpreter does not see. A Break ends the
// capture; an exception of the captured code unwinds its frames as in CPython and, when nobody
// handles it, comes out of `run` as it is.
#pragma once

#include "python/capture/calls.h"
#include "python/capture/graphs.h"
#include "python/capture/inference.h"
#include "python/capture/iterators.h"
#include "python/capture/numbers.h"
#include "python/capture/object_kinds.h"
#include "python/capture/objects.h"
#include "python/capture/random_draws.h"
#include "python/capture/sizes.h"
#include "python/capture/wrappers.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {

// Each part owns its state; what all of them need of it is public there.
class Capture {
 public:
  // `policy`: of sizes, or null.
  explicit Capture(const DynamicShapes* policy = nullptr) : sizes(*this, policy) {}

  // Interprets `function` on its bound arguments (localsplus order, arguments first), up to its
  // return or to step `stop_at`.
  void run(py::handle function, std::span<const py::object> bound, size_t stop_at = SIZE_MAX);

  Heap heap{*this};
  Effects effects{*this};
  Iterators iterators{*this};
  Numbers numbers{*this};
  Sizes sizes;
  Objects objects{*this};
  Classes classes{*this};
  Arrays arrays{*this};
  Calls calls{*this};
  Frames frames{*this};
  Graphs graphs{*this};
  RandomDraws draws{*this};
  Inference inference{*this};
  Wrappers wrappers{*this};
};

inline Heap& Part::heap() const { return capture_.heap; }
inline Effects& Part::effects() const { return capture_.effects; }
inline Iterators& Part::iterators() const { return capture_.iterators; }
inline Numbers& Part::numbers() const { return capture_.numbers; }
inline Sizes& Part::sizes() const { return capture_.sizes; }
inline Objects& Part::objects() const { return capture_.objects; }
inline Classes& Part::classes() const { return capture_.classes; }
inline Arrays& Part::arrays() const { return capture_.arrays; }
inline Calls& Part::calls() const { return capture_.calls; }
inline Frames& Part::frames() const { return capture_.frames; }
inline Graphs& Part::graphs() const { return capture_.graphs; }
inline RandomDraws& Part::draws() const { return capture_.draws; }
inline Inference& Part::inference() const { return capture_.inference; }
inline Wrappers& Part::wrappers() const { return capture_.wrappers; }

// One attempt at a capture of this thread, from a new Capture to its end.
struct Attempt {
  explicit Attempt(bool compiling)
      : is_compiling(compiling), outer_(std::exchange(current_, this)) {}
  ~Attempt() { current_ = outer_; }
  Attempt(const Attempt&) = delete;
  static Attempt& current() { return *current_; }

  const bool is_compiling;  // what torch.compiler.is_compiling says
  bool was_asked = false;
  const bridge::Heard before = bridge::heard();

 private:
  static inline thread_local Attempt* current_ = nullptr;
  Attempt* outer_;
};

// The capture has changed what it has read: it is to start again.
struct StartAgain {};

}  // namespace oxy::python
