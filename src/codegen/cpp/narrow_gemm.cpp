// The emitted text: `pack` (rows of B, a vector each), `tileR` (R rows of A times those), `tiles`
// (any number of rows), `kernel`. A parallel iteration is a block of rows of one batch. Halves are
// widened: rows of A a piece at a time, which stays in the first-level cache.
#include "codegen/cpp/gemm.h"

#include "codegen/cpp/prelude.h"
#include "ops/contraction.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int kNarrowRows = tuning::narrow_tile_rows, kStepsOfK = tuning::gemm_steps;
constexpr int64_t kPanelDepth = tuning::narrow_depth,
                  kBlockRows = tuning::narrow_rows_of_an_iteration;
// Of A that one address reaches: its own, a row behind it and two.
constexpr int kRowsOfAnAddress = 3;
constexpr int64_t kPiece = tuning::narrow_piece;  // values of A that are widened at a time
static_assert(kPiece >= 16 * kPanelDepth);        // and all of B

class NarrowEmitter {
 public:
  NarrowEmitter(ir::DType dtype, bool to_f32, const Machine& t)
      : prelude_(t),
        lanes_(t.vector_bytes / 4),
        half_(dtype == ir::DType::BF16  ? "bf16"
              : dtype == ir::DType::F16 ? "f16"
                                        : ""),
        element_(half_.empty() ? "f32" : "u16"),
        result_(to_f32 ? "f32" : element_) {
    vec_ = prelude_.type("f32", lanes_);
  }

