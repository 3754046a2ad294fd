// Captured code in the place of what C code asks, which may ask as often as it likes: so it may
// change nothing but what it has made itself.
#pragma once

#include <tuple>

#include "python/capture/capture.h"

namespace oxy::python {

class Question : public Part {
 public:
  // Before it is asked. `reached`: the function, and what it is given.
  Question(Capture& capture, Arguments reached)
      : Part(capture),
        reached_(std::move(reached)),
        before_(graphs().snapshot(reached_)),
        counts_(counts()) {}

  bool had_effects() const {
    return counts() != counts_ || !graphs().is_unchanged(before_, graphs().snapshot(reached_));
  }

 private:
  using Counts = std::tuple<size_t, size_t, size_t, std::pair<size_t, size_t>>;

  Counts counts() const {
    return {effects().count(), calls().behind().size(), draws().count(), graphs().position()};
  }

  const Arguments reached_;
  const Graphs::Snapshot before_;
  const Counts counts_;
};

}  // namespace oxy::python
