// Rows that are lanes: a Serial loop inside of a tiled Vector loop. What lies along the rows is
// transposed in registers, 8 columns at a time, on its way from memory and to it; memory sees whole
// lines.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "schedule/cost.h"
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
  if (scope.lanes != kRowLanes || loop.kind != ForKind::Serial) return false;
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
  // What other rows have written before is none of these.
  for (const Compute& c : all<Compute>(loop.body))
    if (schedule::sets_value(c.op) && !hoisted_.contains(&c)) numbers_[c.value] = -1;
  for (const Result& r : all<Result>(loop.body)) numbers_[r.value] = -1;
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
  int64_t blocks = 1;
  for (const Compute& c : all<Compute>(loop.body))
    if (c.op == LoopOp::Store && lies_along(c, loop, scope))
      blocks = std::max<int64_t>(blocks, kLine / kRowLanes / ir::byte_size(c.dtype));
  blocks = scope.active.empty() ? std::min<int64_t>(blocks, tuning::scan_most_blocks) : 1;
  const int64_t width = blocks * kRowLanes;
  const std::string var = new_loop_var(), to = index(loop.size);
  out_.line("i64 ", var, " = 0;");
  if (sym::range_of(loop.size).hi >= width) {
    out_.open("for (; ", var, " + ", width, " <= ", to, "; ", var, " += ", width, ") ");
    write_columns(loop, scope, var, blocks, "");
    out_.close();
  }
  if (!sym::divisible(loop.size, width)) {
    const std::string left = cat(var, "_left"), some = cat(var, "_some");
    out_.open("for (; ", var, " < ", to, "; ", var, " += ", kRowLanes, ") ");
    out_.line("const i64 ", left, " = ", to, " - ", var, ';');
    out_.line("const i64 ", some, " = ", left, " < ", kRowLanes, " ? ", left, " : ", kRowLanes,
              ';');
    write_columns(loop, scope, var, 1, some);
    out_.close();
  }
  for (const Compute* c : hoisted) hoisted_.erase(c);
}

// Blocks of columns from `var` on; of one block, the first `some` where that is no "". Rows that
// are not in use are zeros.
void KernelWriter::write_columns(const For& loop, const Scope& scope, const std::string& var,
                                 int64_t blocks, const std::string& some) {
  std::vector<const Compute*> loads, stores;
  for (const Compute& c : all<Compute>(loop.body))
    if (lies_along(c, loop, scope)) (c.op == LoopOp::Load ? loads : stores).push_back(&c);
  const int64_t width = blocks * kRowLanes;
  const auto type = [&](const Compute& c) {
    return prelude_.type(memory_type(buffer_dtype(c.buffer)), kRowLanes);
  };
  const auto fn = [&](std::string_view piece, const Compute& c) {
    return prelude_.fn(some.empty() ? piece : cat(piece, "_edge"),
                       memory_type(buffer_dtype(c.buffer)), kRowLanes);
  };
  const auto transpose = [&](const Compute& c) {
    return prelude_.fn("transpose_lanes", memory_type(buffer_dtype(c.buffer)), kRowLanes);
  };
  const std::string of_some = some.empty() ? "" : cat(", ", some);
  const auto each_row = [&](auto&& write) {
    out_.line("OXY_UNROLL");
    out_.open("for (int k = 0; k < ", kRowLanes, "; ++k) ");
    if (!scope.active.empty()) out_.open("if (k < ", scope.active, ") ");
    write();
    if (!scope.active.empty()) out_.close();
    out_.close();
  };
  for (size_t i = 0; i < stores.size(); ++i)
    out_.line(type(*stores[i]), " to", i, '[', blocks, "][", kRowLanes, ']',
              some.empty() ? ";" : " = {};");
  // Ahead in the rows; where these are hardly longer than that, in the rows that come next.
  for (const Compute* c : loads) {
    const int64_t bytes = ir::byte_size(c->dtype);
    const bool next = schedule::count_of(loop.size) * bytes < 2 * tuning::scan_prefetch;
    if (!next && !some.empty()) continue;
    const std::string lane = next ? cat("k + ", kRowLanes) : "k";
    each_row([&] {
      for (int64_t line = 0; line < width * bytes; line += kLine)
        out_.line("__builtin_prefetch(", row_of_lane(*c, loop, scope, var, lane), " + ",
                  ((next ? 0 : tuning::scan_prefetch) + line) / bytes, ");");
    });
  }
  out_.line("OXY_UNROLL");
  out_.open("for (int h = 0; h < ", blocks, "; ++h) ");
  const std::string block = cat('(', var, " + ", kRowLanes, " * h)");
  for (size_t i = 0; i < loads.size(); ++i) {
    out_.line(type(*loads[i]), " from", i, '[', kRowLanes, scope.active.empty() ? "];" : "] = {};");
    each_row([&] {
      out_.line("from", i, "[k] = ", fn("load", *loads[i]), '(',
                row_of_lane(*loads[i], loop, scope, block, "k"), of_some, ");");
    });
    out_.line(transpose(*loads[i]), "(from", i, ");");
    columns_[loads[i]] = cat("from", i, "[j]");
  }
  for (size_t i = 0; i < stores.size(); ++i) columns_[stores[i]] = cat("to", i, "[h][j]");
  out_.line("OXY_UNROLL");
  out_.open("for (int j = 0; j < ", kRowLanes, "; ++j) ");
  names_[loop.var] = cat('(', var, " + ", kRowLanes, " * h + j)");
  if (!some.empty()) out_.open("if (j < ", some, ") ");
  write_block(loop.body, scope);
  if (!some.empty()) out_.close();
  out_.close();
  for (size_t i = 0; i < stores.size(); ++i) out_.line(transpose(*stores[i]), "(to", i, "[h]);");
  out_.close();
  for (size_t i = 0; i < stores.size(); ++i) {
    const Compute& c = *stores[i];
    const std::string row = row_of_lane(c, loop, scope, var, "k");
    const auto put = [&](const std::string& piece) {
      out_.line("OXY_UNROLL");
      out_.line("for (int h = 0; h < ", blocks, "; ++h) ", piece, '(', row, " + ", kRowLanes,
                " * h, to", i, "[h][k]", of_some, ");");
    };
    // Half a line that waits for its other half pushes others out half written.
    const bool streams =
        some.empty() && is_streaming(c) && width * ir::byte_size(c.dtype) % kLine == 0;
    streams_ = streams_ || streams;
    each_row([&] {
      if (streams) out_.open("if (((u64)(", row, ") & ", kLine - 1, ") == 0) ");
      if (streams) put(fn("stream", c));
      if (streams) out_.close();
      if (streams) out_.open("else ");
      put(fn("store", c));
      if (streams) out_.close();
    });
  }
  columns_.clear();
}

}  // namespace oxy::codegen::cpp
