// The frame of a kernel function and its loops; entry points of the emitter.
#include "codegen/cpp/kernel_writer.h"

#include <algorithm>
#include <bit>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"
#include "support/check.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {

namespace {

constexpr std::string_view kFloorHelpers =
    "OXY_INLINE i64 floor_quotient(i64 a, i64 b) { return a / b - ((a % b != 0) & ((a % b < 0) != "
    "(b < 0))); }\n"
    "OXY_INLINE i64 floor_remainder(i64 a, i64 b) { return a - floor_quotient(a, b) * b; }\n";

constexpr std::string_view kRootHelper =
    "OXY_INLINE i64 square_root(i64 x) {\n"
    "  u64 r = 0;\n"
    "  for (u64 bit = x > 0 ? 1ull << 31 : 0; bit; bit >>= 1)\n"
    "    if ((r + bit) * (r + bit) <= (u64)x) r += bit;\n"
    "  return (i64)r;\n"
    "}\n";

constexpr std::string_view kPowerHelper =
    "OXY_INLINE i64 integer_power(i64 base, i64 n) {\n"
    "  i64 r = n >= 0;\n"
    "  for (; n > 0; --n) r *= base;\n"
    "  return r;\n"
    "}\n";

constexpr std::string_view kDigitsHelper =
    "OXY_INLINE i64 digit_count(i64 x, i64 base) {\n"
    "  i64 n = 0;\n"
    "  for (; x; x /= base) ++n;\n"
    "  return n;\n"
    "}\n";

constexpr std::string_view kBitAndHelper =
    "OXY_INLINE i64 bits_of_both(i64 a, i64 b) { return a & b; }\n";

constexpr std::string_view kScaleHelper =
    "OXY_INLINE i64 scaled(i64 x, i64 bits) {\n"
    "  const double c = __builtin_bit_cast(double, bits < 0 ? -bits : bits);\n"
    "  const double y = bits < 0 ? (double)x / c : (double)x * c;\n"
    "  const i64 whole = (i64)y;\n"
    "  return whole - (y < (double)whole);\n"
    "}\n";

}  // namespace

KernelWriter::KernelWriter(const schedule::Kernel& kernel, const Machine& target, int lane_bytes)
    : kernel_(kernel),
      prelude_(target),
      register_bytes_(target.vector_bytes),
      selections_(find_selections(kernel)),
      stored_rows_(find_stored_rows(kernel)),
      definitions_(kernel.value_count),
      values_(kernel.value_count),
      numbers_(kernel.value_count, -1),
      accumulators_(kernel.acc_count) {
  walk(kernel.body, [&](const Stmt& s) {
    const Compute* c = std::get_if<Compute>(&s.v);
    if (!c || !schedule::sets_value(c->op)) return;
    definitions_[c->value] = c;
    if (is_bf16(*c)) bf16_.insert(c->value);
  });
  const bool narrow = lane_bytes > 0 && target.vector_bytes > 0;
  lanes_ = narrow ? target.vector_bytes / lane_bytes : lanes_of_kernel();
  if (lanes_ * 4 == target.vector_bytes) table_gathers_ = find_table_gathers(kernel, lanes_);
  find_padded_locals();
}

// Rows of scratch of which each loop writes and reads whole vectors from their first element on:
// nothing lies between the loop's end and the last vector's. A loop with a head (write_head) has
// elements of its next vector there.
void KernelWriter::find_padded_locals() {
  std::vector<std::optional<Expr>> size(kernel_.buffers.size());
  std::vector<bool> other(kernel_.buffers.size());
  schedule::for_each_compute(kernel_, [&](const Compute& c, const schedule::Path& path) {
    if (!schedule::touches_memory(c.op) || !kernel_.buffers[c.buffer].is_local()) return;
    const For* loop = path.empty() ? nullptr : path.back();
    const bool plain = loop && loop->kind == ForKind::Vector && !is_tiled(*loop) &&
                       !unaligned_stream(*loop) &&
                       (c.op == LoopOp::Store || (c.op == LoopOp::Load && c.args.empty()));
    const auto along = plain ? sym::linear_in(c.index, loop->var) : std::nullopt;
    std::optional<Expr>& known = size[c.buffer];
    if (along && along->first.is_const(1) && sym::divisible(along->second, lanes_) &&
        known.value_or(loop->size) == loop->size)
      known = loop->size;
    else
      other[c.buffer] = true;
  });
  for (uint32_t b = 0; b < size.size(); ++b)
    if (size[b] && !other[b]) padded_.insert(b);
}

