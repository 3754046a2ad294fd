// From a dispatched op to a node.
#pragma once

#include "ops/op_table.h"
#include "support/check.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/recording.h"
#include "torch_bridge/shape_fallback.h"

namespace oxy::bridge {

// What lies above a backend's kernels.
inline constexpr c10::DispatchKeySet kAboveBackend =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::Python,
                         c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher});

// An op whose result is another one for other data: the number in a tensor, or its shape.
class DataDependent : public Unsupported {
 public:
  DataDependent(const std::string& what, bool number, bool needs_symbols = false)
      : Unsupported(what), is_number(number), needs_symbols(needs_symbols) {}
  const bool is_number;
  const bool needs_symbols;  // a recording with symbolic sizes can have it
};

// What a recording may take of data, as symbols: the integer in a tensor, sizes, and those that a
// program does not see.
struct OfData {
  bool numbers = false, sizes = false, inner = false;
};

// What the recorder needs to know of one op, looked up once a recording.
struct OpFacts {
  std::string target;
  const ops::OpInfo* info = nullptr;
  std::vector<ArgKind> args;
  bool mutates = false;
  std::vector<size_t> written;  // with `mutates`: the arguments, where we can model it
  bool data_dependent = false;
  bool dynamic_shape = false;  // data-dependent for some arguments: torch's meta kernel raises
  bool only_tensor_returns = true;
  bool view = false;  // a result is a view of an argument

  bool has(uint32_t trait) const { return info && info->has(trait); }
};

// While these live, the overloads of `name` ("mylib::foo") that write to arguments have a
// functionalisation (mutable_ops.cpp).
std::vector<c10::RegistrationHandleRAII> make_functional(std::string_view name);

class OpRecorder {
 public:
  OpRecorder(Recording& recording, bool shape_rules, OfData of_data)
      : r_(recording), shape_rules_(shape_rules), of_data_(of_data) {}

  // An op below autograd and functionalisation. The recording's mode is switched off meanwhile.
  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& s);
  // `copy` is a shallow copy of `original` that torch made on its own.
  void on_copy(const c10::TensorImpl& original, const c10::intrusive_ptr<c10::TensorImpl>& copy);

  // See Recorder.
  void expect_write(std::string_view function, bool out);
  void add_runtime_number(ir::ValueId v) { runtime_numbers_.insert(v.index); }
  // The same of the double `real`; code that takes a plain one gets one like it, which stands for
  // the number wherever an op has it.
  void add_runtime_number(ir::ValueId v, double real);
  bool is_placed(ir::ValueId v) const { return placed_.contains(v.index); }
  void add_read_number(ir::ValueId v) { read_numbers_.insert(v.index); }
  // A tensor of these marks with the values of `fake`.
  at::Tensor with_marks(at::Tensor fake, LazyMarks wanted);
  // Whether an op ran in grad mode.
  bool grad_mode_seen() const { return grad_mode_seen_; }
  void note_grad_mode() { grad_mode_seen_ = true; }

 private:
  using Predicted = std::vector<PredictedReturn>;

  void record(const c10::OperatorHandle& op, torch::jit::Stack& s);
  sym::ShapeFacts* facts_of_sizes() const { return r_.shapes ? r_.shapes->facts().get() : nullptr; }
  std::optional<Predicted> by_rule(const OpFacts& f, const c10::FunctionSchema& schema,
                                   std::span<const ir::Arg> args,
                                   const std::vector<at::Tensor>& tensors);
  std::optional<Predicted> complex_by_rule(const OpFacts& f, std::span<const ir::Arg> args,
                                           const std::vector<at::Tensor>& tensors);
  at::Tensor as_default_dtype(const at::Tensor& t);
  bool set_default_dtype(const OpFacts& f, const c10::FunctionSchema& schema,
                         std::vector<ir::Arg>& args, const std::vector<at::Tensor>& tensors,
                         Predicted& predicted);
  std::vector<sym::Expr> sizes_by_rule(const OpFacts& f, std::span<const ir::Arg> args);
  void finish(const OpFacts& f, torch::jit::Stack& s, size_t base, std::vector<ir::Arg> args,
              Predicted predicted, const std::vector<at::Tensor>& tensors);
  at::Tensor result(const PredictedTensor& t, ir::ValueId v,
                    const std::vector<at::Tensor>& tensors);
  at::Tensor computed(const char* name, const at::Tensor& t);
  void resolve_marks(torch::jit::Stack& s, size_t base);
  bool read_number(torch::jit::Stack& s) const;
  // An op whose result depends on data, as the recording can have it (sizes_of_data.cpp).
  enum class OfDataOp : uint8_t { None, Number, Masks, Sizes };
  OfDataOp of_data_op(const OpFacts& f, const torch::jit::Stack& s, size_t base) const;
  void read_symbol(torch::jit::Stack& s);
  bool index_by_counted_mask(const c10::OperatorHandle& op, const OpFacts& f, torch::jit::Stack& s,
                             size_t base);
  void index_by_masks(const c10::OperatorHandle& op, torch::jit::Stack& s, size_t base);
  Predicted predict_by_data(const OpFacts& f, c10::ArrayRef<c10::IValue> args);
  Predicted predict_by_torch(const c10::OperatorHandle& op, const OpFacts& f,
                             c10::ArrayRef<c10::IValue> args);
  sym::Expr count_in(const at::Tensor& mask);
  void add_workspace(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                     Predicted& predicted) const;
  void place_numbers(const OpFacts& f, std::vector<ir::Arg>& args,
                     std::span<const at::Tensor> tensors);
  void check_numbers(const OpFacts& f, std::span<const ir::Arg> args) const;
  void check_conversion(const torch::jit::Stack& s, size_t base) const;
  void lift(torch::jit::Stack& s);
  void make_zero(torch::jit::Stack& s);
  void scale_zero(torch::jit::Stack& s);
  bool scale_by_quotient(torch::jit::Stack& s);
  bool add_sparse(torch::jit::Stack& s);
  c10::IValue called(const char* name, const char* overload, torch::jit::Stack stack);
  void batch_norm_in_training(torch::jit::Stack& s, size_t base);
  void draw_in_order(const c10::OperatorHandle& op, torch::jit::Stack& s, size_t base);
  at::Tensor permuted(const at::Tensor& t, const std::vector<int64_t>& order);

  // What a call of torch does with its result.
  enum class Write { None, InPlace, Out };

  Recording& r_;
  const bool shape_rules_;
  const OfData of_data_;
  // By value: the number in it, how many of its elements are not 0, and where these are.
  std::unordered_map<uint32_t, sym::Expr> numbers_, counts_;
  // By value: of masks, how many elements hold, since as many values were put there.
  std::unordered_map<uint32_t, c10::SymInt> counted_;
  std::unordered_map<uint32_t, at::Tensor> places_;
  std::unordered_map<c10::OperatorName, OpFacts> facts_;
  std::unordered_set<uint32_t> runtime_numbers_, read_numbers_;  // values
  std::unordered_map<uint64_t, ir::ValueId> stand_ins_;          // by the bits of a double
  std::unordered_set<uint32_t> placed_;  // values whose stand-ins ops have had
  Write expected_write_ = Write::None;
  bool grad_mode_seen_ = false;
};

}  // namespace oxy::bridge
