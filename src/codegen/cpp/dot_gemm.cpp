// The emitted text: `dotR` (R rows and four columns along k), `sums` (lanes of four vectors),
// `kernel`. A parallel iteration is a group of columns of one batch. Of rows that the second-level
// cache does not hold, it takes a piece at a time.
#include "codegen/cpp/gemm.h"

#include "codegen/cpp/prelude.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int64_t kColumnsOfAnIteration = tuning::dot_columns_of_an_iteration;
constexpr int kColumns = tuning::dot_columns;
constexpr int64_t kWholeSteps = 64;  // values of k: whole vectors of each dtype

Size iterations(const Gemm& p) { return ceil_div(p.n, kColumnsOfAnIteration); }

// The values of k at a time.
Size depth_of(const Gemm& p, const Machine& target) {
  const Size fits =
      Size(tuning::prefetch_row_bytes(target) * kColumns / ir::byte_size(p.dtype)) / max(p.m, 1);
  return ceil_div(max(fits, tuning::gemm_least_depth), kWholeSteps) * kWholeSteps;
}

// Elements of a column whose next ones are not prefetched: the cache does not hold so many.
int64_t long_column(const Gemm& p, const Machine& target) {
  return tuning::prefetch_row_bytes(target) / kColumns / ir::byte_size(p.dtype);
}

class DotEmitter {
 public:
  DotEmitter(ir::DType dtype, bool to_f32, const Machine& t)
      : prelude_(t),
        lanes_(t.vector_bytes / 4),
        most_rows_(lanes_ == 16 ? 6 : 3),
        pairs_(multiplies_pairs(dtype, t)),
        elements_(pairs_ ? 2 * lanes_ : lanes_),
        half_(dtype == ir::DType::F32 ? "" : ir::name(dtype)),
        element_(half_.empty() ? "f32" : "u16"),
        result_(to_f32 ? "f32" : element_),
        ahead_(tuning::prefetch_ahead_bytes(t) / (half_.empty() ? 4 : 2)) {
    vec_ = prelude_.type("f32", lanes_);
    multiply_add_ = prelude_.fn(pairs_ ? "dot_bf16" : "fma", "f32", lanes_);
  }

  std::string text() {
    shape();
    sums();
    for (int r = 1; r <= most_rows_; r++) dot(r);
    kernel();
    return cat("// Few rows of A times columns of B", half_.empty() ? "" : " in ", half_,
               half_.empty() || result_ != "f32" ? "\n" : " to f32\n", prelude_.text(), "typedef ",
               element_, " element;\ntypedef ", result_, " result;\n", body_);
  }