// Whether a vector waits for itself in the function: a chain of up to a hundred cycles and more, as
// long as the instructions that a processor with AVX2 looks ahead.
static bool is_long_chain(LoopOp op) {
  switch (op) {
    case LoopOp::Expm1:
    case LoopOp::Log:
    case LoopOp::Log2:
    case LoopOp::Log10:
    case LoopOp::Log1p:
    case LoopOp::LogAddExp:
    case LoopOp::Tan:
    case LoopOp::Tanh:
    case LoopOp::Atan:
    case LoopOp::Asinh:
    case LoopOp::Acosh:
    case LoopOp::Atanh:
    case LoopOp::Erf:
    case LoopOp::Erfc:
    case LoopOp::Erfinv:
    case LoopOp::Gelu:
    case LoopOp::GeluSlope:
      return true;
    default:
      return false;
  }
}

// Whether vectors are read and written as they lie in memory alone, in loops of many of them.
static bool is_streamed(const schedule::Kernel& kernel) {
  bool plain = true;
  schedule::for_each_compute(kernel, [&](const Compute& c, const schedule::Path& path) {
    const For* loop = path.empty() ? nullptr : path.back();
    const bool lanes =
        loop && (loop->kind == ForKind::Vector || loop->kind == ForKind::VectorReduce);
    if (schedule::is_any(c.op, LoopOp::Symbol, LoopOp::Check, LoopOp::StoreAdd) ||
        (lanes && (is_tiled(*loop) || schedule::count_of(loop->size) < tuning::two_registers_from)))
      plain = false;
    if (!lanes || !schedule::touches_memory(c.op)) return;
    const auto along = schedule::coefficient(c.index, loop->var);
    plain &= c.args.size() == (c.op == LoopOp::Store ? 1 : 0) && along &&
             (along->is_const(1) || (along->is_const(0) && c.op == LoopOp::Load));
  });
  return plain;
}

// Four-byte lanes fill a register unless everything is of 8 bytes, or rows are the lanes. Where
// they wait for long chains, two registers of them do so at once; of halves, one is stored.
int KernelWriter::lanes_of_kernel() const {
  const int bytes = prelude_.target().vector_bytes;
  if (bytes == 0) return 1;
  bool narrow = false, wide = false, halves = false, rows = false, chains = false;
  walk(kernel_.body, [&](const Stmt& s) {
    if (const For* loop = std::get_if<For>(&s.v))
      rows |= is_tiled(*loop) && !all<For>(loop->body).empty();
    const Compute* c = std::get_if<Compute>(&s.v);
    if (!c || schedule::is_any(c->op, LoopOp::Index, LoopOp::Symbol, LoopOp::Check)) return;
    chains |= is_long_chain(c->op);
    halves |= ir::is_reduced_float(c->dtype);
    if (ir::byte_size(c->dtype) == 8)
      wide = true;
    else if (c->dtype != DType::B8)
      narrow = true;
  });
  if (rows) return kRowLanes;
  const int lane = wide && !narrow ? 8 : 4;
  const bool two =
      bytes == 32 && (lane == 8 ? chains : !wide && (chains || halves) && is_streamed(kernel_));
  return bytes / lane * (two ? 2 : 1);
}

std::string KernelWriter::write() {
  out_.open(
      "extern \"C\" int kernel(void* const* buffers, long begin, long end, void* scratch, void* "
      "const* math) ");
  write_signature_buffers();
  out_.line("int status = 0;");
  const Scope scalar;
  const auto outer = std::find_if(kernel_.body.begin(), kernel_.body.end(), [](const Stmt& s) {
    const For* loop = std::get_if<For>(&s.v);
    return loop && loop->kind == ForKind::Parallel;
  });
  if (outer == kernel_.body.end()) {
    out_.open("if (begin < end) ");
    write_block(kernel_.body, scalar);
    out_.close();
  } else {
    OXY_CHECK(std::next(outer) == kernel_.body.end(), "statements after the parallel loop of ",
              kernel_.name);
    for (auto it = kernel_.body.begin(); it != outer; ++it) {
      if (const For* loop = std::get_if<For>(&it->v)) {
        write_for(*loop, scalar);
        continue;
      }
      const Compute* c = std::get_if<Compute>(&it->v);
      OXY_CHECK(c && c->op != LoopOp::Store, "a statement beside the parallel loop of ",
                kernel_.name);
      if (!stands_elsewhere(*c)) write_compute(*c, scalar);
    }
    write_parallel(std::get<For>(outer->v));
  }
  if (streams_) out_.line("__builtin_ia32_sfence();");
  out_.line("(void)scratch, (void)math;");
  out_.line("return status;");
  out_.close();
  auto uses = [&](std::string_view name) { return out_.text().find(name) != std::string::npos; };
  return cat(prelude_.text(), uses("floor_") ? kFloorHelpers : "",
             uses("square_root(") ? kRootHelper : "", uses("scaled(") ? kScaleHelper : "",
             uses("integer_power(") ? kPowerHelper : "", uses("digit_count(") ? kDigitsHelper : "",
             uses("bits_of_both(") ? kBitAndHelper : "", out_.text());
}

