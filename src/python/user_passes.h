// The passes that a user has registered (python/oxyfuel/passes.py), as the pipeline takes them.
// Compilation waits for Python here only where somebody has registered a pass.
#pragma once

#include <vector>

#include "passes/match_pattern.h"
#include "pipeline/pipeline.h"
#include "python/replay.h"

namespace oxy::python {

// What oxyfuel.register_replacement keeps: a pattern recorded with its example inputs, and how to
// record it anew.
struct UserPattern {
  passes::Pattern pattern;
  // (tensors, numbers) -> (AtenGraph, AtenGraph) of the pattern and its replacement, or None where
  // a check refuses.
  py::object record;
};

std::shared_ptr<UserPattern> make_user_pattern(const Recording& search, const py::tuple& numbers,
                                               py::object record);

// From (name, in_front, UserPattern or function (AtenGraph, example inputs) -> AtenGraph). The
// passes work on the graph of `recording`, which must outlive them; a function's new recording
// takes its place.
std::vector<pipeline::UserPass> user_passes(const py::handle& registered, Recording& recording,
                                            const py::tuple& args);

}  // namespace oxy::python
