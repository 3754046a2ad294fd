// Reductions: how accumulators are kept, updated and combined.
//
// An accumulator of a VectorReduce loop is an array of vectors ("copies", so that one addition need
// not wait for the last), combined pairwise by its Result. One declared inside a vector loop is a
// vector: each lane has its own.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "schedule/nest.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

using ops::ReduceKind;

namespace {

constexpr int kStepsInABlock = 16;
constexpr int kWideStepsInABlock = 128;
constexpr int64_t kStepsOfAWindow = 64;  // that a lane sums by itself

bool is_arg(ReduceKind k) { return k == ReduceKind::ArgMax || k == ReduceKind::ArgMin; }

// The VectorReduce loop that updates an accumulator, or nothing.
const For* vector_reduce_of(const Block& block, uint32_t acc) {
  for (const For& loop : all<For>(block)) {
    if (loop.kind == ForKind::VectorReduce &&
        std::ranges::any_of(all<Accumulate>(loop.body),
                            [&](const Accumulate& a) { return a.acc == acc; }))
      return &loop;
    if (const For* inner = vector_reduce_of(loop.body, acc)) return inner;
  }
  return nullptr;
}

// Whether a scalar loop updates it too.
bool scalar_update(const Block& block, uint32_t acc, bool vectorised) {
  for (const Stmt& s : block) {
    if (const Accumulate* a = std::get_if<Accumulate>(&s.v); a && a->acc == acc && !vectorised)
      return true;
    const For* loop = std::get_if<For>(&s.v);
    if (loop && scalar_update(loop->body, acc, vectorised || loop->kind == ForKind::VectorReduce))
      return true;
  }
  return false;
}

// The update of an accumulator; `loops` get those around it, the innermost first.
const Accumulate* update_of(const Block& block, uint32_t acc, std::vector<const For*>& loops) {
  for (const Accumulate& a : all<Accumulate>(block))
    if (a.acc == acc) return &a;
  for (const For& loop : all<For>(block)) {
    const Accumulate* found = update_of(loop.body, acc, loops);
    if (!found) continue;
    loops.push_back(&loop);
    return found;
  }
  return nullptr;
}

// How many positions there are that ArgMax and ArgMin may note, where these grow from step to step;
// INT64_MAX: of a symbolic size.
std::optional<int64_t> growing_positions(const Block& block, uint32_t acc) {
  std::vector<const For*> loops;
  const Accumulate* update = update_of(block, acc, loops);
  if (!update) return std::nullopt;
  Expr rest = update->index;
  int64_t count = 1;
  for (const For* loop : loops) {
    const auto along = sym::linear_in(rest, loop->var);
    if (!along || !along->first.is_const() || along->first.value() < count) return std::nullopt;
    count =
        loop->size.is_const() ? count + along->first.value() * (loop->size.value() - 1) : INT64_MAX;
    rest = along->second;
  }
  return rest.is_const(0) ? std::optional(count) : std::nullopt;
}

bool is_heavy(LoopOp op) { return op >= LoopOp::Exp && op <= LoopOp::Erfc; }

// Whether its lanes are moved one by one.
bool is_strided(const Compute& c, Expr var) {
  if (!schedule::touches_memory(c.op)) return false;
  const auto along = sym::linear_in(c.index, var);
  if (!along || !along->first.is_const()) return along.has_value();
  const int64_t stride = along->first.value();
  return stride > 2 || stride < -1;
}

}  // namespace

// Long bodies and several sums hide the latency of an addition by themselves; as many instructions
// as a strided vector has lanes, or divisions by sizes have, do so too, and take long to compile.
int KernelWriter::copies_of(const For& loop) const {
  auto computes = all<Compute>(loop.body);
  const auto in_loop = [&](Expr e) { return sym::contains(e, loop.var); };
  const auto is_long = [&](const Compute& c) {
    return is_strided(c, loop.var) || divides_by_size(c.index, in_loop);
  };
  if (std::ranges::any_of(computes, is_long)) return 1;
  const bool heavy = std::ranges::any_of(computes, is_heavy, &Compute::op);
  int copies = heavy || std::ranges::distance(all<Accumulate>(loop.body)) >= 4 ? 2 : 4;
  // What is left behind steps of all copies goes to the first one.
  while (copies > 1 && loop.size.is_const() && loop.size.value() < int64_t{lanes_} * copies)
    copies /= 2;
  return copies;
}