 private:
  // In the order of dot_gemm_parameters.
  void shape() {
    body_ += R"(struct Shape {
  i64 m, n, k, a_batch, a_row, b_batch, b_n, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias, iterations, depth, long_column;
};
)";
  }

  // Elements as f32, or pairs of bf16; `piece` is load or load_part.
  std::string loaded(const char* piece, const std::string& arguments) {
    const std::string bits = cat(prelude_.fn(piece, element_, elements_), "(", arguments, ")");
    if (pairs_) return cat("(", prelude_.type("u32", lanes_), ")", bits);
    return half_.empty() ? bits
                         : cat(prelude_.fn(cat("f32_of_", half_), "u16", lanes_), "(", bits, ")");
  }

  // The sums of four vectors' lanes.
  void sums() {
    const std::string quarter = prelude_.type("f32", 4);
    cat_to(body_, "OXY_INLINE ", quarter, " sums(", vec_, " a, ", vec_, " b, ", vec_, " c, ", vec_,
           " d) {\n");
    for (const char* x : {"a", "b", "c", "d"}) {
      std::string value = x;
      for (int lanes = lanes_; lanes > 4; lanes /= 2) {
        const std::string half = prelude_.type("f32", lanes / 2), sum = cat(x, lanes / 2);
        cat_to(body_, "  const ", half, " ", sum, " = __builtin_shufflevector(", value, ", ",
               value);
        for (int i = 0; i < lanes / 2; i++) cat_to(body_, ", ", i);
        cat_to(body_, ") + __builtin_shufflevector(", value, ", ", value);
        for (int i = lanes / 2; i < lanes; i++) cat_to(body_, ", ", i);
        body_ += ");\n";
        value = sum;
      }
    }
    cat_to(body_, "  const ", quarter,
           " p = __builtin_shufflevector(a4, b4, 0, 4, 1, 5) + __builtin_shufflevector(a4, b4, 2, "
           "6, 3, 7),\n",
           "    q = __builtin_shufflevector(c4, d4, 0, 4, 1, 5) + __builtin_shufflevector(c4, d4, "
           "2, 6, 3, 7);\n",
           "  return __builtin_shufflevector(p, q, 0, 1, 4, 5) + __builtin_shufflevector(p, q, 2, "
           "3, 6, 7);\n}\n");
  }

  void step(int rows, const char* piece, const char* rest) {
    const std::string factor = pairs_ ? prelude_.type("u32", lanes_) : vec_;
    for (int i = 0; i < rows; i++)
      cat_to(body_, "    const ", factor, " r", i, " = ",
             loaded(piece, cat("a + ", i, " * s->a_row + k", rest)), ";\n");
    for (int j = 0; j < kColumns; j++) {
      cat_to(body_, "    const ", factor, " w", j, " = ", loaded(piece, cat("b", j, " + k", rest)),
             ";\n");
      for (int i = 0; i < rows; i++)
        cat_to(body_, "    x", i, j, " = ", multiply_add_, "(r", i, ", w", j, ", x", i, j, ");\n");
    }
  }

  // dotR: `columns` of four columns, `depth` values of k, on top of `start` (its rows `start_row`
  // apart), to `partial` where there is more to come, else to `c`. `ahead`: whether the columns
  // behind are prefetched. What lies that far ahead of a long column would have left the cache when
  // it is used.
  void dot(int rows) {
    const std::string store = prelude_.fn("store", "f32", 4), load = prelude_.fn("load", "f32", 4);
    cat_to(body_, "static void dot", rows,
           "(const Shape* s, const element* a, const element* b0, i64 columns, i64 depth, "
           "const f32* start, i64 start_row, f32* partial, result* c, b8 ahead) {\n");
    for (int j = 1; j < kColumns; j++)
      cat_to(body_, "  const element* b", j, " = b0 + (columns > ", j, " ? ", j,
             " * s->b_n : 0);\n");
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < kColumns; j++) cat_to(body_, "  ", vec_, " x", i, j, " = {};\n");
    cat_to(body_, "  const i64 next = s->k > s->long_column ? ", ahead_, " : ahead ? ", kColumns,
           " * s->b_n : 0;\n  i64 k = 0;\n  for (; k + ", elements_, " <= depth; k += ", elements_,
           ") {\n");
    for (int j = 0; j < kColumns; j++)
      cat_to(body_, "    __builtin_prefetch(b", j, " + next + k, 0, 3);\n");
    step(rows, "load", "");
    body_ += "  }\n  if (k < depth) {\n";
    step(rows, "load_part", ", depth - k");
    body_ += "  }\n";
    for (int i = 0; i < rows; i++) {
      cat_to(body_, "  {\n    f32 own[4], *out = partial ? partial + ", i, " * ",
             kColumnsOfAnIteration, " : own;\n    ", store, "(out, sums(x", i, "0, x", i, "1, x", i,
             "2, x", i, "3) + ", load, "(start + ", i,
             " * start_row));\n    for (i64 j = 0; j < columns && !partial; ++j) c[", i,
             " * s->c_row + j] = ", narrowed("out[j]"), ";\n  }\n");
    }
    body_ += "}\n";
  }

  std::string narrowed(const std::string& value) {
    if (result_ == "f32") return value;
    return cat(prelude_.fn(cat(half_, "_of_f32"), "f32", 1), "(", value, ")");
  }

  void kernel() {
    const std::string bias = "((const element*)buffers[4])[s->bias_offset + n + j]";
    const std::string widened =
        half_.empty() ? bias : cat(prelude_.fn(cat("f32_of_", half_), "u16", 1), "(", bias, ")");
    cat_to(body_,
           R"(extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                      void* const* math) {
  (void)math;
  const Shape* s = (const Shape*)buffers[0];
  const i64 tiles = (s->m + )",
           most_rows_ - 1, ") / ", most_rows_, R"(, size = s->m / tiles, big = s->m % tiles;
  for (i64 iteration = begin; iteration < end; ++iteration) {
    const i64 batch = iteration / s->iterations, first = iteration % s->iterations * )",
           kColumnsOfAnIteration, R"(;
    const i64 last = first + )",
           kColumnsOfAnIteration, " < s->n ? first + ", kColumnsOfAnIteration, R"( : s->n;
    const element* B = (const element*)buffers[2] + s->b_offset + batch * s->b_batch;
    i64 k = 0;
    do {
      const i64 end = k + s->depth < s->k ? k + s->depth : s->k;
      for (i64 n = first; n < last; n += )",
           kColumns, R"() {
        const i64 columns = last - n < )",
           kColumns, " ? last - n : ", kColumns, R"(;
        f32 bias[4] = {}, *sums = (f32*)scratch + (n - first), *start = k ? sums : bias;
        const i64 start_row = k ? )",
           kColumnsOfAnIteration, R"( : 0;
        if (s->bias && !k)
          for (i64 j = 0; j < columns; ++j) bias[j] = )",
           widened, R"(;
        const element* a = (const element*)buffers[1] + s->a_offset + batch * s->a_batch + k;
        const element* b = B + n * s->b_n + k;
        result* c = (result*)buffers[3] + s->c_offset + batch * s->c_batch + n;
        for (i64 i = 0; i < tiles; ++i) {
          const i64 r = size + (i < big);
          const b8 ahead = i == 0 && n + )",
           2 * kColumns, R"( <= s->n;
          f32* partial = end < s->k ? sums : 0;
          switch (r) {
)");
    for (int r = 1; r <= most_rows_; r++)
      cat_to(body_, "            case ", r, ": dot", r,
             "(s, a, b, columns, end - k, start, start_row, partial, c, ahead); break;\n");
    cat_to(body_, R"(          }
          a += r * s->a_row;
          c += r * s->c_row;
          sums += r * )",
           kColumnsOfAnIteration, R"(;
          start += r * start_row;
        }
      }
      k = end;
    } while (k < s->k);
  }
  return 0;
}
)");
  }

  Prelude prelude_;
  const int lanes_, most_rows_;
  const bool pairs_;                  // of bf16 along k
  const int elements_;                // of a step
  const std::string half_, element_;  // "bf16", "f16" or ""; what lies in memory
  const std::string result_;          // what is written
  const int64_t ahead_;               // elements that are prefetched of a long column itself
  std::string vec_, multiply_add_, body_;
};

}  // namespace

