// Stores of a Vector loop that together are rows, one a lane: their vectors are interleaved in
// registers, so that memory is written as it lies.
#include <algorithm>

#include "codegen/cpp/kernel_writer.h"

namespace oxy::codegen::cpp {

namespace {

// Where an access is in its row: lane l has the element `row + stride * l`.
struct Place {
  Expr stride, row;
};
std::optional<Place> place_of(const Compute& c, Expr var) {
  const auto along = sym::linear_in(c.index, var);
  if (!along || !along->first.is_const() || along->first.value() < 2) return std::nullopt;
  return Place{along->first, along->second};
}

class RowFinder {
 public:
  explicit RowFinder(const For& loop) : loop_(loop) {
    for (const Stmt& s : loop.body)
      if (const Compute* c = std::get_if<Compute>(&s.v)) statements_.push_back(c);
  }

  void find(std::unordered_map<const Compute*, Rows>& found) {
    for (const Compute* c : statements_) {
      if (c->op != LoopOp::Store || taken_.contains(c)) continue;
      const Rows row = row_from(*c);
      if (row.empty()) continue;
      taken_.insert(row.begin(), row.end());
      for (const Compute* part : row) found[part] = {};
      found[*std::ranges::max_element(row, {}, [&](const Compute* part) {
        return std::ranges::find(statements_, part) - statements_.begin();
      })] = row;
    }
  }

 private:
  // The stores to neighbours of `one`'s element, from the first of them on; empty: it has none.
  Rows row_from(const Compute& one) const {
    const auto place = place_of(one, loop_.var);
    if (!place) return {};
    std::vector<std::pair<int64_t, const Compute*>> row;
    for (const Compute* c : statements_) {
      if (!schedule::touches_memory(c->op) || c->buffer != one.buffer) continue;
      const auto other = place_of(*c, loop_.var);
      const Expr apart = other ? other->row - place->row : Expr(0);
      if (c->op != LoopOp::Store) {
        // What is loaded of the buffer must be none of the elements that wait to be stored.
        if (!other || other->stride != place->stride || !apart.is_const()) return {};
        continue;
      }
      if (!other || other->stride != place->stride || !apart.is_const()) continue;
      row.emplace_back(apart.value(), c);
    }
    std::ranges::sort(row);
    const int64_t first = row[0].first, n = static_cast<int64_t>(row.size());
    if (n < 2 || n > place->stride.value()) return {};
    Rows out;
    for (int64_t k = 0; k < n; ++k) {
      if (row[k].first != first + k || row[k].second->dtype != one.dtype) return {};
      out.push_back(row[k].second);
    }
    return reads_what_waits(out) ? Rows{} : out;
  }

  // Whether an element is loaded behind its store.
  bool reads_what_waits(const Rows& row) const {
    std::vector<Expr> stored;
    for (const Compute* c : statements_) {
      if (std::ranges::find(row, c) != row.end()) stored.push_back(c->index);
      if (schedule::touches_memory(c->op) && c->op != LoopOp::Store &&
          c->buffer == row[0]->buffer && std::ranges::any_of(stored, [&](Expr e) {
            return sym::mod(e - c->index, place_of(*c, loop_.var)->stride).is_const(0);
          }))
        return true;
    }
    return false;
  }