void KernelWriter::write_signature_buffers() {
  int position = 0;
  Expr scratch = 0;
  if (!kernel_.parameters.empty()) {
    out_.line("const i64* const sizes = (const i64*)buffers[", position++, "];");
    for (size_t i = 0; i < kernel_.parameters.size(); ++i) {
      names_[kernel_.parameters[i]] = cat("size", i);
      out_.line("const i64 size", i, " = sizes[", i, "];");
    }
    out_.line("if (begin >= end) return 0;");
    schedule::walk<Compute>(kernel_.body, [&](const Compute& c) { write_quotients(c.index); });
    schedule::walk<For>(kernel_.body, [&](const For& f) { write_quotients(f.size); });
  }
  for (const schedule::KernelBuffer& b : kernel_.buffers) {
    const std::string type = memory_type(b.dtype);
    const std::string& name = buffers_.emplace_back(numbered('b', buffers_.size()));
    if (b.kind == schedule::KernelBuffer::Kind::Local) {
      out_.line(type, "* const ", name, " = (", type, "*)((char*)scratch + ", index(scratch), ");");
      scratch += scratch_bytes(b);
      continue;
    }
    const char* constness = b.kind == schedule::KernelBuffer::Kind::Read ? "const " : "";
    out_.line(constness, type, "* const ", name, " = (", constness, type, "*)buffers[", position++,
              "];");
  }
}

// Quotients of sizes are the same at each iteration, but no compiler may divide where the loop does
// not: the divisor may be 0, and there are no iterations then.
void KernelWriter::write_quotients(Expr e) {
  if (e.is_const() || e.kind() == sym::Kind::Symbol || names_.contains(e)) return;
  for (const Expr part : e.operands()) write_quotients(part);
  if (e.kind() != sym::Kind::FloorDiv && e.kind() != sym::Kind::Mod) return;
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  const auto& sizes = kernel_.parameters;
  if (!std::ranges::all_of(symbols, [&](Expr s) { return std::ranges::count(sizes, s) > 0; }))
    return;
  const Expr divisor = e.operands()[1];
  const std::string text = index(e), name = cat("quotient", quotients_++);
  out_.line("const i64 ", name, " = ",
            divisor.is_const() ? text : cat(index(divisor), " ? ", text, " : 0"), ';');
  names_[e] = name;
}

// Iterations of the nested Parallel loops, flattened row-major; the outer indices step when an
// inner one wraps. Statements in front of a loop run before its first iteration.
void KernelWriter::write_parallel(const For& outer) {
  std::vector<const For*> loops{&outer};
  while (!loops.back()->body.empty()) {
    const For* inner = std::get_if<For>(&loops.back()->body.back().v);
    if (!inner || inner->kind != ForKind::Parallel) break;
    loops.push_back(inner);
  }
  std::vector<std::string> vars;
  for (const For* loop : loops) {
    vars.push_back(new_loop_var());
    names_[loop->var] = vars.back();
  }
  const For& last = *loops.back();
  iteration_ = last.var;
  std::string rest = "begin";
  for (size_t i = loops.size(); i-- > 1;) {
    out_.line("i64 ", vars[i], " = ", rest, " % ", index(loops[i]->size), ';');
    out_.line("const i64 ", vars[i], "_rest = ", rest, " / ", index(loops[i]->size), ';');
    rest = cat(vars[i], "_rest");
  }
  const bool tiled = can_tile(last);
  out_.line("i64 ", vars[0], " = ", rest, ';');
  if (!tiled) hoist_tables(last.body);
  out_.open("for (i64 p = begin; p < end;) ");
  for (size_t i = 1; i < loops.size(); ++i)
    write_before(*loops[i - 1], {vars.begin() + i, vars.end()});
  if (tiled) {
    const std::string& row = vars.back();
    const std::string size = index(last.size);
    out_.line("const i64 rows_left = end - p;");
    out_.line("const i64 rows_here = ", size, " - ", row, ';');
    out_.line("const i64 rows_some = rows_left < rows_here ? rows_left : rows_here;");
    out_.line("const i64 rows = rows_some < ", tuning::tile, " ? rows_some : ", tuning::tile, ';');
    write_tiled(last, row, cat(row, " + rows"));
    out_.line("p += rows;");
    out_.line(row, " += rows;");
  } else {
    write_block(last.body, Scope{});
    out_.line("++p;");
    out_.line("++", vars.back(), ';');
  }
  for (size_t i = loops.size(); i-- > 1;) {
    out_.open("if (", vars[i], " == ", index(loops[i]->size), ") ");
    out_.line(vars[i], " = 0;");
    out_.line("++", vars[i - 1], ';');
    out_.close();
  }
  out_.close();
}

