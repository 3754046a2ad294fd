// What one call of a compiled graph left for its backward: torch's saved variables, the nodes that
// share them, and how far each run of autograd's engine has come.
//
// A backward without retain_graph lets go of what it has read, but for what results read that it
// has not used up. Eager's nodes know of themselves whether they were; here a result is used up
// where a node that keeps tensors is behind it and behind one that a backward has begun at
// (ReachedResults::kept), on the way to what gradients are by.
#pragma once

#include <atomic>

#include "torch_bridge/backward.h"

namespace oxy::bridge {

// A gradient without the dimensions that vmap has batched, or as it is: the one with a history.
at::Tensor within_batches(at::Tensor t);
// Whether a tensor has these sizes, and these strides where they matter.
bool is_laid_out(const at::Tensor& t, c10::IntArrayRef sizes, c10::IntArrayRef strides);

class Backward::Call {
 public:
  explicit Call(std::shared_ptr<Backward> backward);

  void save(uint32_t input, const at::Tensor& t, bool is_result);
  // `as_is`: eager keeps the tensor itself, which shows what is assigned to its `data`; else views
  // of the memory that it has now.
  void save_input(uint32_t input, const at::Tensor& t, bool as_is);
  // What nodes of the call hold of a tensor that is saved.
  struct Held {
    std::weak_ptr<at::Tensor> tensor;
    // Of an input that is written: its memory, and its version behind that.
    c10::weak_intrusive_ptr<c10::StorageImpl> memory{c10::intrusive_ptr<c10::StorageImpl>()};
    int64_t version = 0;
  };
  void note_held(uint32_t input, Held held) {
    held_.resize(saved_.size());
    held_[input] = std::move(held);
  }
  void save_number(uint32_t input, int64_t n) {
    numbers_.resize(saved_.size());
    numbers_[input] = n;
  }
  // A primal that is not saved: a backward with create_graph may read it, while others hold it, or
  // where it is small.
  // `writes`: of the call's commit point, behind this.
  void remember(uint32_t primal, const Input& input, uint32_t writes);
  void set_generator(runtime::DeviceApi::GeneratorState s) { generator_ = std::move(s); }
  void set_strides(uint32_t result, c10::IntArrayRef strides) {
    strides_[result].assign(strides.begin(), strides.end());
  }
  void enter(uint32_t number, const torch::autograd::Node* node) {
    if (alive_) alive_[number] = node;
  }

  std::string name_of(uint32_t node) const;
  // Called by the engine.
  torch::autograd::variable_list visit(Node& node, torch::autograd::variable_list&& gradients);

 private:
  // What goes through the pieces together. All of it, unless the engine has a result wait for what
  // gradients by another one do not: what is linear can be added up.
  struct Stream {
    size_t next = 0;          // piece
    Tensors carried;          // what that one gets of those in front
    Tensors arrived;          // by result: what those have sent to it
    Tensors tangents;         // by result
    std::vector<bool> begun;  // by result: a gradient by it has come
  };
  struct Task {
    std::vector<Stream> streams;
    std::vector<bool> asked;                 // as Which's
    std::optional<GradientTargets> targets;  // where not all gradients are asked for
    Tensors gradients;                       // by primal
    bool creates_graph = false;
    // With create_graph, of all that gradients without a history of their own depend on.
    torch::autograd::edge_list read;
    bool lacks_history = false;
    std::string why_not;  // of that
    size_t left = 0;      // nodes that the engine is to visit
  };

