// Arrays in NumPy's file format (numpy.lib.format, version 1 to 3), for tools. bf16, which NumPy
// does not know, is its two-byte void.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/run_plan.h"
#include "support/check.h"
#include "support/lexer.h"

namespace oxy::npy {

struct Name {
  DType dtype;
  const char* text;
};
inline constexpr Name kNames[] = {{DType::U8, "|u1"},  {DType::I8, "|i1"},   {DType::I16, "<i2"},
                                  {DType::I32, "<i4"}, {DType::I64, "<i8"},  {DType::U16, "<u2"},
                                  {DType::U32, "<u4"}, {DType::U64, "<u8"},  {DType::F16, "<f2"},
                                  {DType::F32, "<f4"}, {DType::F64, "<f8"},  {DType::C64, "<c8"},
                                  {DType::B8, "|b1"},  {DType::BF16, "|V2"}, {DType::C128, "<c16"}};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw UserError("cannot write " + path);
}

// The header's dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
inline runtime::TensorMeta parse_header(std::string text) {
  for (char& c : text)
    if (c == '\'') c = '"';
  runtime::TensorMeta m;
  m.dtype = DType::None;
  bool columns = false;
  Lexer lexer(text);
  lexer.expect("{");
  while (!lexer.accept("}")) {
    const std::string key = lexer.expect(TokenKind::String).text;
    lexer.expect(":");
    if (key == "descr") {
      const std::string name = lexer.expect(TokenKind::String).text;
      for (const Name& n : kNames)
        if (name == n.text) m.dtype = n.dtype;
    } else if (key == "fortran_order") {
      columns = lexer.identifier() == "True";
    } else {
      lexer.expect("(");
      while (!lexer.accept(")")) {
        m.sizes.push_back(lexer.integer());
        lexer.accept(",");
      }
    }
    lexer.accept(",");
  }
  m.strides.assign(m.sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = 0; i < m.sizes.size(); i++) {
    const size_t d = columns ? i : m.sizes.size() - 1 - i;
    if (m.sizes[d] < 0) throw UserError("a negative size");
    m.strides[d] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(1, m.sizes[d]), &stride))
      throw UserError("an array of more elements than 64 bits count");
  }
  if (m.dtype == DType::None) throw UserError("an array of a dtype that is not known");
  return m;
}

inline runtime::Array read(const std::string& path) {
  const std::string bytes = read_file(path);
  constexpr std::string_view kMagic("\x93NUMPY", 6);
  if (!std::string_view(bytes).starts_with(kMagic) || bytes.size() < 12)
    throw UserError(path + " is no .npy file");
  const size_t wide = bytes[6] == 1 ? 2 : 4;  // bytes of the header's length
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, wide);
  const size_t data = 8 + wide + length;
  if (data > bytes.size()) throw UserError(path + " ends too early");
  const runtime::TensorMeta meta = parse_header(bytes.substr(8 + wide, length));
  int64_t count = byte_size(meta.dtype);
  for (const int64_t s : meta.sizes)
    if (__builtin_mul_overflow(count, s, &count)) count = -1;
  if (count != static_cast<int64_t>(bytes.size() - data))
    throw UserError(path + " has another length than its header says");
  runtime::Array a = runtime::make_array(meta);
  if (count > 0) std::memcpy(a.memory.data, bytes.data() + data, static_cast<size_t>(count));
  return a;
}

inline void write(const std::string& path, const runtime::Array& a) {
  const auto name = std::ranges::find(kNames, a.meta.dtype, &Name::dtype);
  if (name == std::end(kNames)) throw UserError(cat("NumPy has no ", oxy::name(a.meta.dtype)));
  std::string shape;
  for (const int64_t s : a.meta.sizes) cat_to(shape, s, ", ");
  std::string header =
      cat("{'descr': '", name->text, "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  std::string start("\x93NUMPY\x01\x00", 8);
  start.append(reinterpret_cast<const char*>(&length), 2);
  write_file(path, start + header + runtime::gather(a));
}

}  // namespace oxy::npy
