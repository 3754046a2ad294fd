// Statements of a kernel that touch memory or indices: loads, stores, checks, symbols.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

// Whether computing an index takes a division, which a lane at a time is slow.
bool divides(Expr e) {
  if (e.is_const()) return false;
  return e.kind() == sym::Kind::FloorDiv || e.kind() == sym::Kind::Mod ||
         std::ranges::any_of(e.operands(), divides);
}

}  // namespace

bool divides_by_size(Expr e, const std::function<bool(Expr)>& varies) {
  if (e.is_const()) return false;
  const bool here = e.kind() == sym::Kind::FloorDiv || e.kind() == sym::Kind::Mod;
  return (here && !e.operands()[1].is_const() && varies(e)) ||
         std::ranges::any_of(e.operands(), [&](Expr x) { return divides_by_size(x, varies); });
}

bool KernelWriter::varies(Expr e, const Scope& scope) const {
  if (!scope.vector() || e.is_const()) return false;
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return std::ranges::any_of(symbols,
                             [&](Expr s) { return s == scope.var || lane_names_.contains(s); });
}

bool KernelWriter::varies(const Compute& c, const Scope& scope) const {
  return scope.vector() &&
         (std::ranges::any_of(c.args, [&](uint32_t a) { return value(a).vector; }) ||
          varies(c.index, scope));
}

std::string KernelWriter::lane_index(Expr e, const Scope& scope) const {
  return index_text(e, [&](Expr s) {
    if (s == scope.var) return cat('(', scope.first, " + l)");
    if (const auto it = lane_names_.find(s); it != lane_names_.end()) return cat(it->second, "[l]");
    return name_of(s);
  });
}

Access KernelWriter::access_of(Expr e, const Scope& scope) const {
  if (!varies(e, scope)) return {Access::Kind::Uniform, index(e), ""};
  const auto linear = sym::linear_in(e, scope.var);
  if (!linear || varies(linear->second, scope) || varies(linear->first, scope)) {
    return {Access::Kind::Gather, lane_index(e, scope), ""};
  }
  const std::string offset = index(e);
  if (linear->first.is_const(1)) return {Access::Kind::Contiguous, offset, ""};
  return {Access::Kind::Strided, offset, index(linear->first)};
}

void KernelWriter::write_load(const Compute& c, const Scope& scope) {
  if (!varies(c, scope)) return write_scalar_load(c);
  if (!c.args.empty()) return write_masked_load(c, scope);
  const Access a = access_of(c.index, scope);
  const bool apart = a.kind == Access::Kind::Gather;
  const std::string type = value_type_name(c.dtype, scope.lanes);
  std::string loaded = apart ? table_gathered(c, scope) : vector_load(c, a, scope);
  if (loaded.empty() && write_run(c, scope, "", cat('(', type, "){}"))) return;
  if (loaded.empty()) loaded = gathered(c, scope, "");
  if (loaded.empty()) return write_gather(c, a, scope, cat('(', type, "){}"), "");
  const Value& v = write_value(c, scope.lanes, loaded);
  if (near_ && table_gathers_.entries.contains(&c)) write_distances(c, v, scope);
}

void KernelWriter::write_scalar_load(const Compute& c) {
  const std::string memory = cat(buffer(c.buffer), '[', index(c.index), ']');
  const std::string loaded = c.dtype == DType::B8 ? cat(memory, " != 0") : memory;
  std::string text = loaded;
  if (!c.args.empty()) {
    text = cat(value(c.args[0]).name, " ? ", c.dtype == DType::B8 ? cat('(', loaded, ')') : loaded,
               " : ", value(c.args[1]).name);
  }
  write_value(c, 1, text);
}

