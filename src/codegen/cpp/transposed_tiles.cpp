// Tiled pairs of loops: loads that are contiguous in the outer variable are transposed, 64 x 64
// elements at a time, onto the stack; the rest of the body then runs on rows as ever; stores that
// are contiguous in the outer variable go to the stack too, and from there transposed to memory.
// Of a masked load whose mask holds in a box of iterations (as a padding's does), what lies in the
// box is transposed.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {

namespace {

constexpr int kTile = tuning::tile;  // the transpose piece knows it too

// The iterations of a pair of loops in which a mask holds: rows and columns from the largest of the
// first bounds to before the smallest of the others, where no condition is negative.
struct Box {
  std::vector<Expr> rows_from, rows_to, columns_from, columns_to, conditions;
};

// The tiled Vector loop directly inside, or nothing.
const For* tiled_inner(const For& outer) {
  const For* inner = nullptr;
  for (const Stmt& s : outer.body) {
    const Compute* c = std::get_if<Compute>(&s.v);
    if (c && c->op != LoopOp::Store && c->op != LoopOp::StoreAdd) continue;
    const For* loop = std::get_if<For>(&s.v);
    if (!loop || inner || loop->kind != ForKind::Vector || !is_tiled(*loop)) return nullptr;
    inner = loop;
  }
  return inner;
}

// Whether no symbol of the index is bound in the loop (as a gather's is).
bool is_known_before(Expr index, const For& loop) {
  bool known = true;
  schedule::walk<Compute>(loop.body, [&](const Compute& c) {
    known &= c.op != LoopOp::Symbol || !sym::contains(index, c.index);
  });
  return known;
}

bool is_load_known_before(const Compute& c, const For& loop) {
  return c.op == LoopOp::Load && is_known_before(c.index, loop);
}

// The stride of a column, where an index is `row + stride * column + rest`.
std::optional<Expr> stride_across(Expr index, const For& outer, const For& inner) {
  const auto by_row = sym::linear_in(index, outer.var);
  if (!by_row || !by_row->first.is_const(1)) return std::nullopt;
  const auto by_column = sym::linear_in(by_row->second, inner.var);
  if (!by_column || by_column->first.is_const(0) || by_column->first.is_const(1))
    return std::nullopt;
  return by_column->first;
}

// Conjunctions of comparisons, each of which bounds one of the two variables or neither.
class BoxFinder {
 public:
  BoxFinder(const std::vector<const Compute*>& definitions, const For& outer, const For& inner)
      : definitions_(definitions), outer_(outer), inner_(inner) {}

  bool conjunction(uint32_t mask) {
    const Compute* c = definitions_[mask];
    if (!c) return false;
    if (c->op == LoopOp::And) return conjunction(c->args[0]) && conjunction(c->args[1]);
    if (!schedule::is_any(c->op, LoopOp::Ge, LoopOp::Gt, LoopOp::Le, LoopOp::Lt)) return false;
    const auto left = integer(c->args[0]), right = integer(c->args[1]);
    if (!left || !right) return false;
    const bool from_below = schedule::is_any(c->op, LoopOp::Ge, LoopOp::Gt);
    const bool strict = schedule::is_any(c->op, LoopOp::Gt, LoopOp::Lt);
    return at_least_zero((from_below ? *left - *right : *right - *left) - (strict ? 1 : 0));
  }

  Box box;

 private:
  std::optional<Expr> integer(uint32_t value) const {
    const Compute* c = definitions_[value];
    if (!c || c->dtype != DType::I64) return std::nullopt;
    if (c->op == LoopOp::Const) return Expr(c->integer);
    return c->op == LoopOp::Index && is_known_before(c->index, outer_) ? std::optional(c->index)
                                                                       : std::nullopt;
  }

  bool at_least_zero(Expr e) {
    const auto by_row = sym::linear_in(e, outer_.var);
    const auto by_column = by_row ? sym::linear_in(by_row->second, inner_.var) : std::nullopt;
    if (!by_column) return false;
    const Expr row = by_row->first, column = by_column->first, rest = by_column->second;
    if (row.is_const(0) && column.is_const(0))
      box.conditions.push_back(rest);
    else if (row.is_const(1) && column.is_const(0))
      box.rows_from.push_back(-rest);
    else if (row.is_const(-1) && column.is_const(0))
      box.rows_to.push_back(rest + 1);
    else if (row.is_const(0) && column.is_const(1))
      box.columns_from.push_back(-rest);
    else if (row.is_const(0) && column.is_const(-1))
      box.columns_to.push_back(rest + 1);
    else
      return false;
    return true;
  }