std::string KernelWriter::identity(const Init& init, int lanes) {
  const ReduceKind kind = init.kind == ReduceKind::ArgMax   ? ReduceKind::Max
                          : init.kind == ReduceKind::ArgMin ? ReduceKind::Min
                                                            : init.kind;
  const loops::Inst c = schedule::identity_of(kind, init.dtype);
  OperatorText text = operators(lanes);
  return text.splat(text.constant(c.number, c.integer, init.dtype), init.dtype);
}

void KernelWriter::write_init(const Init& init, const Block& block, const Scope& scope) {
  Accumulator& acc = accumulators_.at(init.acc);
  if (acc.name.empty()) acc.name = cat('a', next_accumulator_++);
  acc.init = init;
  if (ir::is_reduced_float(init.dtype)) acc.init.dtype = DType::F32;  // rounded by Result
  acc.result = is_arg(init.kind) ? DType::I64 : init.dtype;
  acc.copies = 1;
  acc.form = Accumulator::Form::Scalar;
  const std::optional<int64_t> positions =
      is_arg(init.kind) ? growing_positions(block, init.acc) : std::nullopt;
  acc.in_order = positions.has_value();
  acc.at = DType::I64;
  int lanes = 1;
  if (scope.vector()) {
    acc.form = Accumulator::Form::PerLane;
    lanes = scope.lanes;
  } else if (const For* loop = vector_reduce_of(block, init.acc)) {
    OXY_CHECK(!scalar_update(block, init.acc, false),
              "an accumulator of a vector loop and of a scalar one");
    acc.form = Accumulator::Form::Copies;
    lanes = lanes_;
    acc.copies = copies_of(*loop);
    if (positions && *positions <= INT32_MAX && ir::byte_size(acc.init.dtype) == 4)
      acc.at = DType::I32;
  }
  const bool array = acc.form == Accumulator::Form::Copies;
  const std::string type = value_type_name(acc.init.dtype, lanes);
  const std::string at_type = value_type_name(acc.at, lanes);
  const std::string none = operators(lanes).splat(cat('(', memory_type(acc.at), ")-1"), acc.at);
  if (!array) {
    out_.line(type, ' ', acc.name, " = ", identity(acc.init, lanes), ';');
    if (is_arg(init.kind)) out_.line(at_type, ' ', acc.name, "_at = ", none, ';');
    return;
  }
  out_.line(type, ' ', acc.name, '[', acc.copies, "];");
  if (is_arg(init.kind)) out_.line(at_type, ' ', acc.name, "_at[", acc.copies, "];");
  out_.line("OXY_UNROLL");
  out_.line("for (int k = 0; k < ", acc.copies, "; ++k) ", acc.name,
            "[k] = ", identity(acc.init, lanes), ';');
  if (!is_arg(init.kind)) return;
  out_.line("for (int k = 0; k < ", acc.copies, "; ++k) ", acc.name, "_at[k] = ", none, ';');
}

std::string KernelWriter::element_of(const Accumulator& acc, const std::string& copy) const {
  return acc.form == Accumulator::Form::Copies ? cat(acc.name, '[', copy, ']') : acc.name;
}

// target = fold(target, value), with the positions of both for ArgMax and ArgMin.
// `later`: the value comes behind all that the target has seen.
void KernelWriter::write_fold(const Accumulator& acc, const std::string& target,
                              const std::string& target_at, const std::string& value,
                              const std::string& at, int lanes, bool later) {
  OperatorText text = operators(lanes);
  const DType d = acc.init.dtype;
  if (!is_arg(acc.init.kind)) {
    // As of numbers: the operators of bool are those of its accumulators.
    const LoopOp op = schedule::fold_of(acc.init.kind, DType::F32);
    return out_.line(target, " = ", text.apply(op, d, {{target, d}, {value, d}}), ';');
  }
  const char* extreme = acc.init.kind == ReduceKind::ArgMax ? "max" : "min";
  const std::string piece =
      prelude_.fn(cat(later ? "later_" : "beats_", extreme), memory_type(d), lanes);
  out_.open("");
  if (later)
    out_.line("const auto wins = ", piece, '(', target, ", ", value, ");");
  else
    out_.line("const auto wins = ", piece, '(', target, ", ", target_at, ", ", value, ", ", at,
              ");");
  out_.line(target_at, " = ", text.select("wins", at, target_at, later ? acc.at : DType::I64), ';');
  out_.line(target, " = ", text.select("wins", value, target, d), ';');
  out_.close();
}

