// Patterns: a small ATen graph is looked for in a large one, and another put in its place.
//
// A pattern is a recording of a function: its inputs stand for any tensors, every op must be there
// with its arguments, and values that are no results of the pattern must have no other reader. With
// Numbers::Any the numbers in arguments are not compared: so a pattern recorded at one size finds
// candidates of every size; its function is then recorded once more with the types that were found,
// and the match repeated with Numbers::Equal.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace oxy::passes {

enum class Numbers : uint8_t { Any, Equal };

struct Pattern {
  ir::Graph graph{ir::Stage::Aten};
  // Numbers that stand for any number, by the value that they have in the graph.
  std::vector<ir::Arg> numbers;
};

struct Match {
  std::vector<ir::ValueId> inputs;   // by input of the pattern
  std::vector<ir::Arg> numbers;      // by number of the pattern
  std::vector<ir::ValueId> outputs;  // by output of the pattern
  std::vector<ir::NodeId> nodes;     // all that was matched
};

// Makes a recording of a function, whose every result was cloned at its end, the pattern of that
// function: the clones go. UserError where it cannot be one: it writes to an input, returns one,
// has an effect or a constant tensor.
void make_pattern(ir::Graph& recording);

// The match in which the node makes the pattern's last result.
std::optional<Match> match_at(const ir::Graph& g, ir::NodeId last, const Pattern& pattern,
                              Numbers compared);

// Puts the replacement (made by make_pattern too; it has the pattern's inputs and results) in the
// place of the match. Nothing happens, and false is returned, where a result would have another
// layout.
bool substitute(ir::Graph& g, const Match& match, const ir::Graph& replacement);

// A pattern and its replacement, recorded for certain types and numbers.
struct Replacement {
  Pattern pattern;
  ir::Graph graph;
};
using Specialise = std::function<std::optional<Replacement>(
    const std::vector<ir::TensorType>& inputs, const std::vector<ir::Arg>& numbers)>;

// Replaces the pattern wherever it is found, first to last; `specialise` may refuse a place. Says
// how often.
size_t replace_all(ir::Graph& g, const Pattern& pattern, const Specialise& specialise);

}  // namespace oxy::passes
