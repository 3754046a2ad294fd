// One walk over inputs, mutations and results.
#include "autograd/holders.h"

#include "autograd/recompute.h"
#include "autograd/sides.h"
#include "passes/rewrite.h"

namespace oxy::autograd {

Holders::Holders(const ir::Graph& joint, const Sides& sides, const Readers& readers,
                 bool allows_writes)
    : g_(joint), copies_(joint, sides), held_(joint.value_count()) {
  for (size_t i = 0; i < joint.primals(); ++i)
    held_[joint.inputs()[i].index] = {
        .lives = true, .kind = Saved::Kind::Primal, .index = static_cast<uint32_t>(i)};
  for (const ir::Mutation& m : joint.mutations)
    held_[joint.inputs()[m.input].index] = {.changes = true};
  for (size_t i = 0; i < forward_results(joint); ++i) {
    const ir::OutputSpec& o = joint.outputs[i];
    if (o.kind != ir::OutputSpec::Kind::Value) continue;
    Held& held = held_[o.value.index];
    if (held.lives || held.changes) continue;
    // The caller may mark the very tensor as to be conjugated.
    if (o.conj || o.neg)
      held = {.changes = true};
    else
      held = {.lives = true, .kind = Saved::Kind::Result, .index = static_cast<uint32_t>(i)};
  }
  for (uint32_t i = 0; allows_writes && i < held_.size(); ++i)
    if (held_[i].lives && joint.value(ir::ValueId(i)).type.is_tensor() &&
        !readers.of(ir::ValueId(i)).by_backward)
      held_[i] = {.changes = true};
  for (const ir::Mutation& m : joint.mutations) {
    Held& held = held_[m.value.index];
    if (allows_writes && !held.lives && !held.changes && readers.of(m.value).by_backward &&
        !passes::is_view(joint.def(m.value)) &&
        same_place(joint.tensor_type(m.value), joint.tensor_type(joint.inputs()[m.input])))
      held = {.lives = true, .written = m.input};
  }
}

bool Holders::must_be_copied(ir::ValueId v) const {
  return held_[v.index].changes || (!lives_anyway(v) && passes::is_view(g_.def(v)));
}

bool Holders::can_be_saved(ir::ValueId v) const {
  if (lives_anyway(v)) return true;
  if (held_[v.index].changes) return copies_.possible(v);
  const ir::Node& def = g_.def(v);
  if (passes::is_view(def)) return copies_.is_small_view(v);
  return g_.value(v).type.is_tensor() && recompute_rule(g_, def).may != Recompute::Free;
}

Saved Holders::saved_as(ir::ValueId v) const {
  const ir::Type& t = g_.value(v).type;
  Saved out{.kind = held_[v.index].kind, .index = held_[v.index].index, .type = t};
  out.written = held_[v.index].written;
  if (must_be_copied(v)) out.type.tensor = compact(t.tensor);
  out.bytes = t.is_tensor() ? bytes(t.tensor) : 0;
  return out;
}

}  // namespace oxy::autograd
