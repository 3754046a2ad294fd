// The emitted text: `addR` (eight values of k for R rows, along the columns), `add` (any number of
// rows and values), `kernel`. A parallel iteration is a group of columns of one batch.
#include "codegen/cpp/gemm.h"

#include <algorithm>

#include "codegen/cpp/prelude.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int kDepth = tuning::row_depth;
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
  explicit RowEmitter(const Machine& t)
      : prelude_(t), lanes_(t.vector_bytes / 4), tile_rows_(tuning::row_tile_rows(t)) {
    vec_ = prelude_.type("f32", lanes_);
  }

  std::string text() {
    // In the order of row_gemm_parameters.
    body_ += R"(struct Shape {
  i64 m, n, k, a_batch, a_row, b_batch, b_k, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias, iterations, together;
};
)";
    for (int r = 1; r <= tile_rows_; r++) add(r);
    add_rest();
    kernel();
    return cat("// Few rows of A times rows of B\n", prelude_.text(), body_);
  }

 private:
  std::string fn(const char* piece) { return prelude_.fn(piece, "f32", lanes_); }

  // addR: sums += a * b for kDepth values of k; `columns` are whole vectors, of which two at a time
  // share what is read of A.
  void add(int rows) {
    cat_to(body_, "static void add", rows,
           "(const f32* a, i64 a_row, const f32* b, i64 b_k, f32* sums, i64 row, i64 columns) {\n"
           "  i64 n = 0;\n  for (; n + ",
           2 * lanes_, " <= columns; n += ", 2 * lanes_, ") {\n");
    step(rows, 2);
    body_ += "  }\n  if (n < columns) {\n";
    step(rows, 1);
    body_ += "  }\n}\n";
  }

  void step(int rows, int vectors) {
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
          write(i, v, cat("x", i, v), cat("sums + ", i, " * row + n + ", v * lanes_));
    };
    each([&](int, int, const std::string& x, const std::string& at) {
      cat_to(body_, "    ", vec_, " ", x, " = ", fn("load"), "(", at, ");\n");
    });
    for (int j = 0; j < kDepth; j++) {
      for (int v = 0; v < vectors; v++)
        cat_to(body_, "    __builtin_prefetch(b + ", j + kDepth, " * b_k + n + ", v * lanes_,
               ", 0, 3);\n    const ", vec_, " w", j, v, " = ", fn("load"), "(b + ", j,
               " * b_k + n + ", v * lanes_, ");\n");
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

  // add_rest: one row and value of k after the other; the last vector may be partial.
  void add_rest() {
    cat_to(body_,
           "static void add_rest(const f32* a, i64 a_row, i64 m, const f32* b, i64 b_k, i64 depth, "
           "f32* sums, i64 row, i64 from, i64 columns) {\n"
           "  for (i64 n = from; n < columns; n += ",
           lanes_,
           ")\n    for (i64 k = 0; k < depth; ++k) {\n"
           "      const i64 count = columns - n < ",
           lanes_, " ? columns - n : ", lanes_,
           ";\n"
           "      const ",
           vec_, " w = ", fn("load_part"),
           "(b + k * b_k + n, count);\n"
           "      for (i64 i = 0; i < m; ++i) {\n        f32* to = sums + i * row + n;\n        ",
           fn("store"), "(to, ", fn("fma"), "(", fn("splat"), "(a[i * a_row + k]), w, ", fn("load"),
           "(to)));\n      }\n    }\n}\n");
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
    const f32* a = (const f32*)buffers[1] + s->a_offset + batch * s->a_batch;
    const f32* b = (const f32*)buffers[2] + s->b_offset + batch * s->b_batch + first;
    for (i64 i = 0; i < s->m; ++i)
      for (i64 n = 0; n < row; ++n)
        sums[i * row + n] =
            s->bias && n < columns ? ((const f32*)buffers[4])[s->bias_offset + first + n] : 0;
    for (i64 k = 0; k < s->k; k += )",
           kDepth, R"() {
      const i64 depth = s->k - k < )",
           kDepth, " ? s->k - k : ", kDepth, R"(;
      const f32 *rows = a + k, *panel = b + k * s->b_k;
      f32* to = sums;
      add_rest(rows, s->a_row, s->m, panel, s->b_k, depth, sums, row, depth < )",
           kDepth, R"( ? 0 : whole, columns);
      for (i64 i = 0; i < tiles && depth == )",
           kDepth, R"(; ++i) {
        const i64 r = size + (i < big);
        switch (r) {
)");
    for (int r = 1; r <= tile_rows_; r++)
      cat_to(body_, "          case ", r, ": add", r,
             "(rows, s->a_row, panel, s->b_k, to, row, whole); break;\n");
    cat_to(body_, R"(        }
        rows += r * s->a_row;
        to += r * row;
      }
    }
    f32* c = (f32*)buffers[3] + s->c_offset + batch * s->c_batch + first;
    for (i64 i = 0; i < s->m; ++i) {
      for (i64 n = 0; n < whole; n += )",
           lanes_, ") ", fn("store"), "(c + i * s->c_row + n, ", fn("load"),
           R"((sums + i * row + n));
      for (i64 n = whole; n < columns; ++n) c[i * s->c_row + n] = sums[i * row + n];
    }
  }
  return 0;
}
)");
  }

  Prelude prelude_;
  const int lanes_, tile_rows_;
  std::string vec_, body_;
};

}  // namespace

bool is_row_gemm(const Gemm& p, const Machine& target) {
  const bool few = p.rows == Gemm::Rows::AsHinted ? p.m.hint() <= tuning::row_most_rows
                                                  : p.rows == Gemm::Rows::Few;
  return few && p.dtype == ir::DType::F32 && !p.is_convolution() && !p.packed &&
         p.a_k.is_constant(1) && p.b_n.is_constant(1) && !p.b_k.is_constant(1) &&
         !is_narrow_gemm(p, target);
}

std::string emit_row_gemm(const Machine& target) { return RowEmitter(target).text(); }

std::vector<Size> row_gemm_parameters(const Gemm& p) {
  return {p.m,           p.n,       p.channels,    p.a_batch,         p.a_row,    p.b_batch,
          p.b_k,         p.c_batch, p.c_row,       p.a_offset,        p.b_offset, p.c_offset,
          p.bias_offset, p.bias,    iterations(p), most_iterations(p)};
}

Size row_gemm_range(const Gemm& p) { return p.batch * iterations(p) * is_at_most(1, p.m); }

Size row_gemm_scratch_bytes(const Gemm& p) {
  return p.m * most_iterations(p) * kColumnsOfAnIteration * 4;
}

}  // namespace oxy::codegen::cpp