std::string KernelWriter::vector_load(const Compute& c, const Access& a, const Scope& scope) {
  std::string text;
  const std::string from = cat(buffer(c.buffer), " + ", a.offset);
  if (const auto column = columns_.find(&c); column != columns_.end()) {
    text = column->second;
  } else if (const auto tile = in_tile(c, scope)) {
    text = partly("load", c.dtype, *tile, scope);
  } else if (a.kind == Access::Kind::Uniform) {
    text = cat(fn("splat", c.dtype, scope), '(', buffer(c.buffer), '[', a.offset, "])");
  } else if (a.kind == Access::Kind::Contiguous) {
    text = partly("load", c.dtype, from, touched(c.buffer, scope));
  } else if (a.stride == "(-1)" && scope.active.empty()) {
    text = cat(fn("reverse", c.dtype, scope), '(', fn("load", c.dtype, scope), '(', from, " - ",
               scope.lanes - 1, "))");
  } else if (a.stride == "2") {
    text = partly("load_second", c.dtype, from, scope);
  } else {
    text = partly("load_strided", c.dtype, cat(from, ", ", a.stride), scope);
  }
  return c.dtype == DType::B8 ? cat(fn("mask_of", c.dtype, scope), '(', text, ')') : text;
}

// An index as a vector of signed integers of 4 or 8 bytes: sums, products, extremes, quotients and
// remainders by what all lanes share, in 4 bytes by constants alone. Nothing where it is something
// else, or where what is computed in 4 bytes may not fit.
std::optional<std::string> KernelWriter::lane_vector(Expr e, int bytes, const Scope& scope) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const sym::Range range = sym::range_of(e);
  if (bytes == 4 && (range.lo < -kMost || range.hi > kMost)) return std::nullopt;
  const std::string integer = bytes == 8 ? "i64" : "i32";
  const std::string type = prelude_.type(integer, scope.lanes);
  const auto splat = [&](const std::string& of, const std::string& x) {
    return cat(prelude_.fn("splat", of, scope.lanes), "((", of, ')', x, ')');
  };
  const auto converted = [&](const std::string& x) {
    return cat("__builtin_convertvector(", x, ", ", type, ')');
  };
  if (!varies(e, scope)) return splat(integer, index(e));
  if (e == scope.var)
    return cat('(', prelude_.fn("iota", integer, scope.lanes), "() + ", splat(integer, scope.first),
               ')');
  if (e.kind() == sym::Kind::Symbol)
    return bytes == 8 ? lane_names_.at(e) : converted(lane_names_.at(e));
  const std::span<const Expr> operands = e.operands();
  const bool remainder = e.kind() == sym::Kind::Mod;
  if (remainder || e.kind() == sym::Kind::FloorDiv) {
    const auto part = lane_vector(operands[0], 4, scope);
    if (!part || !operands[1].is_const() || operands[1].value() <= 0 ||
        sym::range_of(operands[0]).lo < 0) {
      const auto wide = bytes == 8 ? lane_vector(operands[0], 8, scope) : std::nullopt;
      if (!wide || varies(operands[1], scope)) return std::nullopt;
      return cat(prelude_.fn(remainder ? "floor_remainder" : "floor_quotient", "i64", scope.lanes),
                 '(', *wide, ", ", index(operands[1]), ')');
    }
    const std::string u32 = prelude_.type("u32", scope.lanes);
    const std::string result = cat("((", u32, ')', *part, remainder ? " % " : " / ",
                                   splat("u32", index(operands[1])), ')');
    return bytes == 8 ? converted(result) : cat("((", type, ')', result, ')');
  }
  std::vector<std::string> parts;
  for (Expr x : operands) {
    auto part = lane_vector(x, bytes, scope);
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  const auto append = [](std::string& s, const std::string& part) { s += part; };
  if (e.kind() == sym::Kind::Add) return cat('(', join(parts, " + ", append), ')');
  if (e.kind() == sym::Kind::Mul) return cat('(', join(parts, " * ", append), ')');
  if (e.kind() != sym::Kind::Min && e.kind() != sym::Kind::Max) return std::nullopt;
  std::string text = parts[0];
  const char* better = e.kind() == sym::Kind::Min ? " < " : " > ";
  for (size_t i = 1; i < parts.size(); ++i)
    text = cat('(', text, better, parts[i], " ? ", text, " : ", parts[i], ')');
  return text;
}

