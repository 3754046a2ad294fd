// Marks on outputs of the forward, copies in the backward.
#include "autograd/saved_layouts.h"

#include <algorithm>
#include <optional>

#include "ops/contraction.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

constexpr size_t kImageDims = 4;
constexpr int8_t kContiguous = 0;  // c10::MemoryFormat

using Sizes = std::vector<ir::Expr>;

// Of what convolutions that want channels-last read and write.
std::vector<Sizes> sizes_of_images(const ir::Graph& backward, const Machine& machine) {
  std::vector<Sizes> out;
  const auto add = [&](ir::ValueId v) {
    const ir::Type& t = backward.value(v).type;
    if (t.is_tensor() && t.tensor.sizes.size() == kImageDims) out.push_back(t.tensor.sizes);
  };
  for (ir::NodeId id : backward.order()) {
    const ir::Node& n = backward.node(id);
    if (n.dead || !ops::library_wants_channels_last(backward, n, machine)) continue;
    for_each_value(n, add);
    std::ranges::for_each(n.outputs, add);
  }
  return out;
}

// Each reader has a copy of its own, since a backward may be cut between them; passes::cse leaves
// one of equal ones.
void read_copies(ir::Graph& backward, size_t input, Sizes strides) {
  const ir::ValueId saved = backward.inputs()[input];
  std::swap(backward.value(saved).type.tensor.strides, strides);
  const std::vector<ir::NodeId> order = backward.order();
  for (ir::NodeId id : order) {
    ir::Node& n = backward.node(id);
    if (n.dead) continue;
    std::optional<ir::ValueId> copy;
    for (ir::Arg& a : n.args)
      a = ir::map_values(a, [&](ir::ValueId v) {
        if (v != saved) return v;
        if (!copy) copy = passes::insert_copy(backward, id, saved, {kContiguous}, strides);
        return *copy;
      });
  }
}

// Whether a gradient is this input itself, which would show its layout.
bool is_gradient(const ir::Graph& backward, size_t input) {
  return std::ranges::any_of(backward.outputs, [&](const ir::OutputSpec& o) {
    return (o.kind == ir::OutputSpec::Kind::Input || o.kind == ir::OutputSpec::Kind::ViewOfInput) &&
           o.index == input;
  });
}

}  // namespace

void open_layouts(Partition& parts, const Machine& machine) {
  const std::vector<Sizes> images = sizes_of_images(parts.backward, machine);
  for (size_t i = 0; i < parts.saved.size(); ++i) {
    const Saved& s = parts.saved[i];
    if (s.kind == Saved::Kind::Value && s.type.is_tensor() && s.type.tensor.is_row_major() &&
        std::ranges::find(images, s.type.tensor.sizes) != images.end() &&
        !is_gradient(parts.backward, i))
      parts.forward.outputs[s.index].any_layout = true;
  }
}

void close_layouts(Partition& parts, const std::map<size_t, Sizes>& strides) {
  for (size_t i = 0; i < parts.saved.size(); ++i) {
    Saved& s = parts.saved[i];
    const auto found = s.kind == Saved::Kind::Value ? strides.find(s.index) : strides.end();
    if (found == strides.end() || found->second == s.type.tensor.strides) continue;
    s.type.tensor.strides = found->second;
    read_copies(parts.backward, i, found->second);
  }
}

}  // namespace oxy::autograd