// The statements in front of the loop that `outer` ends with, whose variable is the first of
// `inner`.
void KernelWriter::write_before(const For& outer, const std::vector<std::string>& inner) {
  if (outer.body.size() == 1) return;
  std::string first;
  for (const std::string& var : inner) cat_to(first, first.empty() ? "" : " | ", var);
  out_.open("if (p == begin || (", first, ") == 0) ");
  for (size_t i = 0; i + 1 < outer.body.size(); ++i) {
    const For* loop = std::get_if<For>(&outer.body[i].v);
    OXY_CHECK(loop, "a statement beside a parallel loop of ", kernel_.name);
    write_for(*loop, Scope{});
  }
  out_.close();
}

void KernelWriter::write_block(const Block& block, const Scope& scope) {
  for (const Stmt& s : block) {
    if (const For* loop = std::get_if<For>(&s.v)) {
      if (filled_.contains(loop)) continue;
      write_for(*loop, scope);
      write_tables(*loop);
    } else if (const Compute* c = std::get_if<Compute>(&s.v)) {
      if (!stands_elsewhere(*c)) write_compute(*c, scope);
    } else if (const Init* init = std::get_if<Init>(&s.v)) {
      write_init(*init, block, scope);
    } else if (const Accumulate* a = std::get_if<Accumulate>(&s.v)) {
      write_accumulate(*a, scope);
    } else if (const Hint* h = std::get_if<Hint>(&s.v)) {
      write_hint(*h, scope);
    } else {
      write_result(std::get<Result>(s.v), scope);
    }
  }
}

void KernelWriter::write_for(const For& loop, const Scope& scope) {
  OXY_CHECK(loop.kind != ForKind::Parallel, "a parallel loop inside others");
  const bool vectorised = !scope.vector() && lanes_ > 1;
  if (vectorised && loop.kind == ForKind::Vector) {
    out_.open("");
    write_vector_loop(loop, "0", index(loop.size));
    out_.close();
  } else if (!scope.vector() && loop.kind == ForKind::VectorReduce) {
    write_vector_reduce(loop);
  } else if (!scope.vector() && can_tile(loop)) {
    write_tiled_rows(loop);
  } else {
    write_plain_loop(loop, scope);
  }
}

void KernelWriter::write_tiled_rows(const For& loop) {
  const std::string size = index(loop.size);
  if (loop.size.is_const() && loop.size.value() <= tuning::tile)
    return write_tiled(loop, "0", size);
  const std::string var = new_loop_var();
  out_.open("for (i64 ", var, " = 0; ", var, " < ", size, "; ", var, " += ", tuning::tile, ") ");
  out_.line("const i64 ", var, "_some = ", var, " + ", tuning::tile, ';');
  out_.line("const i64 ", var, "_to = ", var, "_some < ", size, " ? ", var, "_some : ", size, ';');
  write_tiled(loop, var, cat(var, "_to"));
  out_.close();
}