// The lanes' own part of an index, in elements, as a vector of signed integers as wide as the
// element, and what all lanes share; nothing where `lane_vector` has nothing.
std::optional<KernelWriter::LaneOffsets> KernelWriter::lane_offsets(Expr e, int bytes,
                                                                    const Scope& scope) {
  Expr own = 0;
  const auto add = [&](Expr x) {
    if (varies(x, scope)) own += x;
  };
  if (e.kind() == sym::Kind::Add)
    for (Expr x : e.operands()) add(x);
  else
    add(e);
  auto vector = lane_vector(own, bytes, scope);
  if (!vector) return std::nullopt;
  return LaneOffsets{std::move(*vector), index(e - own)};
}

// A load at places that differ by lane, by the instruction for it; empty where there is none.
// `mask`: of which lanes.
std::string KernelWriter::gathered(const Compute& c, const Scope& scope, const std::string& mask) {
  if (!has_gather(c.dtype, scope)) return "";
  const auto offsets = lane_offsets(c.index, std::max(ir::byte_size(c.dtype), 4), scope);
  if (!offsets) return "";
  return gather_text(c.dtype, cat(buffer(c.buffer), " + ", offsets->shared), offsets->own,
                     in_use(mask, scope), scope);
}

// Of the lanes of a mask at once.
bool KernelWriter::has_masked_load(DType dtype, const Scope& scope) const {
  return ir::byte_size(dtype) == 4 || (ir::byte_size(dtype) < 4 && has_gather(dtype, scope));
}

bool KernelWriter::has_gather(DType dtype, const Scope& scope) const {
  return scope.lanes * std::max(ir::byte_size(dtype), 4) == prelude_.target().vector_bytes;
}

// The elements `at` behind `base`, of the lanes in a mask, or of all.
std::string KernelWriter::gather_text(DType dtype, const std::string& base, const std::string& at,
                                      const std::string& mask, const Scope& scope) {
  const std::string piece = fn(mask.empty() ? "gather" : "gather_if", dtype, scope);
  const std::string found = cat(piece, '(', base, ", ", at, mask.empty() ? "" : ", ", mask, ')');
  return dtype == DType::B8 ? cat(fn("mask_of", dtype, scope), '(', found, ')') : found;
}

// A load at places with quotients. Mostly these follow each other, where no lane begins the next
// row: then it is a load of a vector. False where it is none such.
bool KernelWriter::write_run(const Compute& c, const Scope& scope, const std::string& mask,
                             const std::string& other) {
  if (!divides(c.index) || !scope.active.empty() || near_) return false;
  int bytes = ir::byte_size(c.dtype) == 8 ? 8 : 4;
  auto offsets = lane_offsets(c.index, bytes, scope);
  if (!offsets && bytes == 4) offsets = lane_offsets(c.index, bytes = 8, scope);
  if (!offsets) return false;
  const std::string integer = bytes == 8 ? "i64" : "i32";
  const std::string any = prelude_.fn("any", "i32", scope.lanes);
  const Value& v = define(c, true);
  const std::string at = cat(v.name, "_at"), base = cat(buffer(c.buffer), " + ", offsets->shared);
  out_.line("const ", prelude_.type(integer, scope.lanes), ' ', at, " = ", offsets->own, ';');
  out_.line(value_type_name(c.dtype, scope.lanes), ' ', v.name, " = ", other, ';');
  out_.open("if (!", any, "(__builtin_convertvector(", at,
            " != ", prelude_.fn("iota", integer, scope.lanes), "() + ",
            prelude_.fn("splat", integer, scope.lanes), '(', at, "[0]), ",
            prelude_.type("i32", scope.lanes), "))",
            mask.empty() ? "" : cat(" && !", any, "(~", mask, ')'), ") ");
  const std::string run = cat(fn("load", c.dtype, scope), '(', base, " + ", at, "[0])");
  out_.line(v.name, " = ",
            c.dtype == DType::B8 ? cat(fn("mask_of", c.dtype, scope), '(', run, ')') : run, ';');
  out_.close();
  out_.open("else ");
  if (has_gather(c.dtype, scope) && std::max(ir::byte_size(c.dtype), 4) == bytes) {
    const std::string found = gather_text(c.dtype, base, at, mask, scope);
    out_.line(v.name, " = ",
              mask.empty() ? found : operators(scope).select(mask, found, v.name, c.dtype), ';');
  } else {
    out_.line("OXY_UNROLL");
    out_.open("for (i64 l = 0; l < ", scope.lanes, "; ++l) ");
    const std::string memory = cat('(', base, ")[", at, "[l]]");
    out_.line(mask.empty() ? "" : cat("if (", mask, "[l]) "), v.name,
              "[l] = ", c.dtype == DType::B8 ? cat(memory, " ? -1 : 0") : memory, ';');
    out_.close();
  }
  out_.close();
  return true;
}