  const std::vector<const Compute*>& definitions_;
  const For &outer_, &inner_;
};

// The stores that a square on the stack can take: those at each iteration, to what the loop does
// not read.
std::vector<const Compute*> transposed_stores(const For& outer, const For& inner) {
  std::vector<const Compute*> stores;
  for (const Stmt& s : inner.body) {
    const Compute* store = std::get_if<Compute>(&s.v);
    if (!store || store->op != LoopOp::Store || !stride_across(store->index, outer, inner) ||
        !is_known_before(store->index, outer))
      continue;
    const bool apart = std::ranges::none_of(all<Compute>(inner.body), [&](const Compute& c) {
      const bool memory = schedule::is_any(c.op, LoopOp::Load, LoopOp::Store, LoopOp::StoreAdd);
      return &c != store && memory && c.buffer == store->buffer;
    });
    if (apart) stores.push_back(store);
  }
  return stores;
}

// The box in which a load is read that is contiguous in the outer variable; nothing: it is none.
std::optional<Box> box_of_transposed(const Compute& c, const For& outer, const For& inner,
                                     const std::vector<const Compute*>& definitions) {
  if (!is_load_known_before(c, outer) || !stride_across(c.index, outer, inner)) return std::nullopt;
  BoxFinder finder(definitions, outer, inner);
  if (!c.args.empty() && !finder.conjunction(c.args[0])) return std::nullopt;
  return std::move(finder.box);
}

}  // namespace

bool KernelWriter::can_tile(const For& outer) const {
  if (lanes_ == 1 || (outer.kind != ForKind::Serial && outer.kind != ForKind::Parallel))
    return false;
  const For* inner = tiled_inner(outer);
  if (!inner || sym::contains(inner->size, outer.var)) return false;
  return !transposed_stores(outer, *inner).empty() ||
         std::ranges::any_of(all<Compute>(inner->body), [&](const Compute& c) {
           return box_of_transposed(c, outer, *inner, definitions_).has_value();
         });
}

std::optional<std::string> KernelWriter::in_tile(const Compute& c, const Scope& scope) const {
  const auto it = tiles_.find(&c);
  if (it == tiles_.end()) return std::nullopt;
  const Tile& t = it->second;
  const std::string column =
      t.column == "0" ? scope.first : cat('(', scope.first, " - ", t.column, ')');
  return cat(t.name, " + ", kTile, " * ", t.row, " + ", column);
}

// Rows `rows_from` .. `rows_to` - 1, at most 64, in squares along the columns.
void KernelWriter::write_tiled(const For& outer, const std::string& rows_from,
                               const std::string& rows_to) {
  const For& inner = *tiled_inner(outer);
  const std::string columns = index(inner.size);
  if (inner.size.is_const() && inner.size.value() <= kTile) {
    out_.open("");
    write_square(outer, {rows_from, rows_to}, {"0", columns});
    out_.close();
    return;
  }
  const std::string from = new_loop_var();
  out_.open("for (i64 ", from, " = 0; ", from, " < ", columns, "; ", from, " += ", kTile, ") ");
  out_.line("const i64 ", from, "_some = ", from, " + ", kTile, ';');
  out_.line("const i64 ", from, "_to = ", from, "_some < ", columns, " ? ", from,
            "_some : ", columns, ';');
  write_square(outer, {rows_from, rows_to}, {from, cat(from, "_to")});
  out_.close();
}

// What the next square reads lies in many short pieces, which nothing else prefetches: at each row,
// a row of it is asked for (into the second-level cache: in the first one rows a multiple of 4 KB
// apart push each other out). It is the next one along the columns; where there is one only, along
// the rows; or that of the next iteration of the parallel loops.
void KernelWriter::prefetch_next(const For& outer, const Span& rows, const Span& columns,
                                 const std::string& row) {
  const For& inner = *tiled_inner(outer);
  const bool only = columns.from == "0";
  const bool next_iteration = only && rows.from == "0" && !iteration_.is_const();
  const std::string step = cat('(', row, " - ", rows.from, ')');
  const std::string iteration = next_iteration ? names_[iteration_] : "";
  if (only) out_.open("if (", step, " < ", columns.to, ") ");
  if (next_iteration) names_[iteration_] = cat('(', iteration, " + 1)");
  for (const Compute& c : all<Compute>(inner.body)) {
    if (!is_load_known_before(c, outer)) continue;
    const auto by_column = sym::linear_in(c.index, inner.var);
    const bool transposed = box_of_transposed(c, outer, inner, definitions_).has_value();
    const bool along_columns = by_column && by_column->first.is_const(1);
    if (!transposed && ((only && !next_iteration) || !along_columns)) continue;
    const std::string next_columns = only ? "0" : cat('(', columns.from, " + ", kTile, ')');
    const std::string next_rows =
        only && !next_iteration ? cat('(', rows.from, " + ", kTile, ')') : rows.from;
    names_[outer.var] = transposed ? next_rows : row;
    names_[inner.var] = transposed ? cat('(', next_columns, " + ", step, ')') : next_columns;
    const int64_t per_line = 64 / ir::byte_size(c.dtype);
    const std::string at = cat(buffer(c.buffer), " + ", index(c.index));
    for (int64_t l = 0; l < kTile / per_line; ++l)
      out_.line("__builtin_prefetch(", at, " + ", l * per_line, ", 0, 2);");
    // Rows that begin inside of lines end in one more.
    const auto pitch = sym::linear_in(c.index, transposed ? inner.var : outer.var);
    const bool whole = pitch && pitch->first.is_const() && pitch->first.value() % per_line == 0;
    if (!whole) out_.line("__builtin_prefetch(", at, " + ", kTile - 1, ", 0, 2);");
  }
  if (next_iteration) names_[iteration_] = iteration;
  if (only) out_.close();
}