  const For& loop_;
  std::vector<const Compute*> statements_;
  std::unordered_set<const Compute*> taken_;
};

// The numbers of the lanes of two vectors that make one.
std::string lanes_text(int lanes, auto&& lane) {
  std::string s;
  for (int l = 0; l < lanes; ++l) cat_to(s, ", ", lane(l));
  return s;
}

}  // namespace

std::unordered_map<const Compute*, Rows> find_stored_rows(const schedule::Kernel& kernel) {
  std::unordered_map<const Compute*, Rows> found;
  walk(kernel.body, [&](const Stmt& s) {
    const For* loop = std::get_if<For>(&s.v);
    if (loop && loop->kind == ForKind::Vector) RowFinder(*loop).find(found);
  });
  return found;
}

// Vectors of one element of each row to the rows, one behind the other: element l * n + k comes
// from lane l of the vector k. An even number of them is two halves, which are interleaved first.
std::vector<std::string> KernelWriter::interleaved(std::vector<std::string> rows, DType dtype,
                                                   const Scope& scope) {
  const int n = static_cast<int>(rows.size()), lanes = scope.lanes;
  if (n == 1) return rows;
  const std::string type = prelude_.type(memory_type(dtype), lanes);
  std::vector<std::string> out;
  const auto shuffled = [&](const std::string& a, const std::string& b, const std::string& places) {
    const std::string name = cat("row", next_rows_++);
    out_.line("const ", type, ' ', name, " = __builtin_shufflevector(", a, ", ", b, places, ");");
    return name;
  };
  if (n % 2 == 0) {
    std::vector<std::string> even, odd;
    for (int k = 0; k < n; ++k) (k % 2 ? odd : even).push_back(rows[static_cast<size_t>(k)]);
    even = interleaved(std::move(even), dtype, scope);
    odd = interleaved(std::move(odd), dtype, scope);
    for (size_t k = 0; k < even.size(); ++k) {
      for (const int half : {0, lanes / 2})
        out.push_back(shuffled(even[k], odd[k], lanes_text(lanes, [&](int l) {
                                 return half + l / 2 + (l % 2) * lanes;
                               })));
    }
    return out;
  }
  for (int part = 0; part < n; ++part) {
    std::string text = rows[0];
    for (int k = 1; k < n; ++k) {
      text = shuffled(text, rows[static_cast<size_t>(k)], lanes_text(lanes, [&](int l) {
                        const int place = part * lanes + l, from = place % n;
                        const bool first = k == 1 && from == 0;
                        return from == k ? lanes + place / n : first ? place / n : l;
                      }));
    }
    out.push_back(text);
  }
  return out;
}

void KernelWriter::write_rows(const Rows& rows, const Scope& scope) {
  const Compute& first = *rows[0];
  const DType dtype = buffer_dtype(first.buffer);
  const int n = static_cast<int>(rows.size()), lanes = scope.lanes;
  const std::string type = prelude_.type(memory_type(dtype), lanes);
  const std::string at = cat("rows", next_rows_++);
  out_.open("");
  std::vector<std::string> vectors;
  for (int k = 0; k < n; ++k) {
    vectors.push_back(cat(at, '_', k));
    out_.line("const ", type, ' ', vectors.back(), " = ",
              stored_value(*rows[static_cast<size_t>(k)], scope), ';');
  }
  vectors = interleaved(std::move(vectors), dtype, scope);
  const Access a = access_of(first.index, scope);
  out_.line(memory_type(dtype), "* const ", at, " = ", buffer(first.buffer), " + ", a.offset, ';');
  const bool whole = place_of(first, scope.var)->stride.is_const(n);
  const bool all = scope.active.empty();
  if (!whole) out_.line("alignas(64) ", memory_type(dtype), ' ', at, "_all[", n * lanes, "];");
  for (int part = 0; part < n; ++part) {
    const std::string& v = vectors[static_cast<size_t>(part)];
    const std::string to = cat(whole ? at : cat(at, "_all"), " + ", part * lanes);
    if (!whole || all) {
      const bool past = whole && streams(first);
      streams_ |= past;
      out_.line(fn(past ? "stream" : "store", dtype, scope), '(', to, ", ", v, ");");
      continue;
    }
    const std::string left = cat(n, " * ", scope.active, " - ", part * lanes);
    const std::string count = cat('(', left, " < ", lanes, " ? ", left, " : ", lanes, ')');
    out_.line("if (", left, " > 0) ", fn("store_part", dtype, scope), '(', to, ", ", v, ", ", count,
              ");");
  }
  if (!whole) {
    open_lanes(scope);
    out_.line("__builtin_memcpy(", at, " + ", a.stride, " * l, ", at, "_all + ", n, " * l, ",
              n * ir::byte_size(dtype), ");");
    out_.close();
  }
  out_.close();
}

}  // namespace oxy::codegen::cpp