void KernelWriter::write_plain_loop(const For& loop, const Scope& scope) {
  OXY_CHECK(!varies(loop.size, scope), "the size of an inner loop differs by lane");
  if (has_row_lanes(loop, scope)) return write_row_lanes(loop, scope);
  const std::string var = new_loop_var(), to = index(loop.size);
  names_[loop.var] = var;
  std::vector<uint32_t> sums;
  const int64_t chain = chain_of(loop.body);
  if (loop.kind == ForKind::Reduce)
    sums = long_sums(loop, loop.size.is_const() ? loop.size.value() * chain : INT64_MAX);
  if (sums.empty()) {
    out_.open("for (i64 ", var, " = 0; ", var, " < ", to, "; ++", var, ") ");
    write_block(loop.body, scope);
    out_.close();
    return;
  }
  open_totals(sums);
  out_.open("for (i64 ", var, " = 0; ", var, " < ", to, ";) ");
  const int64_t block = std::max<int64_t>(block_of_sums(sums) / chain, 1);
  out_.line("const i64 ", var, "_next = ", var, " + ", block, ';');
  out_.line("const i64 ", var, "_end = ", var, "_next < ", to, " ? ", var, "_next : ", to, ';');
  out_.open("for (; ", var, " < ", var, "_end; ++", var, ") ");
  write_block(loop.body, scope);
  out_.close();
  add_to_totals(sums);
  out_.close();
  close_totals(sums);
}

// Statements of a vector loop that are the same for all lanes, written before it.
void KernelWriter::hoist_uniform(const For& loop) {
  Scope scope{lanes_, loop.var, "0"};
  for (const Compute& c : all<Compute>(loop.body)) {
    if (hoisted_.contains(&c) || c.op == LoopOp::Store || c.op == LoopOp::StoreAdd) continue;
    if (!are_known(c.args) || varies(c, scope)) continue;
    std::vector<Expr> symbols;
    sym::collect_symbols(c.index, symbols);
    const bool named = c.op == LoopOp::Symbol ||
                       std::ranges::all_of(symbols, [&](Expr e) { return names_.contains(e); });
    if (!named) continue;
    write_compute(c, Scope{});
    hoisted_.insert(&c);
  }
}

// From `from` to `to`, both texts: vectors of all lanes, then what is left.
void KernelWriter::write_vector_loop(const For& loop, const std::string& from,
                                     const std::string& to) {
  const bool constant = loop.size.is_const() && from == "0";
  const bool guard = !(constant && loop.size.value() > 0);
  const std::string var = new_loop_var();
  names_.erase(loop.var);
  if (guard) out_.open("if (", from, " < ", to, ") ");
  hoist_uniform(loop);
  names_[loop.var] = var;
  out_.line("i64 ", var, " = ", from, ';');
  keep_ragged_rows(loop);
  hints_ = streams_or_only_reads(loop);
  const Compute* unaligned = unaligned_stream(loop);
  if (unaligned) write_head(loop, *unaligned, var, to);
  if (!constant || loop.size.value() >= lanes_) write_vectors(loop, var, to);
  if (from == "0" && !unaligned)
    write_remainder(loop, var, to);
  else
    write_some(loop, var, cat(var, "_left"), cat(to, " - ", var));
  hints_ = true;
  if (guard) out_.close();
}

// Whole vectors from `var` on, in two ways where the loop gathers at places of tables.
void KernelWriter::write_vectors(const For& loop, const std::string& var, const std::string& to) {
  const auto vectors = [&] {
    out_.open("for (; ", var, " + ", lanes_, " <= ", to, "; ", var, " += ", lanes_, ") ");
    write_block(loop.body, Scope{lanes_, loop.var, var});
    out_.close();
  };
  const auto tables = table_gathers_.loops.find(&loop);
  if (tables == table_gathers_.loops.end()) return vectors();
  out_.open("if (",
            join(tables->second, " && ",
                 [&](std::string& s, uint32_t t) { cat_to(s, buffer(t), "_near"); }),
            ") ");
  near_ = true;
  vectors();
  near_ = false;
  out_.close();
  out_.open("else ");
  vectors();
  out_.close();
}

// The lanes `count` from `var` on, which may be none.
void KernelWriter::write_some(const For& loop, const std::string& var, const std::string& name,
                              const std::string& count) {
  out_.line("const i64 ", name, " = ", count, ';');
  out_.open("if (", name, " > 0) ");
  write_block(loop.body, Scope{lanes_, loop.var, var, name});
  out_.close();
}

bool KernelWriter::streams(const Compute& c) const {
  return c.op == LoopOp::Store && is_streaming(c) && !kept_.contains(&c);
}

// Hints are for loops of which nothing that is marked as streaming is kept in the cache.
bool KernelWriter::streams_or_only_reads(const For& loop) const {
  return std::ranges::none_of(all<Compute>(loop.body),
                              [&](const Compute& c) { return kept_.contains(&c); });
}

