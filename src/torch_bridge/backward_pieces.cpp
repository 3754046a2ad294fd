// Runs the engine up to the tensors at which a piece ends, and on from there.
#include "torch_bridge/backward_pieces.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <set>

#include "support/check.h"
#include "torch_bridge/engine_order.h"

namespace oxy::bridge {

using torch::autograd::Edge;

BackwardPieces::BackwardPieces(const Edges& roots, const Edges& stops, const Edges& by)
    : roots_(roots), stops_(stops), by_(by), nodes_(in_engine_order(roots)) {
  for (size_t i = 0; i < nodes_.size(); i++) place_of_[nodes_[i]] = i;
  // Nodes come in front of those that they hand gradients to.
  std::vector<bool> leads_to(nodes_.size());
  runs_.resize(nodes_.size());
  for (const Edge& e : by)
    if (const auto it = place_of_.find(e.function.get()); it != place_of_.end())
      leads_to[it->second] = true;
  for (size_t i = nodes_.size(); i-- > 0;) {
    for (const Edge& e : nodes_[i]->next_edges())
      if (e.function && leads_to[place_of_.at(e.function.get())]) runs_[i] = true;
    leads_to[i] = leads_to[i] || runs_[i];
  }
  for (size_t i = 0; i < stops.size(); i++) {
    const auto it = place_of_.find(stops[i].function.get());
    if (it != place_of_.end() && leads_to[it->second]) order_.push_back(i);
  }
  auto place = [&](size_t stop) { return place_of_.at(stops_[stop].function.get()); };
  std::ranges::stable_sort(order_, {}, place);
  for (const size_t stop : order_) ends_.push_back(place(stop));
  ends_.push_back(nodes_.size());
}

BackwardPieces::Slot BackwardPieces::slot_of(const Edge& edge) const {
  return {place_of_.at(edge.function.get()), edge.input_nr};
}

void BackwardPieces::add(const Edge& edge, at::Tensor gradient) {
  if (!edge.function || !gradient.defined()) return;
  const auto [place, input] = slot_of(edge);
  Tensors& inputs = arrived_[place];
  inputs.resize(nodes_[place]->num_inputs());
  inputs[input] = inputs[input].defined() ? inputs[input].add(gradient) : std::move(gradient);
}

// As torch::autograd::Engine does.
void BackwardPieces::run_node(size_t place, bool frees) {
  Node& node = *nodes_[place];
  Tensors inputs = std::move(arrived_[place]);
  inputs.resize(node.num_inputs());
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  const Tensors before = node.post_hooks().empty() ? Tensors() : inputs;
  Tensors outputs = node(std::move(inputs));
  torch::autograd::validate_outputs(node.next_edges(), outputs,
                                    [&](const std::string& s) { return node.name() + ": " + s; });
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, before);
  if (frees) node.release_variables();
  for (size_t i = 0; i < outputs.size(); i++) add(node.next_edge(i), std::move(outputs[i]));
}

// What may have arrived at nodes from `end` on by those in front of it.
std::vector<BackwardPieces::Slot> BackwardPieces::slots_from(size_t end) const {
  std::set<Slot> out;
  auto reach = [&](const Edge& e) {
    if (e.function && slot_of(e).first >= end) out.insert(slot_of(e));
  };
  for (const Edge& e : roots_) reach(e);
  for (size_t i = 0; i < end; i++)
    if (runs_[i])
      for (const Edge& e : nodes_[i]->next_edges()) reach(e);
  return {out.begin(), out.end()};
}

// Gradients that are known in front of the node at `end`, by position in `by`. Of a node that hands
// on what arrives the engine takes them in front of its hooks, of another one behind them.
std::vector<size_t> BackwardPieces::found_before(size_t end) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < by_.size(); i++) {
    const auto it = place_of_.find(by_[i].function.get());
    if (it != place_of_.end() && (it->second < end || (it->second == end && runs_[end])))
      out.push_back(i);
  }
  return out;
}

at::Tensor BackwardPieces::arrived_at(const Edge& edge) const {
  const auto [place, input] = slot_of(edge);
  const Tensors& inputs = arrived_[place];
  return input < inputs.size() ? inputs[input] : at::Tensor();
}

BackwardPieces::Tensors BackwardPieces::run(size_t k, Tensors given, bool frees) {
  const c10::AutoGradMode off(false);
  arrived_.assign(nodes_.size(), {});
  Tensors found(by_.size());
  const size_t begin = k == 0 ? 0 : ends_[k - 1], end = ends_[k];
  auto put = [&](const Slot& slot, at::Tensor gradient) {
    Tensors& inputs = arrived_[slot.first];
    inputs.resize(nodes_[slot.first]->num_inputs());
    inputs[slot.second] = std::move(gradient);
  };
  if (k == 0) {
    for (size_t i = 0; i < roots_.size(); i++) add(roots_[i], std::move(given[i]));
  } else {
    const std::vector<Slot> slots = slots_from(begin);
    const std::vector<size_t> known = found_before(begin);
    OXY_CHECK(given.size() == 1 + known.size() + slots.size(),
              "a piece of a backward is given: ", given.size());
    auto next = given.begin() + 1;
    for (const size_t i : known) found[i] = std::move(*next++);
    for (const Slot& slot : slots) put(slot, std::move(*next++));
    put(slot_of(stops_[order_[k - 1]]), std::move(given[0]));
  }
  for (size_t place = begin; place < end; place++) {
    if (!runs_[place])
      for (const auto& hook : nodes_[place]->tensor_pre_hooks()) {
        arrived_[place].resize(nodes_[place]->num_inputs());
        arrived_[place] = (*hook)(arrived_[place]);
      }
    for (size_t i = 0; i < by_.size(); i++)
      if (by_[i].function.get() == nodes_[place] && !(k > 0 && place == begin && runs_[place]))
        found[i] = arrived_at(by_[i]);
    if (runs_[place]) run_node(place, frees);
  }
  if (end == nodes_.size()) return found;
  Tensors out{arrived_at(stops_[order_[k]])};
  for (const size_t i : found_before(end))
    out.push_back(place_of_.at(by_[i].function.get()) < end ? found[i] : arrived_at(by_[i]));
  for (const auto& [place, input] : slots_from(end))
    out.push_back(input < arrived_[place].size() ? arrived_[place][input] : at::Tensor());
  return out;
}

}  // namespace oxy::bridge
