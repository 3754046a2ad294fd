// The emitted text: `addR` (eight values of k for R rows, along the columns), `add_rest` (any
// number of rows and values), `kernel`. A parallel iteration is a group of columns of one batch.
// Halves are widened: B where it is used, of A what one step of k takes.
#include "codegen/cpp/gemm.h"

#include <algorithm>

#include "codegen/cpp/prelude.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int kDepth = tuning::row_depth, kAhead = tuning::row_ahead;
constexpr int64_t kColumnsOfAnIteration = tuning::row_columns_of_an_iteration;
static_assert(tuning::row_most_rows <= tuning::dot_most_rows);

Size iterations(const Gemm& p) { return ceil_div(p.n, kColumnsOfAnIteration); }

// Iterations that are worked on together, so that memory is read in long pieces.
Size most_iterations(const Gemm& p) {
  const Size some = max(p.m, 1) * kColumnsOfAnIteration;
  return clamp(tuning::row_sums / some, 1, max(iterations(p), 1));
}

class RowEmitter {
 public:
  RowEmitter(ir::DType dtype, bool to_f32, const Machine& t)
      : prelude_(t),
        lanes_(t.vector_bytes / 4),
        tile_rows_(tuning::row_tile_rows(t)),
        half_(dtype == ir::DType::F32 ? "" : ir::name(dtype)),
        element_(half_.empty() ? "f32" : "u16"),
        result_(to_f32 ? "f32" : element_) {
    vec_ = prelude_.type("f32", lanes_);
  }