  const autograd::BackwardCut& cut() const { return *backward_->cut_; }
  size_t results() const { return strides_.size(); }
  size_t count_to_visit(const Node& first) const;
  std::vector<bool> asked_primals(const Node& first) const;
  // The gradient by a primal, for the edge that it leaves by.
  at::Tensor handed(const Node& node, size_t edge, uint32_t primal, at::Tensor gradient) const;
  // What gradients are asked by, where those by all primals are not.
  std::optional<GradientTargets> targets(const std::vector<bool>& asked) const;
  torch::autograd::variable_list visit(Task& task, Node& node,
                                       torch::autograd::variable_list&& gradients);
  void add_tangent(Task& task, uint32_t result, at::Tensor gradient);
  at::Tensor take_arrived(Task& task, Node& node, uint32_t result);
  void advance(Task& task, Stream& s, Node& node, size_t end);
  bool has_some(const Stream& s) const;
  at::Tensor tangent_of(Stream& s, uint32_t result) const;
  torch::autograd::variable_list visit_alone(Node& node, at::Tensor gradient);
  Given gather(Node& node, const Which& which, Tensors tangents);
  // The gradients by all results, as autograd differentiates them; nothing where it cannot, for
  // `why_not`. `tangents`: by result.
  std::optional<Tensors> with_history(Node& node, const std::vector<bool>& asked,
                                      const Tensors& tangents, std::string& why_not);
  // Under anomaly mode: raises as eager's node does that gives a NaN, where that can be told.
  void look_for_nan(Node& node, const std::vector<bool>& asked, const Tensors& tangents);
  Tensors tangents_in_order(const Tensors& by_result) const;
  Tensors primals_for(Node& node, const std::vector<bool>& reads);
  void add_edges_of_saved(torch::autograd::edge_list& edges, const Node& node,
                          const Given& given) const;
  at::Tensor unpacked(Node& node, uint32_t input);
  at::Tensor saved(Node& node, uint32_t input, bool is_read);
  at::Tensor in_kept_memory(uint32_t input, at::Tensor t);
  std::shared_ptr<at::Tensor> held(uint32_t input) const;
  bool is_to_be_emptied(uint32_t input) const;
  void empty(uint32_t input, const at::Tensor& t);
  void reset(uint32_t input);
  void check_unused(const std::optional<GradientTargets>& targets, Range pieces,
                    const std::vector<bool>& begun) const;
  void use_up(const std::optional<GradientTargets>& targets, Range pieces,
              const std::vector<bool>& begun);
  void release(const std::optional<GradientTargets>& targets, Node& node, Range pieces,
               const std::vector<bool>& begun);
  static bool is_run(const std::optional<GradientTargets>& targets, const KeptBehind& kept,
                     const std::vector<bool>& begun);
  bool is_used_up(size_t piece, uint32_t result) const;
  std::vector<bool> still_read() const;

  const std::shared_ptr<Backward> backward_;
  std::mutex mutex_;
  std::vector<torch::autograd::SavedVariable> saved_;  // by input of the backward
  Tensors memory_;  // by input: an alias, of those whose memory is kept; if there are any
  // By input: the tensor itself, if there are any. What it is held by must not be its own history.
  std::vector<Held> held_;
  // By input: of those kept as they are, if their sizes vary.
  struct Layout {
    Strides sizes, strides;
  };
  std::vector<Layout> layouts_;
  std::vector<int64_t> numbers_;  // the same, if there are any
  std::vector<Strides> strides_;  // by result
  // The nodes of the call that are alive, where there are several.
  std::unique_ptr<std::atomic<const torch::autograd::Node*>[]> alive_;
  std::map<int, Task> tasks_;            // by the engine's task
  std::vector<std::vector<bool>> used_;  // by piece and Backward::kept_: let go of, if anything is
  Tensors emptied_;                      // by input: without memory, where sizes vary
  struct Remembered {
    uint32_t primal = 0;
    int64_t number = 0;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> tensor;
    at::Tensor small;  // the same, held
    uint32_t version = 0;
  };
  std::vector<Remembered> remembered_;
  runtime::DeviceApi::GeneratorState generator_;  // in front of the forward, if that draws
};

class Backward::Node : public torch::autograd::Node {
 public:
  Node(std::shared_ptr<Call> call, uint32_t number) : call_(std::move(call)), number_(number) {
    call_->enter(number_, this);
  }
  ~Node() override { call_->enter(number_, nullptr); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return call_->visit(*this, std::move(gradients));
  }
  // That of eager's node, which messages about its results name.
  std::string name() const override { return call_->name_of(number_); }
  uint32_t number() const { return number_; }
  void hold(std::shared_ptr<at::Tensor> result) { held_.push_back(std::move(result)); }
  c10::intrusive_ptr<torch::autograd::Node> itself() { return getptr(); }

 private:
  const std::shared_ptr<Call> call_;
  const uint32_t number_;
  std::vector<std::shared_ptr<at::Tensor>> held_;
};

}  // namespace oxy::bridge