void KernelWriter::write_square(const For& outer, const Span& rows, const Span& columns) {
  const For& inner = *tiled_inner(outer);
  const auto size = [](const Span& s) { return s.from == "0" ? s.to : cat(s.to, " - ", s.from); };
  const std::string row = new_loop_var();
  const std::string in_square = rows.from == "0" ? row : cat('(', row, " - ", rows.from, ')');
  names_[outer.var] = rows.from;
  names_[inner.var] = columns.from;
  const auto add_tile = [&](const Compute& c, const std::string& element) {
    const std::string tile = cat("tile", tiles_.size());
    out_.line("alignas(64) ", element, ' ', tile, '[', kTile * kTile, "];");
    tiles_[&c] = Tile{tile, in_square, columns.from};
    return tile;
  };
  for (const Compute& c : all<Compute>(inner.body)) {
    const auto box = box_of_transposed(c, outer, inner, definitions_);
    if (!box) continue;
    const std::string element = memory_type(c.dtype), tile = add_tile(c, element);
    const std::string stride = index(*stride_across(c.index, outer, inner));
    // The larger of `text` and the bounds (">"), or the smaller one ("<").
    const auto bounded = [&](const char* side, std::string text, const char* better,
                             const std::vector<Expr>& bounds) {
      if (bounds.empty()) return text;
      const std::string name = cat(tile, side);
      out_.line("i64 ", name, " = ", text, ';');
      for (Expr bound : bounds)
        out_.line("if (", index(bound), ' ', better, ' ', name, ") ", name, " = ", index(bound),
                  ';');
      return name;
    };
    const Span box_rows{bounded("_top", rows.from, ">", box->rows_from),
                        bounded("_bottom", rows.to, "<", box->rows_to)};
    const Span box_columns{bounded("_left", columns.from, ">", box->columns_from),
                           bounded("_right", columns.to, "<", box->columns_to)};
    std::string held;
    for (Expr e : box->conditions) cat_to(held, held.empty() ? "" : " && ", index(e), " >= 0");
    std::string first = tile;
    if (box_rows.from != rows.from)
      cat_to(first, " + ", kTile, " * (", box_rows.from, " - ", rows.from, ')');
    if (box_columns.from != columns.from)
      cat_to(first, " + (", box_columns.from, " - ", columns.from, ')');
    names_[outer.var] = box_rows.from;
    names_[inner.var] = box_columns.from;
    out_.line(held.empty() ? "" : cat("if (", held, ") "),
              prelude_.fn("transpose", element, lanes_), '(', first, ", ", kTile, ", ",
              buffer(c.buffer), " + ", index(c.index), ", ", stride, ", ", size(box_rows), ", ",
              size(box_columns), ");");
    names_[outer.var] = rows.from;
    names_[inner.var] = columns.from;
  }
  std::vector<std::string> at_end;  // squares go to memory
  for (const Compute* c : transposed_stores(outer, inner)) {
    const std::string element = memory_type(buffer_dtype(c->buffer));
    at_end.push_back(cat(prelude_.fn("transpose", element, lanes_), '(', buffer(c->buffer), " + ",
                         index(c->index), ", ", index(*stride_across(c->index, outer, inner)), ", ",
                         add_tile(*c, element), ", ", kTile, ", ", size(columns), ", ", size(rows),
                         ");"));
  }
  out_.open("for (i64 ", row, " = ", rows.from, "; ", row, " < ", rows.to, "; ++", row, ") ");
  prefetch_next(outer, rows, columns, row);
  names_[outer.var] = row;
  for (const Compute& c : all<Compute>(outer.body))
    if (!stands_elsewhere(c)) write_compute(c, Scope{});
  write_vector_loop(inner, columns.from, columns.to);
  out_.close();
  for (const std::string& line : at_end) out_.line(line);
  names_[outer.var] = rows.from;
}

}  // namespace oxy::codegen::cpp