// A loop over the lanes in use. Where those are all, it is unrolled: a lane whose number varies is
// read from memory, to which the vector is written each time. Divisions at `at` take longer than
// that, and many times the code.
void KernelWriter::open_lanes(const Scope& scope, Expr at) {
  const auto varies = [&](Expr e) { return this->varies(e, scope); };
  if (scope.active.empty() && !divides_by_size(at, varies)) out_.line("OXY_UNROLL");
  out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
}

void KernelWriter::write_gather(const Compute& c, const Access& a, const Scope& scope,
                                const std::string& initial, const std::string& condition) {
  const Value& v = define(c, true);
  out_.line(value_type_name(c.dtype, scope.lanes), ' ', v.name, " = ", initial, ';');
  std::string memory = cat(buffer(c.buffer), '[', a.offset, ']');
  std::vector<Expr> symbols;
  sym::collect_symbols(c.index, symbols);
  const auto lanes = std::ranges::count_if(symbols, [&](Expr x) { return varies(x, scope); });
  // What lanes compute each is computed for all of them.
  const bool computed = divides(c.index) || lanes > 1;
  const auto narrow = computed ? lane_offsets(c.index, 4, scope) : std::nullopt;
  const auto offsets = narrow || !computed ? narrow : lane_offsets(c.index, 8, scope);
  if (offsets) {
    const std::string integers = prelude_.type(narrow ? "i32" : "i64", scope.lanes);
    out_.line("const ", integers, ' ', v.name, "_at = ", offsets->own, ';');
    memory = cat(buffer(c.buffer), '[', offsets->shared, " + ", v.name, "_at[l]]");
  }
  open_lanes(scope, offsets ? Expr(0) : c.index);
  const std::string loaded = c.dtype == DType::B8 ? cat(memory, " ? -1 : 0") : memory;
  out_.line(condition.empty() ? "" : cat("if (", condition, ") "), v.name, "[l] = ", loaded, ';');
  out_.close();
}