// Whether a loop's first vector may not lie where vectors can be streamed to.
bool KernelWriter::is_unaligned(const Compute& store, const For& loop) const {
  const auto along = sym::linear_in(store.index, loop.var);
  return along && along->first.is_const(1) && !sym::divisible(along->second, lanes_);
}

// A streaming store of a loop whose first lanes are written apart.
const Compute* KernelWriter::unaligned_stream(const For& loop) const {
  if (schedule::count_of(loop.size) < tuning::stream_fewest_vectors * lanes_) return nullptr;
  for (const Compute& c : all<Compute>(loop.body))
    if (streams(c) && is_unaligned(c, loop)) return &c;
  return nullptr;
}

// Where registers are a part of a line, rows that begin and end inside of lines have lines that are
// streamed in part and stored in part: each leaves the cache half written. Short rows do not
// stream, nor does what comes in small pieces.
void KernelWriter::keep_ragged_rows(const For& loop) {
  for (const Compute& c : all<Compute>(loop.body)) {
    if (!streams(c)) continue;
    const int64_t bytes = ir::byte_size(buffer_dtype(c.buffer)), line = kLine / bytes;
    const int64_t piece = std::min<int64_t>(lanes_ * bytes, register_bytes_);
    const auto along = sym::linear_in(c.index, loop.var);
    const bool whole_lines =
        !along || !along->first.is_const(1) ||
        (sym::divisible(along->second, line) && sym::divisible(loop.size, line));
    const bool is_short = schedule::count_of(loop.size) * bytes < tuning::stream_ragged_row;
    if (piece < tuning::stream_fewest_bytes || (!whole_lines && piece < kLine && is_short))
      kept_.insert(&c);
  }
}

// The lanes in front of the first vector that can be streamed.
void KernelWriter::write_head(const For& loop, const Compute& store, const std::string& var,
                              const std::string& to) {
  const int64_t bytes = ir::byte_size(store.dtype);
  const std::string room = cat(var, "_room"), aligned = cat(var, "_aligned"),
                    head = cat(var, "_head");
  out_.line("const i64 ", room, " = ", to, " - ", var, ';');
  out_.line("const i64 ", aligned, " = (i64)(-(u64)(", buffer(store.buffer), " + ",
            index(store.index), ") & ", lanes_ * bytes - 1, ") / ", bytes, ';');
  write_some(loop, var, head, cat(aligned, " < ", room, " ? ", aligned, " : ", room));
  out_.line(var, " += ", head, ';');
}

// Several copies of the accumulators at a time, then single vectors, then the lanes that are left.
void KernelWriter::write_vector_reduce(const For& loop) {
  const int copies = copies_of(loop);
  const int step = copies * lanes_;
  const bool constant = loop.size.is_const();
  const int64_t n = constant ? loop.size.value() : -1;
  const std::string to = index(loop.size);
  const std::string var = new_loop_var();
  names_.erase(loop.var);
  if (constant && n > 0)
    out_.open("");
  else
    out_.open("if (0 < ", to, ") ");
  if (lanes_ > 1) hoist_uniform(loop);
  out_.line("i64 ", var, " = 0;");
  if (!constant || n >= step) {
    const std::vector<uint32_t> sums = long_sums(loop, constant ? n / step : INT64_MAX);
    if (!sums.empty()) {
      open_totals(sums);
      out_.open("while (", var, " + ", step, " <= ", to, ") ");
      out_.line("const i64 ", var, "_next = ", var, " + ", block_of_sums(sums) * step, ';');
      out_.line("const i64 ", var, "_end = ", var, "_next < ", to, " ? ", var, "_next : ", to, ';');
    }
    const std::string end = sums.empty() ? to : cat(var, "_end");
    out_.open("for (; ", var, " + ", step, " <= ", end, "; ", var, " += ", step, ") ");
    out_.line("OXY_UNROLL");
    out_.open("for (int u = 0; u < ", copies, "; ++u) ");
    out_.line("const i64 ", var, "_u = ", var, " + ", lanes_, " * u;");
    names_[loop.var] = cat(var, "_u");
    write_block(loop.body, Scope{lanes_, loop.var, cat(var, "_u"), "", "u"});
    out_.close();
    out_.close();
    if (!sums.empty()) {
      add_to_totals(sums);
      out_.close();
      close_totals(sums);
    }
  }
  names_[loop.var] = var;
  if (copies > 1 && (!constant || n % step >= lanes_)) {
    out_.open("for (; ", var, " + ", lanes_, " <= ", to, "; ", var, " += ", lanes_, ") ");
    write_block(loop.body, Scope{lanes_, loop.var, var});
    out_.close();
  }
  write_remainder(loop, var, to);
  out_.close();
}

