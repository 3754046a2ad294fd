#include "codegen/cpp/panel_text.h"

#include "support/check.h"

namespace oxy::codegen::cpp {

std::vector<int64_t> tile_sizes(std::initializer_list<int64_t> rows, int64_t max_rows) {
  std::vector<int64_t> sizes;
  for (int64_t r : rows) {
    Tiles t(r, max_rows);
    if (t.big) sizes.push_back(t.size + 1);
    sizes.push_back(t.size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

PanelWriter::PanelWriter(Prelude& prelude, int64_t stride_k, int64_t stride_n, int64_t depth)
    : prelude_(prelude), stride_k_(stride_k), stride_n_(stride_n), depth_(depth) {
  OXY_CHECK(prelude.target().vector_bytes >= 32, "products need vectors");
  lanes_ = prelude.target().vector_bytes / 4;
  vec_ = prelude.type("f32", lanes_);
  load_ = prelude.fn("load", "f32", lanes_);
  store_ = prelude.fn("store", "f32", lanes_);
  fma_ = prelude.fn("fma", "f32", lanes_);
  splat_ = prelude.fn("splat", "f32", lanes_);
}

void PanelWriter::pack(std::string& out) {
  const int64_t w = width();
  if (stride_n_ == 1) {
    cat_to(out, "static void pack(const f32* b, f32* to, i64 kc, i64 columns) {\n",
           "  if (columns == ", w, ") {\n    for (i64 k = 0; k < kc; ++k) {\n",
           "      ", store_, "(to + k * ", w, ", ", load_, "(b + k * ", stride_k_, "));\n",
           "      ", store_, "(to + k * ", w, " + ", lanes_, ", ", load_, "(b + k * ", stride_k_, " + ",
           lanes_, "));\n    }\n    return;\n  }\n",
           "  for (i64 k = 0; k < kc; ++k)\n    for (i64 n = 0; n < ", w, "; ++n) to[k * ", w,
           " + n] = n < columns ? b[k * ", stride_k_, " + n] : 0;\n}\n");
    return;
  }
  transpose8(out);
  cat_to(out, "static void pack(const f32* b, f32* to, i64 kc, i64 columns) {\n  i64 k = 0;\n",
         "  if (columns == ", w, ")\n    for (; k + 8 <= kc; k += 8)\n      for (i64 n = 0; n < ", w,
         "; n += 8) transpose8(b + n * ", stride_n_, " + k, to + k * ", w, " + n);\n",
         "  for (; k < kc; ++k)\n    for (i64 n = 0; n < ", w, "; ++n) to[k * ", w,
         " + n] = n < columns ? b[n * ", stride_n_, " + k] : 0;\n}\n");
}

// 8 rows of 8 values, transposed in three rounds of shuffles.
void PanelWriter::transpose8(std::string& out) {
  const std::string v8 = prelude_.type("f32", 8), load = prelude_.fn("load", "f32", 8),
                    store = prelude_.fn("store", "f32", 8);
  const std::string r2 = cat(v8, " ");
  cat_to(out, "OXY_INLINE void transpose8(const f32* b, f32* to) {\n");
  for (int i = 0; i < 8; i++)
    cat_to(out, "  const ", r2, "r", i, " = ", load, "(b + ", i, " * ", stride_n_, "L);\n");
  auto shuffle = [&](const std::string& to, const std::string& a, const std::string& b, const char* order) {
    cat_to(out, "  const ", r2, to, " = __builtin_shufflevector(", a, ", ", b, ", ", order, ");\n");
  };
  for (int i = 0; i < 4; i++) {
    std::string a = cat("r", 2 * i), b = cat("r", 2 * i + 1);
    shuffle(cat("s", 2 * i), a, b, "0, 8, 1, 9, 4, 12, 5, 13");
    shuffle(cat("s", 2 * i + 1), a, b, "2, 10, 3, 11, 6, 14, 7, 15");
  }
  for (int half = 0; half < 2; half++) {
    for (int i = 0; i < 2; i++) {
      std::string a = cat("s", 4 * half + i), b = cat("s", 4 * half + 2 + i);
      shuffle(cat("t", 4 * half + 2 * i), a, b, "0, 1, 8, 9, 4, 5, 12, 13");
      shuffle(cat("t", 4 * half + 2 * i + 1), a, b, "2, 3, 10, 11, 6, 7, 14, 15");
    }
  }
  for (int i = 0; i < 4; i++) {
    std::string a = cat("t", i), b = cat("t", 4 + i);
    cat_to(out, "  ", store, "(to + ", i * width(), ", __builtin_shufflevector(", a, ", ", b,
           ", 0, 1, 2, 3, 8, 9, 10, 11));\n");
    cat_to(out, "  ", store, "(to + ", (i + 4) * width(), ", __builtin_shufflevector(", a, ", ", b,
           ", 4, 5, 6, 7, 12, 13, 14, 15));\n");
  }
  out += "}\n";
}

int64_t PanelWriter::prefetch_lines() const {
  return stride_n_ == 1 ? depth_ * ceil_div(width(), 16) : width() * ceil_div(depth_, 16);
}

std::string PanelWriter::prefetch_offset() const {
  if (stride_n_ == 1) {
    int64_t lines_a_row = ceil_div(width(), 16);
    return cat("line / ", lines_a_row, " * ", stride_k_, "L + line % ", lines_a_row, " * 16");
  }
  return cat("line % ", width(), " * ", stride_n_, "L + line / ", width(), " * 16");
}

void PanelWriter::begin_tile(std::string& out, int64_t rows) {
  cat_to(out, "  ", vec_);
  for (int64_t i = 0; i < rows; i++) cat_to(out, i ? ", " : " ", "x", i, ", y", i);
  out += ";\n  if (start) {\n";
  for (int64_t i = 0; i < rows; i++)
    cat_to(out, "    x", i, " = ", load_, "(start);\n    y", i, " = ", load_, "(start + ", lanes_, ");\n");
  out += "  } else {\n";
  for (int64_t i = 0; i < rows; i++)
    cat_to(out, "    x", i, " = ", load_, "(c + ", i, " * c_row);\n    y", i, " = ", load_, "(c + ", i, " * c_row + ",
           lanes_, ");\n");
  out += "  }\n";
}

void PanelWriter::add_to_tile(std::string& out, int64_t rows, const std::string& panel, const std::string& a,
                              const char* indent) {
  cat_to(out, indent, "const ", vec_, " p = ", load_, "(", panel, ");\n", indent, "const ", vec_, " q = ", load_, "(",
         panel, " + ", lanes_, ");\n");
  for (int64_t i = 0; i < rows; i++) {
    std::string value = a;
    for (size_t at; (at = value.find('#')) != std::string::npos;) value.replace(at, 1, cat(i));
    cat_to(out, indent, "const ", vec_, " v", i, " = ", splat_, "(", value, ");\n", indent, "x", i, " = ", fma_, "(v", i,
           ", p, x", i, ");\n", indent, "y", i, " = ", fma_, "(v", i, ", q, y", i, ");\n");
  }
}

void PanelWriter::end_tile(std::string& out, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    cat_to(out, "  ", store_, "(c + ", i, " * c_row, x", i, ");\n  ", store_, "(c + ", i, " * c_row + ", lanes_, ", y", i,
           ");\n");
}

}  // namespace oxy::codegen::cpp