void KernelWriter::write_masked_load(const Compute& c, const Scope& scope) {
  const Access a = access_of(c.index, scope);
  const Value& mask = value(c.args[0]);
  const std::string other = operand(c.args[1], scope).text;
  const std::string type = value_type_name(c.dtype, scope.lanes);
  const bool fast = scope.active.empty() && a.kind != Access::Kind::Gather;
  const std::string per_lane = lane_index(c.index, scope);
  if (!mask.vector) {
    const std::string guard = mask.name;
    const bool apart = a.kind == Access::Kind::Gather;
    const std::string loaded = apart ? gathered(c, scope, "") : vector_load(c, a, scope);
    if (loaded.empty()) return write_gather(c, a, scope, other, guard);
    const Value& v = define(c, true);
    out_.line(type, ' ', v.name, " = ", other, ';');
    out_.line("if (", guard, ") ", v.name, " = ", loaded, ';');
    return;
  }
  if (a.kind == Access::Kind::Gather && write_run(c, scope, mask.name, other)) return;
  const std::string any_lane = prelude_.fn("any", "i32", scope.lanes);
  if (a.kind == Access::Kind::Uniform && !in_tile(c, scope)) {
    const std::string loaded = vector_load(c, a, scope);
    const Value& v = define(c, true);
    out_.line(type, ' ', v.name, " = ", other, ';');
    out_.line("if (", any_lane, '(', in_use(mask.name, scope), ")) ", v.name, " = ",
              operators(scope).select(mask.name, loaded, v.name, c.dtype), ';');
    return;
  }
  const bool second = a.kind == Access::Kind::Strided && a.stride == "2";
  std::string some;  // the lanes of the mask at once
  if (in_tile(c, scope)) {
    some = vector_load(c, a, scope);
  } else if (has_masked_load(c.dtype, scope) &&
             (a.kind == Access::Kind::Contiguous || (second && ir::byte_size(c.dtype) == 4))) {
    const std::string lanes = in_use(mask.name, scope);
    some = cat(fn(second ? "load_second_if" : "load_if", c.dtype, scope), '(', buffer(c.buffer),
               " + ", a.offset, ", ", lanes, ')');
    if (c.dtype == DType::B8) some = cat(fn("mask_of", c.dtype, scope), '(', some, ')');
  } else if (!fast) {
    some = gathered(c, scope, mask.name);
  }
  if (!some.empty()) {
    write_value(c, scope.lanes, operators(scope).select(mask.name, some, other, c.dtype));
    return;
  }
  if (!fast) return write_gather(c, {a.kind, per_lane, ""}, scope, other, cat(mask.name, "[l]"));
  const std::string loaded = vector_load(c, a, scope);
  const std::string memory = cat(buffer(c.buffer), '[', per_lane, ']');
  const std::string element = c.dtype == DType::B8 ? cat(memory, " ? -1 : 0") : memory;
  const std::string all = cat('!', any_lane, "(~", mask.name, ')');
  const Value& v = define(c, true);
  out_.line(type, ' ', v.name, " = ", other, ';');
  out_.open("if (", all, ") ");
  out_.line(v.name, " = ", loaded, ';');
  out_.close();
  const std::string any = cat(any_lane, '(', mask.name, ')');
  if (const std::string some_lanes = gathered(c, scope, mask.name); !some_lanes.empty()) {
    out_.line("else if (", any, ") ", v.name, " = ",
              operators(scope).select(mask.name, some_lanes, v.name, c.dtype), ';');
    return;
  }
  out_.open("else if (", any, ") for (i64 l = 0; l < ", scope.lanes, "; ++l) ");
  out_.line("if (", mask.name, "[l]) ", v.name, "[l] = ", element, ';');
  out_.close();
}

// Lanes as they lie in memory.
std::string KernelWriter::stored_value(const Compute& c, const Scope& scope) {
  const std::string v = operand(c.args[0], scope).text;
  if (c.dtype != DType::B8) return v;
  return cat(prelude_.fn("bytes_of", "i32", scope.lanes), '(', v, ')');
}