  std::string text() {
    // In the order of row_gemm_parameters.
    body_ += R"(struct Shape {
  i64 m, n, k, a_batch, a_row, b_batch, b_k, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias, iterations, together, sums_row;
};
)";
    for (int r = 1; r <= tile_rows_; r++) add(r);
    add_rest();
    kernel();
    return cat("// Few rows of A times rows of B\n", prelude_.text(), "typedef ", element_,
               " element;\ntypedef ", result_, " result;\n", body_);
  }

 private:
  std::string fn(const char* piece) { return prelude_.fn(piece, "f32", lanes_); }

  // The f32 of what is in memory, and what is in memory of an f32.
  std::string widened(const std::string& value, int lanes) {
    if (half_.empty()) return value;
    return cat(prelude_.fn(cat("f32_of_", half_), "u16", lanes), '(', value, ')');
  }
  std::string narrowed(const std::string& value, int lanes) {
    if (result_ == "f32") return value;
    return cat(prelude_.fn(cat(half_, "_of_f32"), "f32", lanes), '(', value, ')');
  }
  std::string loaded(const char* piece, const std::string& arguments) {
    return widened(cat(prelude_.fn(piece, element_, lanes_), '(', arguments, ')'), lanes_);
  }

  // addR: sums += a * b for kDepth values of k, two vectors of columns at a time, which share what
  // is read of A.
  void add(int rows) {
    cat_to(body_, "static void add", rows,
           "(const f32* a, i64 a_row, const element* b, i64 b_k, f32* sums, i64 row, i64 columns, "
           "b8 fresh) {\n  i64 n = 0;\n  for (; n + ",
           2 * lanes_, " <= columns; n += ", 2 * lanes_, ") {\n");
    step(rows, 2, "load", "");
    cat_to(body_, "  }\n  if (n + ", lanes_, " <= columns) {\n");
    step(rows, 1, "load", "");
    cat_to(body_, "    n += ", lanes_, ";\n  }\n  if (n < columns) {\n");
    step(rows, 1, "load_part", ", columns - n");
    body_ += "  }\n}\n";
  }

  void step(int rows, int vectors, const char* piece, const char* rest) {
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
          write(i, v, cat("x", i, v), cat("sums + ", i, " * row + n + ", v * lanes_));
    };
    each([&](int, int, const std::string& x, const std::string& at) {
      cat_to(body_, "    ", vec_, " ", x, " = {};\n    if (!fresh) ", x, " = ", fn("load"), "(", at,
             ");\n");
    });
    for (int j = 0; j < kDepth; j++) {
      for (int v = 0; v < vectors; v++)
        cat_to(body_, "    __builtin_prefetch(b + ", j, " * b_k + n + ", (v + kAhead) * lanes_,
               ", 0, 3);\n    const ", vec_, " w", j, v, " = ",
               loaded(piece, cat("b + ", j, " * b_k + n + ", v * lanes_, rest)), ";\n");
      for (int i = 0; i < rows; i++)
        cat_to(body_, "    const ", vec_, " a", i, j, " = ", fn("splat"), "(a[", i, " * a_row + ",
               j, "]);\n");
      each([&](int i, int v, const std::string& x, const std::string&) {
        cat_to(body_, "    ", x, " = ", fn("fma"), "(a", i, j, ", w", j, v, ", ", x, ");\n");
      });
    }
    each([&](int, int, const std::string& x, const std::string& at) {
      cat_to(body_, "    ", fn("store"), "(", at, ", ", x, ");\n");
    });
  }

  // add_rest: fewer values of k, a row and a vector of columns after the other.
  void add_rest() {
    body_ +=
        "static void add_rest(const f32* a, i64 a_row, i64 m, const element* b, i64 b_k, "
        "i64 depth, f32* sums, i64 row, i64 columns) {\n  i64 n = 0;\n";
    rest_of_rows(cat("for (; n + ", lanes_, " <= columns; n += ", lanes_, ')'), "load", "");
    rest_of_rows("if (n < columns)", "load_part", ", columns - n");
    body_ += "}\n";
  }

  void rest_of_rows(const std::string& head, const char* piece, const char* rest) {
    cat_to(body_, "  ", head,
           "\n    for (i64 i = 0; i < m; ++i) {\n      f32* to = sums + i * row + n;\n", "      ",
           vec_, " x = ", fn("load"), "(to);\n",
           "      for (i64 k = 0; k < depth; ++k)\n        x = ", fn("fma"), "(", fn("splat"),
           "(a[i * a_row + k]), ", loaded(piece, cat("b + k * b_k + n", rest)), ", x);\n      ",
           fn("store"), "(to, x);\n    }\n");
  }

  void kernel() {
    cat_to(body_,
           R"(extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                      void* const* math) {
  (void)math;
  const Shape* s = (const Shape*)buffers[0];
  f32* sums = (f32*)scratch;
  const i64 tiles = (s->m + )",
           tile_rows_ - 1, ") / ", tile_rows_, R"(, size = s->m / tiles, big = s->m % tiles;
  i64 together = 0;
  for (i64 iteration = begin; iteration < end; iteration += together) {
    const i64 batch = iteration / s->iterations, from = iteration % s->iterations,
              first = from * )",
           kColumnsOfAnIteration, R"(;
    together = s->iterations - from < s->together ? s->iterations - from : s->together;
    if (together > end - iteration) together = end - iteration;
    const i64 row = together * )",
           kColumnsOfAnIteration,
           ", columns = s->n - first < row ? s->n - first : row, whole = columns / ", lanes_, " * ",
           lanes_, R"(;
    const element* a = (const element*)buffers[1] + s->a_offset + batch * s->a_batch;
    const element* b = (const element*)buffers[2] + s->b_offset + batch * s->b_batch + first;
    const b8 fresh = !s->bias && s->k >= )",
           kDepth, R"(;
    if (!fresh) __builtin_memset(sums, 0, (u64)(s->m * row) * 4);
    for (i64 i = 0; i < s->m && s->bias; ++i)
      for (i64 n = 0; n < columns; ++n)
        sums[i * row + n] = )",
           widened("((const element*)buffers[4])[s->bias_offset + first + n]", 1), R"(;
    for (i64 k = 0; k < s->k; k += )",
           kDepth, R"() {
      const i64 depth = s->k - k < )",
           kDepth, " ? s->k - k : ", kDepth, R"(;
      const element* panel = b + k * s->b_k;
      f32* to = sums;
)",
           half_.empty() ? "      const f32* rows = a + k;\n      const i64 a_row = s->a_row;\n"
                         : cat("      const i64 a_row = ", kDepth,
                               ";\n      f32 *wide = sums + s->m * s->sums_row, *rows = wide;\n"
                               "      for (i64 i = 0; i < s->m; ++i)\n"
                               "        for (i64 j = 0; j < depth; ++j) wide[i * a_row + j] = ",
                               widened("a[i * s->a_row + k + j]", 1), ";\n"),
           R"(      if (depth < )", kDepth,
           R"() add_rest(rows, a_row, s->m, panel, s->b_k, depth, sums, row, columns);
      for (i64 i = 0; i < tiles && depth == )",
           kDepth, R"(; ++i) {
        const i64 r = size + (i < big);
        switch (r) {
)");
    for (int r = 1; r <= tile_rows_; r++)
      cat_to(body_, "          case ", r, ": add", r,
             "(rows, a_row, panel, s->b_k, to, row, columns, fresh && k == 0); break;\n");
    cat_to(body_, R"(        }
        rows += r * a_row;
        to += r * row;
      }
    }
    result* c = (result*)buffers[3] + s->c_offset + batch * s->c_batch + first;
    for (i64 i = 0; i < s->m; ++i) {
      for (i64 n = 0; n < whole; n += )",
           lanes_, ") ", prelude_.fn("store", result_, lanes_), "(c + i * s->c_row + n, ",
           narrowed(cat(fn("load"), "(sums + i * row + n)"), lanes_), R"();
      for (i64 n = whole; n < columns; ++n) c[i * s->c_row + n] = )",
           narrowed("sums[i * row + n]", 1), R"(;
    }
  }
  return 0;
}
)");
  }

  Prelude prelude_;
  const int lanes_, tile_rows_;
  const std::string half_, element_;  // "bf16", "f16" or ""; what lies in memory
  const std::string result_;          // what is written
  std::string vec_, body_;
};

}  // namespace

