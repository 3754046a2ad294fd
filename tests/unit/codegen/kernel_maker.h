// Kernels written by hand for tests: each method appends a statement to the block that is open.
#pragma once

#include "schedule/cpu/annotations.h"

namespace oxy::codegen::cpp::testing {

using ir::DType;
using ops::LoopOp;
using ops::ReduceKind;
using schedule::ForKind;
using sym::Expr;

class KernelMaker {
 public:
  KernelMaker() { blocks_.push_back(&kernel.body); }

  uint32_t buffer(schedule::KernelBuffer::Kind kind, DType dtype, Expr elements = 0) {
    kernel.buffers.push_back({cat("b", kernel.buffers.size()), kind, dtype, elements, {}});
    return static_cast<uint32_t>(kernel.buffers.size() - 1);
  }
  uint32_t in(DType dtype) { return buffer(schedule::KernelBuffer::Kind::Read, dtype); }
  uint32_t out(DType dtype) { return buffer(schedule::KernelBuffer::Kind::Write, dtype); }
  uint32_t local(DType dtype, Expr n) {
    return buffer(schedule::KernelBuffer::Kind::Local, dtype, n);
  }

  // The loop's variable; `range` bounds it where the size is not constant.
  Expr var(const char* name, int64_t range = 1 << 20) { return pool.symbol(name, {0, range - 1}); }
  void open(ForKind kind, Expr var, Expr size, bool tiled = false) {
    schedule::For loop;
    loop.kind = kind;
    loop.var = var;
    loop.size = size;
    if (tiled) loop.annotations.set(schedule::kTiled);
    blocks_.back()->push_back({std::move(loop)});
    blocks_.push_back(&std::get<schedule::For>(blocks_.back()->back().v).body);
  }
  void close() { blocks_.pop_back(); }

  uint32_t op(LoopOp op, DType dtype, std::vector<uint32_t> args) {
    schedule::Compute c;
    c.value = kernel.value_count++;
    c.op = op;
    c.dtype = dtype;
    c.args = std::move(args);
    return append(c);
  }
  uint32_t load(DType dtype, uint32_t buffer, Expr index, std::vector<uint32_t> args = {}) {
    schedule::Compute c;
    c.value = kernel.value_count++;
    c.op = LoopOp::Load;
    c.dtype = dtype;
    c.buffer = buffer;
    c.index = index;
    c.args = std::move(args);
    return append(c);
  }
  void store(DType dtype, uint32_t buffer, Expr index, uint32_t value, bool streaming = false,
             LoopOp op = LoopOp::Store) {
    schedule::Compute c;
    c.op = op;
    c.dtype = dtype;
    c.buffer = buffer;
    c.index = index;
    c.args = {value};
    if (streaming) c.annotations.set(schedule::kStreaming);
    append(c);
  }
  uint32_t constant(DType dtype, double number) {
    schedule::Compute c;
    c.value = kernel.value_count++;
    c.dtype = dtype;
    c.number = number;
    c.integer = static_cast<int64_t>(number);
    return append(c);
  }
  uint32_t index(Expr e) {
    schedule::Compute c;
    c.value = kernel.value_count++;
    c.op = LoopOp::Index;
    c.dtype = DType::I64;
    c.index = e;
    return append(c);
  }
  void check(uint32_t value, Expr size) {
    schedule::Compute c;
    c.op = LoopOp::Check;
    c.dtype = DType::I64;
    c.args = {value};
    c.index = size;
    append(c);
  }
  void symbol(uint32_t value, Expr s) {
    schedule::Compute c;
    c.op = LoopOp::Symbol;
    c.dtype = DType::I64;
    c.args = {value};
    c.index = s;
    append(c);
  }
  uint32_t init(ReduceKind kind, DType dtype) {
    blocks_.back()->push_back({schedule::Init{kernel.acc_count, kind, dtype}});
    return kernel.acc_count++;
  }
  void accumulate(uint32_t acc, uint32_t value, Expr index = 0) {
    blocks_.back()->push_back({schedule::Accumulate{acc, value, index}});
  }
  uint32_t result(uint32_t acc) {
    blocks_.back()->push_back({schedule::Result{kernel.value_count, acc}});
    return kernel.value_count++;
  }

  sym::ExprPool pool;
  schedule::Kernel kernel;

 private:
  uint32_t append(schedule::Compute c) {
    const uint32_t value = c.value;
    blocks_.back()->push_back({std::move(c)});
    return value;
  }
  std::vector<schedule::Block*> blocks_;
};

}  // namespace oxy::codegen::cpp::testing