void KernelWriter::write_store(const Compute& c, const Scope& scope) {
  if (const auto rows = stored_rows_.find(&c);
      rows != stored_rows_.end() && scope.vector() && !in_tile(c, scope))
    return rows->second.empty() ? void() : write_rows(rows->second, scope);
  if (!varies(c, scope)) {
    const std::string& v = value(c.args[0]).name;
    return out_.line(buffer(c.buffer), '[', index(c.index), "] = ", v, ';');
  }
  const Access a = access_of(c.index, scope);
  const DType dtype = buffer_dtype(c.buffer);
  if (const auto column = columns_.find(&c); column != columns_.end())
    return out_.line(column->second, " = ", stored_value(c, scope), ';');
  if (a.kind == Access::Kind::Gather || a.kind == Access::Kind::Uniform) {
    open_lanes(scope, c.index);
    const std::string& name = value(c.args[0]).name;
    const std::string lane = value(c.args[0]).vector ? cat(name, "[l]") : name;
    const std::string stored = c.dtype == DType::B8 ? cat(lane, " != 0") : lane;
    out_.line(buffer(c.buffer), '[', a.offset, "] = ", stored, ';');
    out_.close();
    return;
  }
  const std::string v = stored_value(c, scope);
  const std::string to = cat(buffer(c.buffer), " + ", a.offset);
  if (const auto tile = in_tile(c, scope)) {
    out_.line(partly("store", dtype, cat(*tile, ", ", v), scope), ';');
  } else if (a.kind == Access::Kind::Strided) {
    out_.line(partly("store_strided", dtype, cat(to, ", ", a.stride, ", ", v), scope), ';');
  } else if (scope.active.empty() && streams(c)) {
    streams_ = true;
    out_.line(fn("stream", dtype, scope), '(', to, ", ", v, ");");
  } else {
    out_.line(partly("store", dtype, cat(to, ", ", v), touched(c.buffer, scope)), ';');
  }
}

void KernelWriter::write_store_add(const Compute& c, const Scope& scope) {
  const bool vector = varies(c, scope);
  const Access a = access_of(c.index, scope);
  const std::string name = value(c.args[0]).name;
  const std::string lane = value(c.args[0]).vector ? cat(name, "[l]") : name;
  const std::string at = cat(buffer(c.buffer), '[', a.offset, ']');
  if (vector && a.kind == Access::Kind::Strided) {
    open_lanes(scope);
    const std::string there = cat(buffer(c.buffer), '[', lane_index(c.index, scope), ']');
    const std::string sum =
        operators(1).apply(LoopOp::Add, c.dtype, {{there, c.dtype}, {lane, c.dtype}});
    out_.line(there, " = ", sum, ';');
    out_.close();
    return;
  }
  if (vector && a.kind == Access::Kind::Contiguous) {
    Compute load = c;
    load.args.clear();
    const Operand old{vector_load(load, a, scope), c.dtype};
    const std::string sum =
        operators(scope).apply(LoopOp::Add, c.dtype, {old, operand(c.args[0], scope)});
    OXY_CHECK(c.dtype != DType::B8, "store_add of b8");
    const std::string to = cat(buffer(c.buffer), " + ", a.offset);
    return out_.line(partly("store", c.dtype, cat(to, ", ", sum), scope), ';');
  }
  if (vector) open_lanes(scope, c.index);
  out_.line(at, " = ", operators(1).apply(LoopOp::Add, c.dtype, {{at, c.dtype}, {lane, c.dtype}}),
            ';');
  if (vector) out_.close();
}

void KernelWriter::write_check(const Compute& c, const Scope& scope) {
  const Value& v = value(c.args[0]);
  const std::string wrong = "return status | 1;";
  if (!v.vector) {
    out_.line("if (", v.name, " < 0 || ", v.name, " >= ", index(c.index), ") ", wrong);
    return;
  }
  if (v.dtype == DType::I64 && !varies(c.index, scope)) {
    std::string outside = cat("__builtin_convertvector((", prelude_.type("u64", scope.lanes), ')',
                              v.name, " >= ", prelude_.fn("splat", "u64", scope.lanes), "((u64)",
                              index(c.index), "), ", prelude_.type("i32", scope.lanes), ')');
    outside = in_use(outside, scope);
    out_.line("if (", prelude_.fn("any", "i32", scope.lanes), '(', outside, ")) ", wrong);
    return;
  }
  open_lanes(scope);
  out_.line("if (", v.name, "[l] < 0 || ", v.name, "[l] >= ", lane_index(c.index, scope), ") ",
            wrong);
  out_.close();
}