int64_t row_most_rows(const Gemm& p) {
  return p.dtype == ir::DType::F32 ? tuning::row_most_rows : tuning::row_most_rows_of_halves;
}

bool is_row_gemm(const Gemm& p, const Machine& target) {
  const bool few =
      p.rows == Gemm::Rows::AsHinted ? p.m.hint() <= row_most_rows(p) : p.rows == Gemm::Rows::Few;
  return few && !p.is_convolution() && !p.packed && p.a_k.is_constant(1) && p.b_n.is_constant(1) &&
         !p.b_k.is_constant(1) && !is_narrow_gemm(p, target);
}

std::string emit_row_gemm(ir::DType dtype, bool to_f32, const Machine& target) {
  return RowEmitter(dtype, to_f32, target).text();
}

std::vector<Size> row_gemm_parameters(const Gemm& p) {
  return {p.m,
          p.n,
          p.channels,
          p.a_batch,
          p.a_row,
          p.b_batch,
          p.b_k,
          p.c_batch,
          p.c_row,
          p.a_offset,
          p.b_offset,
          p.c_offset,
          p.bias_offset,
          p.bias,
          iterations(p),
          most_iterations(p),
          most_iterations(p) * kColumnsOfAnIteration};
}

Size row_gemm_range(const Gemm& p) { return p.batch * iterations(p) * is_at_most(1, p.m); }

// Sums, and a step's widened values of A.
Size row_gemm_scratch_bytes(const Gemm& p) {
  const int64_t wide = p.dtype == ir::DType::F32 ? 0 : kDepth;
  return p.m * (most_iterations(p) * kColumnsOfAnIteration + wide) * 4;
}

}  // namespace oxy::codegen::cpp