void KernelWriter::write_accumulate(const Accumulate& a, const Scope& scope) {
  const Accumulator& acc = accumulators_.at(a.acc);
  const Init& init = acc.init;
  std::string v = operand(a.value, scope).text;
  const DType from = value(a.value).dtype;
  if (from != init.dtype) v = operators(scope).cast({v, from}, init.dtype);
  const std::string target = element_of(acc, scope.copy);
  std::string target_at, at;
  if (is_arg(init.kind)) {
    target_at = cat(acc.name, "_at", target.substr(acc.name.size()));
    const Access position = access_of(a.index, scope);
    OXY_CHECK(position.kind != Access::Kind::Gather && position.kind != Access::Kind::Strided,
              "position of an element");
    const std::string type = memory_type(acc.at);
    at = operators(scope).splat(cat('(', type, ")(", position.offset, ')'), acc.at);
    if (position.kind == Access::Kind::Contiguous)
      at = cat(at, " + ", prelude_.fn("iota", type, scope.lanes), "()");
  }
  if (scope.vector() && !scope.active.empty() && acc.form == Accumulator::Form::Copies) {
    const std::string first = in_use("", scope);
    v = operators(scope).select(first, v, identity(init, scope.lanes), init.dtype);
    if (is_arg(init.kind) && !acc.in_order) {
      at = operators(scope).select(first, at, operators(scope).splat("(i64)-1", DType::I64),
                                   DType::I64);
    }
  }
  write_fold(acc, target, target_at, v, at, scope.lanes, acc.in_order);
}

// One value of all lanes of a vector.
std::string KernelWriter::folded(const Init& init, const std::string& vector) {
  if (lanes_ == 1) return vector;
  const LoopOp op = schedule::fold_of(init.kind, init.dtype);
  const bool nan = ir::is_floating(init.dtype) && (op == LoopOp::Max || op == LoopOp::Min);
  const std::string element = init.dtype == DType::B8 ? "i32" : memory_type(init.dtype);
  return cat(prelude_.fn(cat("fold_", ops::name(op), nan ? "_nan" : ""), element, lanes_), '(',
             vector, ')');
}

void KernelWriter::write_result(const Result& r, const Scope& scope) {
  const Accumulator& acc = accumulators_.at(r.acc);
  const bool arg = is_arg(acc.init.kind);
  const auto rounded = [&](const std::string& x, const Scope& at) {
    return operators(at).cast({x, acc.init.dtype}, acc.result);
  };
  // Where the first extreme is all that there is, no element has beaten the identity.
  const auto position = [&](const std::string& x, int lanes) {
    if (!acc.in_order) return x;
    OperatorText text = operators(lanes);
    const std::string zero = text.splat("(i64)0", DType::I64);
    return text.apply(LoopOp::Max, DType::I64, {{x, DType::I64}, {zero, DType::I64}});
  };
  if (acc.form == Accumulator::Form::Copies) {
    const bool near = acc.copies == 1 && acc.at == DType::I32;
    const std::string at = !arg ? "" : near ? cat(acc.name, "_at") : wide_positions(acc);
    for (int step = 1; step < acc.copies; step *= 2) {
      for (int k = 0; k + step < acc.copies; k += 2 * step) {
        write_fold(acc, cat(acc.name, '[', k, ']'), cat(at, '[', k, ']'),
                   cat(acc.name, '[', k + step, ']'), cat(at, '[', k + step, ']'), lanes_, false);
      }
    }
    std::string text = cat(acc.name, "[0]");
    if (arg && lanes_ > 1) {
      const std::string piece =
          cat(acc.init.kind == ReduceKind::ArgMax ? "arg_max" : "arg_min", near ? "_near" : "");
      const std::string element = memory_type(acc.init.dtype);
      text = position(cat(prelude_.fn(piece, element, lanes_), '(', text, ", ", at, "[0])"), 1);
    } else {
      text = arg ? position(cat(at, "[0]"), 1) : rounded(folded(acc.init, text), Scope{});
    }
    write_value(r.value, acc.result, 1, text);
    return;
  }
  std::string text = element_of(acc, scope.copy);
  text = arg ? position(cat(acc.name, "_at"), scope.lanes) : rounded(text, scope);
  write_value(r.value, acc.result, scope.lanes, text);
}

// The array of an accumulator's positions, as i64.
std::string KernelWriter::wide_positions(const Accumulator& acc) {
  const std::string at = cat(acc.name, "_at");
  if (acc.at == DType::I64) return at;
  const std::string wide = cat(acc.name, "_wide");
  out_.line(value_type_name(DType::I64, lanes_), ' ', wide, '[', acc.copies, "];");
  OperatorText text = operators(lanes_);
  out_.line("for (int k = 0; k < ", acc.copies, "; ++k) ", wide,
            "[k] = ", text.cast({cat(at, "[k]"), acc.at}, DType::I64), ';');
  return wide;
}