// Each row adds up lanes once a column, and packing B takes longer the longer a column is. Tiles
// gain from the first row that reading B does not hide, and take as long for one row as for
// sixteen.
int64_t dot_most_rows(const Gemm& p, const Machine& target) {
  const int64_t k = p.channels.hint();
  if (multiplies_tiles(p.dtype, target)) {
    int64_t rows = 1;
    while (rows < tuning::gemm_few_rows &&
           (rows + 1) * (rows + 1) * tuning::dot_depth_of_tiles <= k)
      ++rows;
    return rows;
  }
  return tuning::dot_rows(p.dtype != ir::DType::F32, k);
}

bool is_dot_gemm(const Gemm& p, const Machine& target) {
  const int64_t most = dot_most_rows(p, target);
  const bool few =
      p.rows == Gemm::Rows::AsHinted ? p.m.hint() <= most : p.rows == Gemm::Rows::Few && most > 0;
  return few && !p.is_convolution() && !p.packed && p.a_k.is_constant(1) && p.b_k.is_constant(1);
}

std::string emit_dot_gemm(ir::DType dtype, bool to_f32, const Machine& target) {
  return DotEmitter(dtype, to_f32, target).text();
}

std::vector<Size> dot_gemm_parameters(const Gemm& p, const Machine& target) {
  return {p.m,
          p.n,
          p.channels,
          p.a_batch,
          p.a_row,
          p.b_batch,
          p.b_n,
          p.c_batch,
          p.c_row,
          p.a_offset,
          p.b_offset,
          p.c_offset,
          p.bias_offset,
          p.bias,
          iterations(p),
          depth_of(p, target),
          long_column(p, target)};
}

Size dot_gemm_scratch_bytes(const Gemm& p, const Machine& target) {
  return is_less(depth_of(p, target), p.channels) * p.m * (kColumnsOfAnIteration * 4);
}

Size dot_gemm_range(const Gemm& p) { return p.batch * iterations(p) * is_at_most(1, p.m); }

}  // namespace oxy::codegen::cpp
