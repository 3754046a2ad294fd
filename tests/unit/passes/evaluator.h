// Runs small ATen graphs on numbers, for tests: a few dozen lines of plain loops, apart from
// everything that they check.
//
// A tensor is its sizes and its elements in row-major order, as doubles rounded to the dtype (f32
// or i64). Memory is not modelled; a loop ends after four rounds at the latest. memory_of says
// which values a plan may give the same memory: views of one base.
#pragma once

#include <map>
#include <vector>

#include "ir/graph.h"

namespace oxy::passes {

struct Tensor {
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> sizes;
  std::vector<double> elements;
};

class Evaluator {
 public:
  Evaluator(const ir::Graph& g, const std::vector<Tensor>& inputs);

  const Tensor& operator[](ir::ValueId v) const { return values_.at(v.index); }
  std::vector<Tensor> results() const;

 private:
  void run(const ir::Node& n);
  void run_region(const ir::Node& n);
  Tensor operand(const ir::Arg& a) const;
  Tensor arithmetic(const ir::Node& n, char op) const;
  Tensor moved(const ir::Node& n) const;

  const ir::Graph& g_;
  std::map<uint32_t, Tensor> values_;
};

// The value at the end of the chain of views that begins at `v`.
ir::ValueId memory_of(const ir::Graph& g, ir::ValueId v);

}  // namespace oxy::passes