// How many additions follow each other where a body runs once, as far as they are not added up
// apart.
int64_t KernelWriter::chain_of(const Block& body) const {
  int64_t chain = !all<Accumulate>(body).empty();
  for (const For& loop : all<For>(body)) chain = std::max(chain, chain_of(loop));
  return chain;
}

int64_t KernelWriter::chain_of(const For& loop) const {
  const int64_t inner = chain_of(loop.body);
  if (inner == 0 || !loop.size.is_const()) return inner == 0 ? 0 : kStepsInABlock;
  int64_t steps = loop.size.value();
  if (loop.kind == ForKind::VectorReduce) {  // all copies at a time, then single vectors
    const int64_t step = int64_t{lanes_} * copies_of(loop);
    steps = steps / step + (steps % step + lanes_ - 1) / lanes_;
  }
  return std::min<int64_t>(steps * inner, kStepsInABlock);
}

// Sums in floating point that more than a block of additions update in a loop: each block is added
// up by itself, and the blocks in f64, so that an error grows neither with the number of elements
// nor with that of blocks.
std::vector<uint32_t> KernelWriter::long_sums(const For& loop, int64_t steps) const {
  std::vector<uint32_t> sums;
  std::unordered_set<uint32_t> inner;
  if (steps <= kStepsInABlock) return sums;
  walk(loop.body, [&](const Stmt& s) {
    if (const Init* init = std::get_if<Init>(&s.v)) inner.insert(init->acc);
    const Accumulate* a = std::get_if<Accumulate>(&s.v);
    if (!a || inner.contains(a->acc)) return;
    const Accumulator& acc = accumulators_.at(a->acc);
    const bool sum = acc.init.kind == ReduceKind::Sum && ir::is_floating(acc.init.dtype);
    const bool few = acc.form == Accumulator::Form::PerLane && steps <= kStepsOfAWindow;
    if (sum && !few && std::ranges::find(sums, a->acc) == sums.end()) sums.push_back(a->acc);
  });
  return sums;
}

int KernelWriter::block_of_sums(const std::vector<uint32_t>& sums) const {
  const bool wide = std::ranges::any_of(
      sums, [&](uint32_t id) { return accumulators_[id].init.dtype == DType::F64; });
  return wide ? kWideStepsInABlock : kStepsInABlock;
}

void KernelWriter::open_totals(const std::vector<uint32_t>& sums) {
  for (uint32_t id : sums) {
    const Accumulator& acc = accumulators_[id];
    const std::string type = value_type_name(DType::F64, lanes_of(acc));
    out_.line(type, ' ', acc.name, "_total[", acc.copies, "] = {};");
  }
}

void KernelWriter::add_to_totals(const std::vector<uint32_t>& sums) {
  for (uint32_t id : sums) {
    const Accumulator& acc = accumulators_[id];
    const std::string part = element_of(acc, "k");
    const std::string wide = operators(lanes_of(acc)).cast({part, acc.init.dtype}, DType::F64);
    out_.line("OXY_UNROLL");
    out_.open("for (int k = 0; k < ", acc.copies, "; ++k) ");
    out_.line(acc.name, "_total[k] = ", acc.name, "_total[k] + ", wide, ';');
    out_.line(part, " = ", identity(acc.init, lanes_of(acc)), ';');
    out_.close();
  }
}

// What an accumulator held before a loop that has no block is still in it.
void KernelWriter::close_totals(const std::vector<uint32_t>& sums) {
  for (uint32_t id : sums) {
    const Accumulator& acc = accumulators_[id];
    const std::string part = element_of(acc, "k");
    const std::string wide = operators(lanes_of(acc)).cast({part, acc.init.dtype}, DType::F64);
    const std::string total = cat('(', acc.name, "_total[k] + ", wide, ')');
    out_.line("OXY_UNROLL");
    out_.line("for (int k = 0; k < ", acc.copies, "; ++k) ", part, " = ",
              operators(lanes_of(acc)).cast({total, DType::F64}, acc.init.dtype), ';');
  }
}

int KernelWriter::lanes_of(const Accumulator& acc) const {
  return acc.form == Accumulator::Form::Scalar ? 1 : lanes_;
}

}  // namespace oxy::codegen::cpp