  std::string text() {
    // In the order of narrow_gemm_parameters.
    body_ += R"(struct Shape {
  i64 m, n, k, a_batch, a_row, b_batch, b_k, b_n, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias, iterations;
};
)";
    if (!half_.empty()) widen();
    pack();
    for (int r = 1; r <= kNarrowRows; r++) tile(r);
    tiles();
    kernel();
    return cat("// Many rows of A times a vector of columns\n", prelude_.text(), body_);
  }

 private:
  std::string fn(const char* piece) { return prelude_.fn(piece, "f32", lanes_); }

  // The f32 of what is in memory.
  std::string widened(const std::string& value, int lanes) {
    return half_.empty() ? value
                         : cat(prelude_.fn(cat("f32_of_", half_), "u16", lanes), '(', value, ')');
  }
  std::string loaded(const char* piece, const std::string& args) {
    return widened(cat(prelude_.fn(piece, element_, lanes_), '(', args, ')'), lanes_);
  }

  // Where B is contiguous along k, its rows of `wide` (of f32: as they lie) are transposed.
  void pack() {
    const bool half = !half_.empty();
    cat_to(body_, "static void pack(const Shape* s, const ", element_, "* b, i64 count, f32* panel",
           half ? ", f32* wide" : "", R"() {
  if (s->b_n == 1) {
    for (i64 k = 0; k < count; ++k) )",
           fn("store"), "(panel + k * ", lanes_, ", ", loaded("load_part", "b + k * s->b_k, s->n"),
           R"();
    return;
  }
  if (s->n < )",
           lanes_, ") for (i64 k = 0; k < count; ++k) ", fn("store"), "(panel + k * ", lanes_,
           ", (", vec_, "){});\n  if (s->b_k == 1) {\n    ",
           half ? "widen(b, s->b_n, s->n, count, wide);\n    " : "", fn("transpose"), "(panel, ",
           lanes_, ", ", half ? "wide, count" : "b, s->b_n", R"(, count, s->n);
    return;
  }
  for (i64 n = 0; n < s->n; ++n)
    for (i64 k = 0; k < count; ++k) panel[k * )",
           lanes_, " + n] = ", widened("b[k * s->b_k + n * s->b_n]", 1), ";\n}\n");
  }

  // Rows of `count` values that follow each other are one.
  void widen() {
    cat_to(body_, R"(static void widen(const u16* a, i64 row, i64 rows, i64 count, f32* to) {
  const i64 run = row == count ? rows * count : count;
  for (i64 done = 0; done < rows * count; done += run, a += row) {
    i64 k = 0;
    for (; k + )",
           lanes_, " <= run; k += ", lanes_, ") ", fn("store"), "(to + done + k, ",
           loaded("load", "a + k"), ");\n    if (k < run) ", fn("store_part"), "(to + done + k, ",
           loaded("load_part", "a + k, run - k"), ", run - k);\n  }\n}\n");
  }

  // Sums of a row: few rows wait for each other's, unless values of k have their own.
  static int sums_of(int rows) { return rows > 6 ? 1 : rows > 3 ? 2 : 4; }

  void step(int rows, int k) {
    const int sum = k % sums_of(rows);
    cat_to(body_, "      const ", vec_, " p", k, " = ", fn("load"), "(panel + ", k * lanes_,
           ");\n");
    for (int i = 0; i < rows; i++)
      cat_to(body_, "      x", i, sum, " = ", fn("fma"), "(", fn("splat"), "(a",
             i / kRowsOfAnAddress, "[", i % kRowsOfAnAddress, " * row + ", k, "]), p", k, ", x", i,
             sum, ");\n");
  }

  // tileR: the sums begin with `start`, or, where that is null, with c.
  void tile(int rows) {
    const int addresses = (rows + kRowsOfAnAddress - 1) / kRowsOfAnAddress;
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++) write(i, cat("c + ", i, " * c_row"));
    };
    auto steps = [&](int count) {
      for (int k = 0; k < count; k++) step(rows, k);
      for (int i = 0; i < addresses; i++) cat_to(body_, "    a", i, " += ", count, ";\n");
      cat_to(body_, "    panel += ", count * lanes_, ";\n  }\n");
    };
    cat_to(body_, "static __attribute__((noinline)) void tile", rows,
           "(const f32* a0, i64 row, const f32* panel, i64 count, const f32* start, ", result_,
           "* c, i64 c_row, i64 columns) {\n");
    for (int i = 1; i < addresses; i++)
      cat_to(body_, "  const f32* a", i, " = a0 + ", i * kRowsOfAnAddress, " * row;\n");
    each([&](int i, const std::string& at) {
      const std::string before = cat(fn("load_part"), '(', at, ", columns)");
      cat_to(body_, "  ", vec_, " x", i, "0 = ", half_.empty() ? "start ? " : "", fn("load"),
             "(start)", half_.empty() ? cat(" : ", before) : "", ";\n");
      for (int sum = 1; sum < sums_of(rows); sum++)
        cat_to(body_, "  ", vec_, " x", i, sum, " = {};\n");
    });
    // Where rows follow each other, those of the next tile; else what is read anyway.
    const int ahead = rows * kStepsOfK;
    cat_to(body_, "  const f32* ahead = a0 + (count == row ? ", rows,
           " * row : 0);\n  for (; count >= ", kStepsOfK, "; count -= ", kStepsOfK, ") {\n");
    for (int i = 0; i < ahead; i += 16)
      cat_to(body_, "    __builtin_prefetch(ahead + ", i, ", 0, 3);\n");
    cat_to(body_, "    ahead += ", ahead, ";\n");
    steps(kStepsOfK);
    body_ += "  for (; count > 0; --count) {\n";
    steps(1);
    each([&](int i, const std::string& at) {
      std::string sum = cat("x", i, "0");
      for (int j = 1; j < sums_of(rows); j++) cat_to(sum, " + x", i, j);
      if (result_ != "f32")
        sum = cat(prelude_.fn(cat(half_, "_of_f32"), "f32", lanes_), '(', sum, ')');
      cat_to(body_, "  ", prelude_.fn("store_part", result_, lanes_), "(", at, ", ", sum,
             ", columns);\n");
    });
    body_ += "}\n";
  }

  void tiles() {
    cat_to(body_, "static void tiles(const Shape* s, const f32* a, i64 row, i64 m, ",
           "const f32* panel, i64 count, const f32* start, ", result_, R"(* c) {
  const i64 tiles = (m + )",
           kNarrowRows - 1, ") / ", kNarrowRows, R"(, size = m / tiles, big = m % tiles;
  for (i64 i = 0; i < tiles; ++i) {
    const i64 r = size + (i < big);
    switch (r) {
)");
    for (int r = 1; r <= kNarrowRows; r++)
      cat_to(body_, "      case ", r, ": tile", r,
             "(a, row, panel, count, start, c, s->c_row, s->n); break;\n");
    body_ += "    }\n    a += r * row;\n    c += r * s->c_row;\n  }\n}\n";
  }

  void kernel() {
    cat_to(
        body_,
        R"(extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                      void* const* math) {
  (void)math;
  const Shape* s = (const Shape*)buffers[0];
  f32 *start = (f32*)scratch, *panel = start + )",
        lanes_, R"(;
  for (i64 n = 0; n < )",
        lanes_, "; ++n)\n    start[n] = s->bias && n < s->n ? ",
        widened(cat("((const ", element_, "*)buffers[4])[s->bias_offset + n]"), 1), R"( : 0;
  i64 packed = -1;
  for (i64 iteration = begin; iteration < end; ++iteration) {
    const i64 batch = iteration / s->iterations, first = iteration % s->iterations * )",
        kBlockRows, ";\n    const i64 m = s->m - first < ", kBlockRows,
        " ? s->m - first : ", kBlockRows, ";\n    const ", element_, " *A = (const ", element_,
        "*)buffers[1] + s->a_offset + batch * s->a_batch + first * s->a_row,\n      *B = (const ",
        element_, "*)buffers[2] + s->b_offset + batch * s->b_batch;\n    ", result_, "* C = (",
        result_, "*)buffers[3] + s->c_offset + batch * s->c_batch + first * s->c_row;\n");
    half_.empty() ? panels() : pieces();
    body_ += "  }\n  return 0;\n}\n";
  }

  void panels() {
    cat_to(body_, "    const b8 in_place = s->b_n == 1 && s->n == ", lanes_,
           " && s->b_k == ", lanes_, ";\n    const i64 most = in_place && m <= ", kNarrowRows,
           " ? s->k : ", kPanelDepth,
           R"(;
    for (i64 k = 0; k < s->k; k += most) {
      const i64 count = s->k - k < most ? s->k - k : most;
      if (packed != batch && !in_place) pack(s, B + k * s->b_k, count, panel);
      const f32* rows = in_place ? B + k * s->b_k : panel;
      tiles(s, A + k, s->a_row, m, rows, count, k ? (const f32*)0 : start, C);
    }
    packed = s->k <= )",
           kPanelDepth, " ? batch : -1;\n");
  }

  void pieces() {
    cat_to(body_, "    f32* wide = panel + s->k * ", lanes_, R"(;
    if (packed != batch) pack(s, B, s->k, panel, wide);
    packed = batch;
)",
           "    const i64 most = ", kPiece, R"( / s->k;
    for (i64 i = 0; i < m; i += most) {
      const i64 rows = m - i < most ? m - i : most;
      widen(A + i * s->a_row, s->a_row, rows, s->k, wide);
      tiles(s, wide, s->k, rows, panel, s->k, start, C + i * s->c_row);
    }
)");
  }

  Prelude prelude_;
  const int lanes_;
  const std::string half_;     // "bf16", "f16"; empty: f32
  const std::string element_;  // of A, B and the bias, in memory
  const std::string result_;   // of C
  std::string vec_, body_;
};