// The lanes that are left of a loop that has come to `var`.
void KernelWriter::write_remainder(const For& loop, const std::string& var, const std::string& to) {
  if (sym::divisible(loop.size, lanes_)) return;
  if (loop.size.is_const()) {
    out_.open("");
    write_block(loop.body, Scope{lanes_, loop.var, var, cat(loop.size.value() % lanes_)});
    out_.close();
  } else {
    write_some(loop, var, cat(var, "_left"), cat(to, " - ", var));
  }
}

// Whether more than two vectors are divided by one number, in registers so wide that the machine's
// division takes much longer than products with the reciprocal.
bool KernelWriter::is_long_division(const Compute& c, const Scope& scope) const {
  return c.op == LoopOp::Div && c.dtype == DType::F32 && scope.lanes * 4 == 64 &&
         prelude_.target().vector_bytes == 64 && sym::range_of(scope.var).hi >= 2 * scope.lanes &&
         value(c.args[0]).vector && !value(c.args[1]).vector &&
         value(c.args[0]).dtype == DType::F32 && value(c.args[1]).dtype == DType::F32;
}

// Whether a value of f32 is one that bf16 has as well, with the same upper bits.
bool KernelWriter::is_bf16(const Compute& c) const {
  const auto is = [&](uint32_t v) { return bf16_.contains(v); };
  if (c.dtype != DType::F32) return false;
  switch (c.op) {
    case LoopOp::Const:
      return !(std::bit_cast<uint32_t>(static_cast<float>(c.number)) & 0xffff);
    case LoopOp::Cast:
      return definitions_[c.args[0]] && definitions_[c.args[0]]->dtype == DType::BF16;
    case LoopOp::Neg:
    case LoopOp::Abs:
    case LoopOp::Max:
    case LoopOp::Min:
      return std::ranges::all_of(c.args, is);
    case LoopOp::Where:
      return is(c.args[1]) && is(c.args[2]);
    default:
      return false;
  }
}

// Of a half that has been made of a bool in f32, and becomes f32 again, the f32.
std::optional<uint32_t> KernelWriter::widened_flag(const Compute& c) const {
  const auto source = [&](const Compute* of) {
    return of && of->op == LoopOp::Cast ? definitions_[of->args[0]] : nullptr;
  };
  const Compute *half = source(&c), *wide = source(half), *flag = source(wide);
  const bool is = c.dtype == DType::F32 && flag && ir::is_reduced_float(half->dtype) &&
                  wide->dtype == DType::F32 && flag->dtype == DType::B8;
  return is ? std::optional(wide->value) : std::nullopt;
}

void KernelWriter::write_compute(const Compute& c, const Scope& scope) {
  switch (c.op) {
    case LoopOp::Load:
      return write_load(c, scope);
    case LoopOp::Store:
      return write_store(c, scope);
    case LoopOp::StoreAdd:
      return write_store_add(c, scope);
    case LoopOp::Check:
      return write_check(c, scope);
    case LoopOp::Symbol:
      return write_symbol(c, scope);
    case LoopOp::Index:
      return write_index(c, scope);
    default:
      break;
  }
  if (const auto it = selections_.operands.find(&c); it != selections_.operands.end())
    return write_selection(c, it->second, scope);
  const Scope used = varies(c, scope) ? scope : Scope{};
  std::string text;
  if (c.op == LoopOp::Const) {
    text = operators(1).constant(c.number, c.integer, c.dtype);
  } else if (is_long_division(c, used)) {
    text = cat(prelude_.fn("divide_by", "f32", used.lanes), '(', value(c.args[0]).name, ", ",
               value(c.args[1]).name, ')');
  } else {
    std::vector<Operand> args = narrow_places(c, used);
    if (args.empty())
      for (uint32_t a : c.args) args.push_back(operand(a, used));
    if (const auto flag = widened_flag(c))
      text = operand(*flag, used).text;
    else if (c.op == LoopOp::Cast && c.dtype == DType::BF16 && bf16_.contains(c.args[0]))
      text = cat(fn("bf16_in_f32", DType::F32, used), '(', args[0].text, ')');
    else
      text = operators(used).apply(c.op, c.dtype, args);
  }
  write_value(c, used.lanes, text);
}

