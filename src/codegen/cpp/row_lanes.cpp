// Rows that are lanes: a Serial loop inside of a tiled Vector loop. What lies along the rows is
// transposed in registers, 8 columns at a time, on its way from memory and to it; memory sees whole
// lines.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {

// Whether its index is the loop's variable + stride * lane + rest.
bool KernelWriter::lies_along(const Compute& c, const For& loop, const Scope& scope) const {
  const bool plain = (c.op == LoopOp::Load && c.args.empty()) || c.op == LoopOp::Store;
  if (!plain) return false;
  const auto by_step = sym::linear_in(c.index, loop.var);
  if (!by_step || !by_step->first.is_const(1)) return false;
  const auto by_lane = sym::linear_in(by_step->second, scope.var);
  return by_lane && !by_lane->first.is_const(0) && !varies(by_lane->first, scope) &&
         !varies(by_lane->second, scope);
}

bool KernelWriter::has_row_lanes(const For& loop, const Scope& scope) const {
  if (scope.lanes != kRowLanes || !scope.active.empty() || loop.kind != ForKind::Serial)
    return false;
  bool any = false;
  for (const Compute& c : all<Compute>(loop.body)) {
    if (c.op == LoopOp::Symbol) return false;
    any = any || (c.op == LoopOp::Store && lies_along(c, loop, scope));
  }
  return any && all<For>(loop.body).empty();
}

// Statements that are the same in each column, written before the loop; the caller forgets that
// they are.
std::vector<const Compute*> KernelWriter::hoist_from_rows(const For& loop, const Scope& scope) {
  std::vector<const Compute*> hoisted;
  for (const Compute& c : all<Compute>(loop.body)) {
    if (hoisted_.contains(&c) || c.op == LoopOp::Store || c.op == LoopOp::Check) continue;
    const bool reads = c.op == LoopOp::Load;
    if (reads && kernel_.buffers[c.buffer].kind != schedule::KernelBuffer::Kind::Read) continue;
    if (!are_known(c.args) || sym::contains(c.index, loop.var)) continue;
    write_compute(c, scope);
    hoisted_.insert(&c);
    hoisted.push_back(&c);
  }
  return hoisted;
}

// The address of a load or store in the row `lane`, at column `at`.
std::string KernelWriter::row_of_lane(const Compute& c, const For& loop, const Scope& scope,
                                      const std::string& at, const std::string& lane) {
  const std::string row = names_[scope.var];
  names_[scope.var] = cat('(', row, " + ", lane, ')');
  names_[loop.var] = at;
  const std::string text = cat(buffer(c.buffer), " + ", index(c.index));
  names_[scope.var] = row;
  return text;
}

void KernelWriter::write_row_lanes(const For& loop, const Scope& scope) {
  const std::vector<const Compute*> hoisted = hoist_from_rows(loop, scope);
  std::vector<const Compute*> loads, stores;
  int64_t blocks = 1;
  for (const Compute& c : all<Compute>(loop.body)) {
    if (!lies_along(c, loop, scope)) continue;
    (c.op == LoopOp::Load ? loads : stores).push_back(&c);
    if (c.op == LoopOp::Store)
      blocks = std::max<int64_t>(blocks, kLine / kRowLanes / ir::byte_size(c.dtype));
  }
  blocks = std::min<int64_t>(blocks, tuning::scan_most_blocks);
  const int64_t width = blocks * kRowLanes;
  const std::string var = new_loop_var(), to = index(loop.size);
  const auto type = [&](const Compute& c) {
    return prelude_.type(memory_type(buffer_dtype(c.buffer)), kRowLanes);
  };
  const auto fn = [&](std::string_view piece, const Compute& c) {
    return prelude_.fn(piece, memory_type(buffer_dtype(c.buffer)), kRowLanes);
  };
  const auto each_row = [&](auto&& write) {
    out_.line("OXY_UNROLL");
    out_.open("for (int k = 0; k < ", kRowLanes, "; ++k) ");
    write();
    out_.close();
  };
  out_.line("i64 ", var, " = 0;");
  out_.open("for (; ", var, " + ", width, " <= ", to, "; ", var, " += ", width, ") ");
  for (size_t i = 0; i < stores.size(); ++i)
    out_.line(type(*stores[i]), " to", i, '[', blocks, "][", kRowLanes, "];");
  for (const Compute* c : loads) {
    const int64_t bytes = ir::byte_size(c->dtype);
    each_row([&] {
      for (int64_t line = 0; line < width * bytes; line += kLine)
        out_.line("__builtin_prefetch(", row_of_lane(*c, loop, scope, var, "k"), " + ",
                  (tuning::scan_prefetch + line) / bytes, ");");
    });
  }
  out_.line("OXY_UNROLL");
  out_.open("for (int h = 0; h < ", blocks, "; ++h) ");
  const std::string block = cat('(', var, " + ", kRowLanes, " * h)");
  for (size_t i = 0; i < loads.size(); ++i) {
    out_.line(type(*loads[i]), " from", i, '[', kRowLanes, "];");
    each_row([&] {
      out_.line("from", i, "[k] = ", fn("load", *loads[i]), '(',
                row_of_lane(*loads[i], loop, scope, block, "k"), ");");
    });
    out_.line(fn("transpose_lanes", *loads[i]), "(from", i, ");");
    columns_[loads[i]] = cat("from", i, "[j]");
  }
  for (size_t i = 0; i < stores.size(); ++i) columns_[stores[i]] = cat("to", i, "[h][j]");
  out_.line("OXY_UNROLL");
  out_.open("for (int j = 0; j < ", kRowLanes, "; ++j) ");
  names_[loop.var] = cat('(', var, " + ", kRowLanes, " * h + j)");
  write_block(loop.body, scope);
  out_.close();
  for (size_t i = 0; i < stores.size(); ++i)
    out_.line(fn("transpose_lanes", *stores[i]), "(to", i, "[h]);");
  out_.close();
  for (size_t i = 0; i < stores.size(); ++i) {
    const Compute& c = *stores[i];
    const std::string row = row_of_lane(c, loop, scope, var, "k");
    const auto put = [&](std::string_view piece) {
      out_.line("OXY_UNROLL");
      out_.line("for (int h = 0; h < ", blocks, "; ++h) ", fn(piece, c), '(', row, " + ", kRowLanes,
                " * h, to", i, "[h][k]);");
    };
    // Half a line that waits for its other half pushes others out half written.
    const bool streams = is_streaming(c) && width * ir::byte_size(c.dtype) % kLine == 0;
    streams_ = streams_ || streams;
    each_row([&] {
      if (streams) out_.open("if (((u64)(", row, ") & ", kLine - 1, ") == 0) ");
      if (streams) put("stream");
      if (streams) out_.close();
      if (streams) out_.open("else ");
      put("store");
      if (streams) out_.close();
    });
  }
  out_.close();
  columns_.clear();
  if (!sym::divisible(loop.size, width)) {
    names_[loop.var] = var;
    out_.open("for (; ", var, " < ", to, "; ++", var, ") ");
    write_block(loop.body, scope);
    out_.close();
  }
  for (const Compute* c : hoisted) hoisted_.erase(c);
}

}  // namespace oxy::codegen::cpp