Size blocks_of_rows(const Gemm& p) { return ceil_div(p.m, kBlockRows); }

}  // namespace

bool is_narrow_gemm(const Gemm& p, const Machine& target) {
  const auto known = [](const Size& s) {
    return s.is_constant() ? std::optional(s.hint()) : std::nullopt;
  };
  return ops::is_narrow(p.dtype, known(p.n), known(p.channels), target) && !p.is_convolution() &&
         !p.packed && p.a_k.is_constant(1) && !is_dot_gemm(p, target);
}

std::string emit_narrow_gemm(ir::DType dtype, bool to_f32, const Machine& target) {
  return NarrowEmitter(dtype, to_f32, target).text();
}

std::vector<Size> narrow_gemm_parameters(const Gemm& p) {
  return {p.m,        p.n,           p.channels, p.a_batch,        p.a_row,    p.b_batch,
          p.b_k,      p.b_n,         p.c_batch,  p.c_row,          p.a_offset, p.b_offset,
          p.c_offset, p.bias_offset, p.bias,     blocks_of_rows(p)};
}

Size narrow_gemm_range(const Gemm& p) { return p.batch * blocks_of_rows(p); }

Size narrow_gemm_scratch_bytes(const Gemm& p, const Machine& target) {
  const Size panel = (min(p.channels, Size(kPanelDepth)) + 1) * target.vector_bytes;
  return p.dtype == ir::DType::F32 ? panel : panel + Size(kPiece * 4);
}

}  // namespace oxy::codegen::cpp
