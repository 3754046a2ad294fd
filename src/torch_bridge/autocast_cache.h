// Casts of weights that autocast keeps until its outermost context ends: eager takes them again
// even where the weight has changed meanwhile.
//
// Recordings cast every time. A cast that eager would find, or leave behind, in its cache becomes a
// node that asks that cache when the plan runs ("oxyfuel.autocast_cast"); the end of the outermost
// context, where a graph that began inside of it has it, one that empties it
// ("oxyfuel.clear_autocast_cache"). What is cast and dropped within a graph stays a cast.
#pragma once

#include <c10/core/TensorImpl.h>

#include "ir/graph.h"

namespace oxy::bridge {

// Which casts of a recording outlive their place in it.
enum class KeptCasts : uint8_t {
  All,    // it begins inside of a context of autocast
  AtEnd,  // those that no end of a context has dropped
  None,   // a region of one that began outside
};
KeptCasts kept_casts_now();

// Makes the ops known to torch, once a process.
void register_autocast_ops();

class AutocastCasts {
 public:
  explicit AutocastCasts(KeptCasts kept) : kept_(kept) {}

  // A cast that was heard, of a leaf that requires gradients; whether an input is one, torch looks
  // at again when the plan runs. `entering`: its value in front of the graph, if it is an input or
  // attribute. False: the weight has changed or its dtype is another one, so that the cache has
  // another cast of it, or none, or this one must not get there.
  bool add(const ir::Node& cast, const c10::TensorImpl* weight, std::optional<ir::ValueId> entering,
           bool grad);
  // What ends the outermost context.
  void clear(ir::Graph& graph);
  void finish(ir::Graph& graph) const;
  bool any() const { return kept_ == KeptCasts::All || !casts_.empty(); }
  KeptCasts in_regions() const { return kept_ == KeptCasts::All ? kept_ : KeptCasts::None; }

 private:
  struct Cast {
    ir::NodeId node;
    bool grad = false;  // grad mode, in which it was made
  };
  void ask_cache(ir::Graph& graph) const;

  const KeptCasts kept_;
  std::vector<Cast> casts_;
  struct First {
    ir::ValueId of;
    ir::Arg dtype;
  };
  std::unordered_map<const c10::TensorImpl*, First> first_;  // by weight: its first cast
};

}  // namespace oxy::bridge
