// What lives on behind a forward in any case, and what it takes to keep a value that does not.
#pragma once

#include "autograd/compact.h"
#include "autograd/partition.h"
#include "autograd/readers.h"

namespace oxy::autograd {

class Holders {
 public:
  // `allows_writes`: PartitionOptions.
  Holders(const ir::Graph& joint, const Sides& sides, const Readers& readers, bool allows_writes);

  // A primal that stays what it is, or what it becomes, or a result. Nothing is kept for it.
  bool lives_anyway(ir::ValueId v) const { return held_[v.index].lives; }
  // Not as it is: somebody writes to it, the caller sees it otherwise, or it is a view.
  bool must_be_copied(ir::ValueId v) const;
  // Whether the forward can give it to the backward.
  bool can_be_saved(ir::ValueId v) const;
  // The kind, and the index where it lives anyway.
  Saved saved_as(ir::ValueId v) const;

 private:
  struct Held {
    bool lives = false, changes = false;
    Saved::Kind kind = Saved::Kind::Value;
    uint32_t index = 0;
    std::optional<uint32_t> written = {};  // Saved::written
  };
  const ir::Graph& g_;
  const CompactCopies copies_;
  std::vector<Held> held_;  // by value
};

}  // namespace oxy::autograd
