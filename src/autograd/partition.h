// Cuts a joint graph (ir/graph.h, Stage::Joint) into a forward and a backward graph, both of the
// ATen stage, and chooses what the one keeps for the other.
//
// Who computes what. The forward: all that its results, its mutations and its effects take. The
// backward: all that depends on a tangent. What neither claims (the cosine in the gradient of a
// sine) stands where the cut lets it. Random draws and effects happen once: those that stand in
// front of the first call that reads a tangent belong to the forward, later ones to the backward,
// each in their order. Both graphs have all attributes of the joint graph, in its order.
//
// What is saved. Values of the forward are saved or recomputed in the backward, by a minimal cut
// (choose_saved.h says by which costs). Primals and results live anyway: saving one costs nothing.
// A primal that the forward writes to would show its new content, so a copy of the old one is made
// where it is wanted. Views are saved as their bases, unless they are much smaller.
//
// Sizes. A symbol that the backward uses and that no tensor among what is saved has as a size, nor
// the only tangent, is saved as a number: whoever passes these inputs can read every symbol of
// them, whichever tangents are undefined.
#pragma once

#include "ir/graph.h"
#include "support/machine.h"

namespace oxy::autograd {

// An input of the backward graph in front of its tangents.
struct Saved {
  enum class Kind : uint8_t {
    Primal,  // input `index` of the forward, which it does not write to
    Result,  // output `index` of the forward's own: a Value, as its plan makes it
    Value,   // output `index` of the forward, behind its own
    Number,  // the same, a size
  };
  Kind kind = Kind::Value;
  uint32_t index = 0;
  std::string name;  // of the backward's input
  ir::Type type;
  int64_t bytes = 0;    // of a tensor, at the hints of its sizes
  bool direct = false;  // the backward itself reads it, or a view of it: eager keeps it as well
  bool before = false;  // a primal in the memory that it had in the forward, whatever it has now
  // Of a Value that formulas of eager's read: the primal that holds it in the end, and may be given
  // other memory, which is what they read then.
  std::optional<uint32_t> written = {};
  std::string reason;  // why this one
};

struct Partition {
  ir::Graph forward;   // inputs: the primals. Outputs: its own, then what is saved as Value and
                       // Number
  size_t results = 0;  // how many outputs are its own
  ir::Graph backward;  // inputs: `saved` in order, then the tangents. Outputs: a gradient, or None,
                       // by primal; one that is an input itself is OutputSpec::Kind::Input
  std::vector<Saved> saved;
};

// Default: all that the backward reads of the forward is saved.
enum class Policy : uint8_t { MinCut, Default };

struct PartitionOptions {
  Policy policy = Policy::MinCut;
  // torch's activation_memory_budget: 1 is the fastest cut; less saves at most this share of the
  // bytes that Policy::Default does, recomputing what is cheapest by byte first, reductions, gemms
  // and calls at last; 0 as little as possible.
  double memory_budget = 1.0;
  // Whoever has a primal or a result may write to it in front of the backward. Where eager does not
  // keep it (Saved::direct), eager does not mind, but a recomputation from it would. With this, a
  // copy is what is saved of it, if anything. What eager keeps is read off the joint graph as it
  // was recorded: passes in front of the partition (cse, decompose) blur it.
  bool allows_writes = false;
  // By primal, may be shorter: whether somebody else has its memory under a version of its own
  // (`a.data = b`), whose writes eager does not mind either. What reads it is not computed again.
  std::vector<bool> written_unseen = {};
  // How many nodes of the recorded graph stand in front of the formulas of the backward, if that is
  // known. A primal may be given other memory in between: formulas, which have kept the tensor,
  // read that, and what is computed again reads what it had (Saved::before). Where both read a
  // primal, it is saved twice.
  std::optional<size_t> forward_nodes = {};
  // For which attention is written out where that is faster (passes::expand_trained_attention).
  const Machine* machine = nullptr;
};

Partition partition(const ir::Graph& joint, const PartitionOptions& options = {});

// What is saved, as a table: an artefact of the trace folder.
std::string print(const std::vector<Saved>& saved);

// The backward for calls in which some tangents are undefined: nobody used these results. Its
// inputs are those of `backward` without these tangents. A backward is linear in its tangents:
// what depends on undefined ones alone is undefined, and gradients that become so are None; a sum
// with an undefined operand is the other one. Where an op needs a value it gets zeros of the type.
// ops::kMaterialize is done and goes, also where all tangents are defined.
// `defined`: by tangent. `gradients`: outputs behind so many are read by other graphs, in their
// layouts.
ir::Graph without_tangents(const ir::Graph& backward, size_t tangents,
                           const std::vector<bool>& defined, size_t gradients);

// Whether `results` are all undefined, by the same rules, where `gradients` are: of what the nodes
// from position `from` compute.
bool vanish_with(const ir::Graph& graph, size_t from, const std::vector<ir::ValueId>& gradients,
                 const std::vector<ir::ValueId>& results);

}  // namespace oxy::autograd
