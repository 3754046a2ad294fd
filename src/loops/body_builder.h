// The LoopBuilder of the op table's rules: turns one rule's calls into the body of a loop.
#pragma once

#include "loops/body_writer.h"
#include "ops/element.h"

namespace oxy::loops {

// Where the values of the graph live, as the builder of a program knows it.
class ValueHome {
 public:
  virtual ~ValueHome() = default;
  // A view whose elements are found through its rule, without a buffer of its own.
  virtual bool is_virtual(ir::ValueId v) const = 0;
  virtual BufferId buffer(ir::ValueId v) = 0;
};

class BodyBuilder final : public ops::LoopBuilder {
 public:
  BodyBuilder(const ir::Graph& graph, ValueHome& home, VariableScope& variables, Body& body)
      : graph_(graph), home_(home), variables_(variables), writer_(body) {}

  ops::Scalar load(ir::ValueId value, const Index& index) override;
  ops::Scalar load_masked(ir::ValueId value, const Index& index, ops::Scalar mask,
                          ops::Scalar other) override;
  ops::Scalar constant(double v, DType dtype) override;
  ops::Scalar constant_int(int64_t v, DType dtype) override;
  ops::Scalar index(Expr e) override;
  Expr indirect(ops::Scalar i, Expr size, bool wrap) override;
  Expr computed_index(ops::Scalar i, Expr size) override;
  ops::Scalar op(LoopOp op, std::initializer_list<ops::Scalar> args) override;
  ops::Scalar cast(ops::Scalar v, DType dtype) override;
  ops::Scalar bitcast(ops::Scalar v, DType dtype) override;
  const ir::Graph& graph() const override { return graph_; }

  ops::Scalar reduce(ops::ReduceKind kind, ops::Scalar v);
  ops::Scalar scan(ops::ReduceKind kind, ops::Scalar v, Expr along);
  void store(BufferId buffer, const Index& index, ops::Scalar v);
  void fold_into(BufferId buffer, const Index& index, ops::Scalar v, ops::ReduceKind kind);

 private:
  ops::Scalar emit(Inst inst);
  ops::Scalar f32_of_f8(ops::Scalar v);
  ops::Scalar f8_of_f32(ops::Scalar v, DType dtype);
  ops::Scalar load_view(ir::ValueId value, const Index& index);
  ops::Scalar masked(ops::Scalar v, ops::Scalar otherwise);
  Expr symbol(ops::Scalar i, Expr size);

  const ir::Graph& graph_;
  ValueHome& home_;
  VariableScope& variables_;
  BodyWriter writer_;
  std::optional<ops::Scalar> mask_;  // holds wherever what is being built is used
  std::map<std::tuple<uint32_t, uint64_t, bool, uint32_t>, Expr>
      indirect_;                                            // value, size, wrap, mask
  std::map<std::pair<uint32_t, uint64_t>, Expr> computed_;  // value, size
};

}  // namespace oxy::loops
