// As the engine does: what has been made last first, once all that leads to it has been.
#include "torch_bridge/engine_order.h"

#include <torch/csrc/autograd/function.h>

#include <queue>
#include <unordered_map>

namespace oxy::bridge {

using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

// By node that a backward comes to: how many gradients it waits for.
std::unordered_map<const Node*, size_t> gradients_awaited(const torch::autograd::edge_list& from) {
  std::unordered_map<const Node*, size_t> out;
  std::vector<const Node*> open;
  auto await = [&](const Edge& e) {
    if (e.function && out[e.function.get()]++ == 0) open.push_back(e.function.get());
  };
  for (const Edge& e : from) await(e);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Edge& e : node->next_edges()) await(e);
  }
  return out;
}

}  // namespace

bool is_of_python(const Node& node) {
  return std::string_view(typeid(node).name()) == "N5torch8autograd6PyNodeE";
}

bool leads_to(const torch::autograd::edge_list& from, const Node& node) {
  return gradients_awaited(from).contains(&node);
}

std::vector<Node*> in_engine_order(const torch::autograd::edge_list& from) {
  std::unordered_map<const Node*, size_t> awaited = gradients_awaited(from);
  // Of the nodes that are ready it takes the one that was made last, and leaves at once. Among
  // those that are alike its heap decides, which is the library's.
  auto earlier = [](const Node* a, const Node* b) { return a->sequence_nr() < b->sequence_nr(); };
  std::priority_queue<Node*, std::vector<Node*>, decltype(earlier)> ready(earlier);
  auto arrive = [&](const Edge& e) {
    if (e.function && --awaited[e.function.get()] == 0) ready.push(e.function.get());
  };
  for (const Edge& e : from) arrive(e);
  std::vector<Node*> out;
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    out.push_back(node);
    for (const Edge& e : node->next_edges()) arrive(e);
  }
  return out;
}

}  // namespace oxy::bridge
