// What every plan of a graph has: its sizes as slots of the size program, inputs, results, extern
// calls and regions. The graph's symbols are read from its inputs: sizes first, then numbers,
// strides and offsets.
#pragma once

#include <set>

#include "ir/graph.h"
#include "pipeline/size_slots.h"
#include "runtime/plan.h"
#include "runtime/size.h"

namespace oxy::pipeline {

using Fact = sym::ShapeFacts::Fact;

class PlanWriter {
 public:
  virtual ~PlanWriter() = default;

 protected:
  // `numbers`: symbols whose values the plan gets behind its inputs. Those of a region: what is
  // known around it and none of its parameters has. `checks`: facts that calls check.
  explicit PlanWriter(const ir::Graph& graph, std::span<const sym::Expr> numbers = {},
                      std::span<const Fact> checks = {});

  // Where a value lies.
  virtual uint32_t buffer_of(ir::ValueId v) const = 0;
  // The same as the caller finds it.
  virtual uint32_t result_of(ir::ValueId v) const { return buffer_of(v); }

  // InternalError where no input has a symbol of it.
  runtime::Slot slot(sym::Expr e) { return sizes_.slot(e); }
  std::vector<runtime::Slot> slots(const std::vector<sym::Expr>& list);
  // The same with its value at the hints: what has none counts as schedule::count_of says.
  runtime::Size size(sym::Expr e);
  runtime::Slot slot(const runtime::Size& s) { return s.slot(sizes_.builder()); }
  runtime::Slot constant(int64_t value) { return sizes_.constant(value); }
  runtime::TensorSlots tensor(const ir::TensorType& t);
  // Bytes from the start of the storage to the end of the last element; 0 where there is none.
  runtime::Slot span_bytes(const runtime::TensorSlots& t);

  // An input of the graph: a tensor, or a number.
  void add_input(ir::ValueId v);
  void add_inputs();  // of the graph, then the numbers
  // The arguments of a node.
  runtime::PlanArg::List arguments(const ir::Node& n);
  // The op in the place of the node's.
  void add_extern(const ir::Node& n, std::string op, runtime::PlanArg::List args,
                  std::vector<int64_t> outputs);
  // What is to be read of a node's results, whose buffers have these numbers (-1: none), since
  // sizes depend on it: from here on the symbols in them have slots. With the checks of all that is
  // known then.
  runtime::SizeStep define_symbols(const ir::Node& n, std::span<const int64_t> outputs);
  runtime::SizeStep checks_now();
  void add_sizes(runtime::SizeStep step);  // where there is anything in it
  // Unsupported for a node that no plan can run.
  void add_region(const ir::Node& n, std::vector<runtime::Plan> regions,
                  std::vector<int64_t> results);
  void add_results();

  const ir::Graph& graph_;
  runtime::Plan plan_;

 private:
  void add_number(runtime::Slot value);
  runtime::Slot binary(runtime::SizeOp op, runtime::Slot a, runtime::Slot b) {
    return sizes_.binary(op, a, b);
  }
  runtime::PlanArg argument(const ir::Arg& a);
  runtime::PlanOutput output(const ir::OutputSpec& spec);

  const std::vector<sym::Expr> numbers_;
  std::vector<Fact> checks_;  // that are to come
  std::set<uint32_t> read_;   // slots that an earlier step has read
  SizeSlots sizes_;
};

// The symbols in the graphs of a region, in the order of the pool.
std::vector<sym::Expr> symbols_of_regions(const ir::Node& n);

}  // namespace oxy::pipeline