std::string KernelWriter::new_loop_var() { return numbered('i', next_loop_++); }

std::string KernelWriter::index(Expr e) const {
  return index_text(e, [&](Expr part) { return name_of(part); });
}

std::string KernelWriter::name_of(Expr part) const {
  const auto it = names_.find(part);
  if (it == names_.end() && part.kind() != sym::Kind::Symbol) return "";
  OXY_CHECK(it != names_.end(), "symbol ", part.name(), " has no value in kernel ", kernel_.name);
  return it->second;
}

const KernelWriter::Value& KernelWriter::define(uint32_t id, DType dtype, bool vector) {
  OXY_CHECK(id < values_.size(), "value ", id);
  if (numbers_[id] < 0) numbers_[id] = next_number_++;
  return values_[id] = Value{cat('v', numbers_[id]), dtype, vector};
}

const KernelWriter::Value& KernelWriter::write_value(uint32_t id, DType dtype, int lanes,
                                                     const std::string& text) {
  const Value& v = define(id, dtype, lanes > 1);
  out_.line("const ", value_type_name(dtype, lanes), ' ', v.name, " = ", text, ';');
  return v;
}

bool KernelWriter::are_known(const std::vector<uint32_t>& values) const {
  return std::ranges::all_of(values, [&](uint32_t v) { return numbers_[v] >= 0; });
}

const KernelWriter::Value& KernelWriter::value(uint32_t id) const {
  OXY_CHECK(id < values_.size() && numbers_[id] >= 0, "value ", id, " is used before it is set");
  return values_[id];
}

Operand KernelWriter::operand(uint32_t id, const Scope& scope) {
  const Value& v = value(id);
  if (v.vector || !scope.vector()) return {v.name, v.dtype};
  return {operators(scope).splat(v.name, v.dtype), v.dtype};
}

OperatorText KernelWriter::operators(const Scope& scope) {
  return OperatorText(prelude_, scope.lanes, scope.active_lanes());
}

std::string KernelWriter::fn(std::string_view piece, DType dtype, const Scope& scope) {
  return prelude_.fn(piece, memory_type(dtype), scope.lanes);
}

std::string KernelWriter::partly(std::string_view piece, DType dtype, const std::string& args,
                                 const Scope& scope) {
  if (scope.active.empty()) return cat(fn(piece, dtype, scope), '(', args, ')');
  return cat(fn(cat(piece, "_part"), dtype, scope), '(', args, ", ", scope.active, ')');
}

Scope KernelWriter::touched(uint32_t id, Scope scope) const {
  if (padded_.contains(id)) scope.active.clear();
  return scope;
}

std::string KernelWriter::in_use(const std::string& mask, const Scope& scope) {
  if (scope.active.empty()) return mask;
  return cat(mask, mask.empty() ? "" : " & ", prelude_.fn("first", "i32", scope.lanes), '(',
             scope.active, ')');
}

std::string KernelWriter::value_type_name(DType dtype, int lanes) {
  if (lanes == 1) return value_type(dtype, 1);
  return prelude_.type(dtype == DType::B8 ? "i32" : memory_type(dtype), lanes);
}

const std::string& KernelWriter::buffer(uint32_t id) const { return buffers_.at(id); }
DType KernelWriter::buffer_dtype(uint32_t id) const { return kernel_.buffers.at(id).dtype; }

std::string emit(const schedule::Kernel& kernel, const Machine& target) {
  OXY_CHECK(target.vector_bytes == 0 || target.vector_bytes == 32 || target.vector_bytes == 64,
            "target");
  if (const auto moves = find_narrow_moves(kernel))
    return KernelWriter(moves->kernel, target, moves->bytes).write();
  return KernelWriter(kernel, target, combines_bytes(kernel) ? 1 : 0).write();
}

// Room for whole vectors of any elements (find_padded_locals), aligned to 64 bytes.
sym::Expr scratch_bytes(const schedule::KernelBuffer& b) {
  constexpr int64_t kMostLanes = 64;
  if (b.kind != schedule::KernelBuffer::Kind::Local) return 0;
  return sym::ceildiv(b.elements, kMostLanes) * kMostLanes * ir::byte_size(b.dtype);
}

sym::Expr scratch_bytes(const schedule::Kernel& kernel) {
  sym::Expr bytes = 0;
  for (const schedule::KernelBuffer& b : kernel.buffers) bytes += scratch_bytes(b);
  return bytes;
}

}  // namespace oxy::codegen::cpp
