// The prelude of kernel texts: types and small inline functions. A kernel gets what it uses.
//
// A piece is known by its name, element type and lanes: fn("exp", "f32", 8) gives "exp_f32x8". Its
// text is a template:
//   $T    the vector type (f32x8; f32 for one lane)      $t     its element (f32)
//   $i32  the vector of that element, as many lanes      $B     bytes of $T
//   $S    the signed integers as wide as $T (a mask)     $u     the unsigned ones
//   $T8   eight lanes, whatever $T has
//   $N    lanes                                          $host  the machine's vector of $t
//   $IOTA 0, 1, .. N-1                                   $REV   N-1, .. 1, 0
//   $SECOND  every second element of two vectors that overlap by one; $LOWSPREAD, $HIGHSPREAD its
//            lanes in either
//   $LOADS  p[s * 0], p[s * 1], ..; $STORES the same = v[0], = v[1], ..
//   $[table]  the numbers of a table of src/ops, with commas between them
//   $f    the C library's suffix of $t: f for f32        $NAME  the piece's name; $OP its operation
//   @@    the piece's own name
//   @load another piece of this element and lanes; @load.i32 of another element; @div.1 of one
//   lane, @load.8 of eight, @load.16 of as many
// Scalar types (f32, i64, b8) are always there.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cpp/emit.h"

namespace oxy::codegen::cpp {

// A piece of the library. The first row that fits is taken.
struct Piece {
  std::string_view name;
  std::string_view element;  // "" any; "4" any of 4 bytes; "f" f32 and f64
  int lanes;                 // 0 any, 1 one, 2 several, more: so many
  int vector_bytes;          // 0 any; else vectors of so many bytes, and the target has them
  std::string_view text;
  std::string_view op = "";  // what pieces of one text differ in
};

class Prelude {
 public:
  explicit Prelude(const Machine& target) : target_(target) {}
  // The name of a type, defined from now on.
  std::string type(std::string_view element, int lanes);
  // The name of a function, defined from now on.
  std::string fn(std::string_view piece, std::string_view element, int lanes);
  // What has been asked for, in an order that compiles.
  std::string text() const;
  const Machine& target() const { return target_; }
  // A text that defines such a function for other texts.
  std::string definition(std::string_view piece, std::string_view element, int lanes);

 private:
  // A declaration where the function is compiled with the library, else its definition with all
  // that it is made of.
  std::string prebuilt_or_own(const Piece& piece, std::string_view element, int lanes);
  std::string expand(const Piece& piece, std::string_view text, std::string_view element,
                     int lanes);

  Machine target_;
  std::set<std::string> types_, functions_;
  std::string type_text_, function_text_;
};

// Large functions that many texts have, and which are compiled with the library
// (jit/prebuilt_functions.h): a text for each that defines it.
struct PrebuiltText {
  std::string name, text;
};
std::vector<PrebuiltText> prebuilt_functions(const Machine& target);

std::span<const Piece> memory_pieces();
std::span<const Piece> operator_pieces();
std::span<const Piece> avx512_math_pieces();
std::span<const Piece> math_pieces();
std::span<const Piece> f64_math_pieces();
std::span<const Piece> iterated_pieces();
// The table that a piece names as $[name].
std::span<const double> piece_numbers(std::string_view name);

}  // namespace oxy::codegen::cpp