void KernelWriter::write_hint(const Hint& h, const Scope& scope) {
  if (h.word != schedule::kPrefetch || !hints_ || !scope.active.empty()) return;
  out_.line("__builtin_prefetch(", buffer(h.buffer), " + ", index(h.index), ");");
}

void KernelWriter::write_symbol(const Compute& c, const Scope&) {
  const Value& v = value(c.args[0]);
  OXY_CHECK(v.dtype == DType::I64, "symbol of ", ir::name(v.dtype));
  (v.vector ? names_ : lane_names_).erase(c.index);
  (v.vector ? lane_names_ : names_)[c.index] = v.name;
}

void KernelWriter::write_index(const Compute& c, const Scope& scope) {
  const Access a = access_of(c.index, scope);
  if (a.kind == Access::Kind::Uniform) {
    write_value(c, 1, a.offset);
    return;
  }
  const std::string type = value_type_name(DType::I64, scope.lanes);
  const std::string splat = prelude_.fn("splat", "i64", scope.lanes);
  if (const auto offsets = divides(c.index) ? lane_offsets(c.index, 8, scope) : std::nullopt) {
    write_value(c, scope.lanes, cat(offsets->own, " + ", splat, "((i64)", offsets->shared, ')'));
  } else if (a.kind == Access::Kind::Gather) {
    const Value& v = define(c, true);
    out_.line(type, ' ', v.name, " = {};");
    open_lanes(scope, c.index);
    out_.line(v.name, "[l] = ", a.offset, ';');
    out_.close();
  } else {
    const std::string iota = cat(prelude_.fn("iota", "i64", scope.lanes), "()");
    const std::string step =
        a.stride.empty() ? iota : cat(iota, " * ", splat, "((i64)", a.stride, ')');
    write_value(c, scope.lanes, cat(splat, "((i64)", a.offset, ") + ", step));
  }
}

// The operands of a comparison of places that i32 has, of which a register holds twice as many,
// with such places or a number that all lanes share; empty where it is none.
std::vector<Operand> KernelWriter::narrow_places(const Compute& c, const Scope& scope) {
  if (!scope.vector() || !schedule::is_any(c.op, LoopOp::Eq, LoopOp::Ne, LoopOp::Lt, LoopOp::Le,
                                           LoopOp::Gt, LoopOp::Ge))
    return {};
  const std::string splat = prelude_.fn("splat", "i32", scope.lanes);
  std::vector<Operand> places;
  for (const uint32_t id : c.args) {
    const Compute* place = definitions_[id];
    const Value& v = value(id);
    std::string text;
    if (!v.vector && v.dtype == DType::I64) {  // one that i32 has not lies beyond all places
      const bool fits = place && place->op == LoopOp::Const && place->integer < INT32_MAX &&
                        place->integer > -INT32_MAX;
      const std::string near = cat(v.name, " > ", INT32_MAX, " ? ", INT32_MAX, " : ", v.name,
                                   " < -", INT32_MAX, " ? -", INT32_MAX, " : ", v.name);
      text = cat(splat, "((i32)(", fits ? v.name : near, "))");
    } else {
      if (!place || place->op != LoopOp::Index) return {};
      const sym::Range range = sym::range_of(place->index);
      if (range.lo <= -INT32_MAX || range.hi >= INT32_MAX) return {};
      const Access a = access_of(place->index, scope);
      if (a.kind == Access::Kind::Gather) return {};
      text =
          cat(splat, "((i32)(", a.offset, ")) + ", prelude_.fn("iota", "i32", scope.lanes), "()");
      if (!a.stride.empty()) cat_to(text, " * ", splat, "((i32)(", a.stride, "))");
    }
    places.push_back({cat('(', text, ')'), DType::I32});
  }
  return places;
}

}  // namespace oxy::codegen::cpp
