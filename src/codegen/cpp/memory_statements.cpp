// Statements of a kernel that touch memory or indices: loads, stores, checks, symbols.
#include "codegen/cpp/kernel_writer.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

bool KernelWriter::varies(Expr e, const Scope& scope) const {
  if (!scope.vector() || e.is_const()) return false;
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  for (Expr s : symbols) {
    if (s == scope.var || lane_names_.contains(s)) return true;
  }
  return false;
}

bool KernelWriter::varies(const Compute& c, const Scope& scope) const {
  if (!scope.vector()) return false;
  for (uint32_t a : c.args) {
    if (value(a).vector) return true;
  }
  return varies(c.index, scope);
}

std::string KernelWriter::lane_index(Expr e, const Scope& scope) const {
  return index_text(e, [&](Expr s) {
    if (s == scope.var) return cat('(', scope.first, " + l)");
    if (const auto it = lane_names_.find(s); it != lane_names_.end()) return cat(it->second, "[l]");
    return names_.at(s);
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
  if (a.kind == Access::Kind::Gather) {
    const std::string type = value_type_name(c.dtype, scope.lanes);
    std::string all = table_gathered(c, scope);
    if (all.empty()) all = gathered(c, scope, "");
    if (all.empty()) return write_gather(c, a, scope, cat('(', type, "){}"), "");
    const Value& v = define(c, true);
    out_.line("const ", type, ' ', v.name, " = ", all, ';');
    return;
  }
  const Value& v = define(c, true);
  out_.line("const ", value_type_name(c.dtype, scope.lanes), ' ', v.name, " = ",
            vector_load(c, a, scope), ';');
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
  const Value& v = define(c, false);
  out_.line("const ", value_type_name(c.dtype, 1), ' ', v.name, " = ", text, ';');
}

std::string KernelWriter::vector_load(const Compute& c, const Access& a, const Scope& scope) {
  const std::string element = memory_type(c.dtype);
  std::string text;
  const auto fn = [&](std::string_view piece) { return prelude_.fn(piece, element, scope.lanes); };
  const std::string from = cat(buffer(c.buffer), " + ", a.offset);
  if (const auto column = columns_.find(&c); column != columns_.end()) {
    text = column->second;
  } else if (const auto tile = tile_load(c, scope)) {
    text = cat(fn("load"), '(', *tile, ')');
  } else if (a.kind == Access::Kind::Uniform) {
    text = cat(fn("splat"), '(', buffer(c.buffer), '[', a.offset, "])");
  } else if (a.kind == Access::Kind::Contiguous) {
    text = scope.active.empty() ? cat(fn("load"), '(', from, ')')
                                : cat(fn("load_part"), '(', from, ", ", scope.active, ')');
  } else if (a.stride == "(-1)" && scope.active.empty()) {
    text = cat(fn("reverse"), '(', fn("load"), '(', from, " - ", scope.lanes - 1, "))");
  } else if (a.stride == "2") {
    text = scope.active.empty() ? cat(fn("load_second"), '(', from, ')')
                                : cat(fn("load_second_part"), '(', from, ", ", scope.active, ')');
  } else {
    text = scope.active.empty()
               ? cat(fn("load_strided"), '(', from, ", ", a.stride, ')')
               : cat(fn("load_strided_part"), '(', from, ", ", a.stride, ", ", scope.active, ')');
  }
  return c.dtype == DType::B8 ? cat(prelude_.fn("mask_of", "u8", scope.lanes), '(', text, ')')
                              : text;
}

// The lanes' own part of an index, in elements, as a vector of signed integers as wide as the
// element, and what all lanes share; nothing where it is not a sum of their symbols or too large.
std::optional<KernelWriter::LaneOffsets> KernelWriter::lane_offsets(Expr e, int bytes,
                                                                    const Scope& scope) {
  const std::string integers = bytes == 8 ? "i64" : "i32";
  const std::string type = prelude_.type(integers, scope.lanes);
  const std::string splat = prelude_.fn("splat", integers, scope.lanes);
  LaneOffsets offsets;
  Expr own = 0;
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  for (Expr s : symbols) {
    if (!varies(s, scope)) continue;
    const auto linear = sym::linear_in(e, s);
    if (!linear || !linear->first.is_const()) return std::nullopt;
    own += linear->first * s;
    std::string lane;
    if (s == scope.var)
      lane = cat(prelude_.fn("iota", integers, scope.lanes), "() + ", splat, "((", integers, ')',
                 scope.first, ')');
    else
      lane = bytes == 8 ? lane_names_.at(s)
                        : cat("__builtin_convertvector(", lane_names_.at(s), ", ", type, ')');
    if (!linear->first.is_const(1))
      lane = cat('(', lane, ") * ", splat, '(', linear->first.value(), ')');
    cat_to(offsets.own, offsets.own.empty() ? "" : " + ", lane);
  }
  const sym::Range range = sym::range_of(own);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (bytes == 4 && (range.lo < -kMost || range.hi > kMost)) return std::nullopt;
  offsets.shared = index(e - own);
  return offsets;
}

// A load at places that differ by lane, by the instruction for it; empty where there is none.
// `mask`: of which lanes.
std::string KernelWriter::gathered(const Compute& c, const Scope& scope, const std::string& mask) {
  const int bytes = ir::byte_size(c.dtype);
  if (bytes < 4 || scope.lanes * bytes != prelude_.target().vector_bytes) return "";
  const auto offsets = lane_offsets(c.index, bytes, scope);
  if (!offsets) return "";
  std::string lanes = mask;
  if (!scope.active.empty())
    cat_to(lanes, lanes.empty() ? "" : " & ", prelude_.fn("first", "i32", scope.lanes), '(',
           scope.active, ')');
  const std::string piece =
      prelude_.fn(lanes.empty() ? "gather" : "gather_if", memory_type(c.dtype), scope.lanes);
  return cat(piece, '(', buffer(c.buffer), " + ", offsets->shared, ", ", offsets->own,
             lanes.empty() ? "" : ", ", lanes, ')');
}

void KernelWriter::write_gather(const Compute& c, const Access& a, const Scope& scope,
                                const std::string& initial, const std::string& condition) {
  const Value& v = define(c, true);
  out_.line(value_type_name(c.dtype, scope.lanes), ' ', v.name, " = ", initial, ';');
  if (scope.active.empty()) out_.line("OXY_UNROLL");
  out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
  const std::string memory = cat(buffer(c.buffer), '[', a.offset, ']');
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
  const bool second = a.kind == Access::Kind::Strided && a.stride == "2";
  if (ir::byte_size(c.dtype) == 4 && (second || a.kind == Access::Kind::Contiguous)) {
    std::string lanes = mask.name;
    if (!scope.active.empty())
      lanes = cat(lanes, " & ", prelude_.fn("first", "i32", scope.lanes), '(', scope.active, ')');
    const std::string from = cat(buffer(c.buffer), " + ", a.offset);
    const std::string piece =
        prelude_.fn(second ? "load_second_if" : "load_if", memory_type(c.dtype), scope.lanes);
    const std::string chosen =
        operators(scope).select(mask.name, cat(piece, '(', from, ", ", lanes, ')'), other, c.dtype);
    const Value& v = define(c, true);
    out_.line("const ", type, ' ', v.name, " = ", chosen, ';');
    return;
  }
  if (a.kind == Access::Kind::Gather) {
    if (const std::string some = gathered(c, scope, mask.name); !some.empty()) {
      const std::string chosen = operators(scope).select(mask.name, some, other, c.dtype);
      const Value& v = define(c, true);
      out_.line("const ", type, ' ', v.name, " = ", chosen, ';');
      return;
    }
  }
  if (!fast) return write_gather(c, {a.kind, per_lane, ""}, scope, other, cat(mask.name, "[l]"));
  const std::string loaded = vector_load(c, a, scope);
  const std::string memory = cat(buffer(c.buffer), '[', per_lane, ']');
  const std::string element = c.dtype == DType::B8 ? cat(memory, " ? -1 : 0") : memory;
  const std::string all = cat('!', prelude_.fn("any", "i32", scope.lanes), "(~", mask.name, ')');
  const Value& v = define(c, true);
  out_.line(type, ' ', v.name, " = ", other, ';');
  out_.open("if (", all, ") ");
  out_.line(v.name, " = ", loaded, ';');
  out_.close();
  const std::string some = cat(prelude_.fn("any", "i32", scope.lanes), '(', mask.name, ')');
  out_.open("else if (", some, ") for (i64 l = 0; l < ", scope.lanes, "; ++l) ");
  out_.line("if (", mask.name, "[l]) ", v.name, "[l] = ", element, ';');
  out_.close();
}

void KernelWriter::write_scalar_store(const Compute& c) {
  out_.line(buffer(c.buffer), '[', index(c.index), "] = ", value(c.args[0]).name, ';');
}

void KernelWriter::write_store(const Compute& c, const Scope& scope) {
  if (!varies(c, scope)) return write_scalar_store(c);
  std::string v = operand(c.args[0], scope).text;
  const Access a = access_of(c.index, scope);
  const std::string element = memory_type(buffer_dtype(c.buffer));
  if (const auto column = columns_.find(&c); column != columns_.end()) {
    if (c.dtype == DType::B8) v = cat(prelude_.fn("bytes_of", "i32", scope.lanes), '(', v, ')');
    out_.line(column->second, " = ", v, ';');
    return;
  }
  const auto fn = [&](std::string_view piece) { return prelude_.fn(piece, element, scope.lanes); };
  if (a.kind == Access::Kind::Gather || a.kind == Access::Kind::Uniform) {
    out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
    const std::string lane = value(c.args[0]).vector ? cat(v, "[l]") : value(c.args[0]).name;
    const std::string stored = c.dtype == DType::B8 ? cat(lane, " != 0") : lane;
    out_.line(buffer(c.buffer), '[', a.offset, "] = ", stored, ';');
    out_.close();
    return;
  }
  if (c.dtype == DType::B8) v = cat(prelude_.fn("bytes_of", "i32", scope.lanes), '(', v, ')');
  const std::string to = cat(buffer(c.buffer), " + ", a.offset);
  if (a.kind == Access::Kind::Strided) {
    if (scope.active.empty())
      out_.line(fn("store_strided"), '(', to, ", ", a.stride, ", ", v, ");");
    else
      out_.line(fn("store_strided_part"), '(', to, ", ", a.stride, ", ", v, ", ", scope.active,
                ");");
  } else if (!scope.active.empty()) {
    out_.line(fn("store_part"), '(', to, ", ", v, ", ", scope.active, ");");
  } else if (is_streaming(c)) {
    streams_ = true;
    out_.line(fn("stream"), '(', to, ", ", v, ");");
  } else {
    out_.line(fn("store"), '(', to, ", ", v, ");");
  }
}

void KernelWriter::write_store_add(const Compute& c, const Scope& scope) {
  const bool vector = varies(c, scope);
  const Access a = access_of(c.index, scope);
  const std::string name = value(c.args[0]).name;
  const std::string lane = value(c.args[0]).vector ? cat(name, "[l]") : name;
  const std::string at = cat(buffer(c.buffer), '[', a.offset, ']');
  if (vector && a.kind == Access::Kind::Strided) {
    out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
    const std::string there = cat(buffer(c.buffer), '[', lane_index(c.index, scope), ']');
    const std::string sum =
        operators(Scope{}).apply(LoopOp::Add, c.dtype, {{there, c.dtype}, {lane, c.dtype}});
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
    const std::string element = memory_type(c.dtype);
    OXY_CHECK(c.dtype != DType::B8, "store_add of b8");
    const std::string to = cat(buffer(c.buffer), " + ", a.offset);
    if (scope.active.empty()) {
      out_.line(prelude_.fn("store", element, scope.lanes), '(', to, ", ", sum, ");");
    } else {
      out_.line(prelude_.fn("store_part", element, scope.lanes), '(', to, ", ", sum, ", ",
                scope.active, ");");
    }
    return;
  }
  if (vector) out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
  out_.line(at, " = ",
            operators(Scope{}).apply(LoopOp::Add, c.dtype, {{at, c.dtype}, {lane, c.dtype}}), ';');
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
    if (!scope.active.empty())
      cat_to(outside, " & ", prelude_.fn("first", "i32", scope.lanes), '(', scope.active, ')');
    out_.line("if (", prelude_.fn("any", "i32", scope.lanes), '(', outside, ")) ", wrong);
    return;
  }
  out_.open("for (i64 l = 0; l < ", scope.active_lanes(), "; ++l) ");
  out_.line("if (", v.name, "[l] < 0 || ", v.name, "[l] >= ", lane_index(c.index, scope), ") ",
            wrong);
  out_.close();
}

void KernelWriter::write_hint(const Hint& h, const Scope& scope) {
  if (h.word != schedule::kPrefetch || !scope.active.empty()) return;
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
  const bool vector = a.kind != Access::Kind::Uniform;
  const std::string type = value_type_name(DType::I64, vector ? scope.lanes : 1);
  const Value& v = define(c, vector);
  if (!vector) {
    out_.line("const ", type, ' ', v.name, " = ", a.offset, ';');
  } else if (a.kind == Access::Kind::Gather) {
    out_.line(type, ' ', v.name, " = {};");
    out_.open("for (i64 l = 0; l < ", scope.lanes, "; ++l) ");
    out_.line(v.name, "[l] = ", a.offset, ';');
    out_.close();
  } else {
    const std::string iota = cat(prelude_.fn("iota", "i64", scope.lanes), "()");
    const std::string splat = prelude_.fn("splat", "i64", scope.lanes);
    const std::string step =
        a.stride.empty() ? iota : cat(iota, " * ", splat, "((i64)", a.stride, ')');
    out_.line("const ", type, ' ', v.name, " = ", splat, "((i64)", a.offset, ") + ", step, ';');
  }
}

}  // namespace oxy::codegen::cpp
