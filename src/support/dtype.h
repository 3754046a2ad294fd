// Element types and devices of tensors, as every stage names them, and the data that all texts
// write alike. Numbered as torch does, so that crossing to torch is a cast.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace oxy {

class Lexer;

// c10::ScalarType.
enum class DType : int8_t {
#define DTYPE(e, num, text, torch, bytes) e = num,
#include "support/dtype.def"
#undef DTYPE
  None = -1
};

std::string_view name(DType d);                            // "f32"
std::string_view torch_name(DType d);                      // "float32"
std::optional<DType> dtype_from_name(std::string_view s);  // either name
bool is_dtype(int8_t number);                              // that of an enumerator, None apart
int byte_size(DType d);
bool is_floating(DType d);  // f16 bf16 f32 f64 and the f8 kinds
bool is_complex(DType d);
DType part_of(DType d);  // what a complex number is two of; of others themselves
bool is_integral(DType d, bool include_bool);
inline bool is_reduced_float(DType d) { return d == DType::F16 || d == DType::BF16; }
inline bool is_f8(DType d) { return d == DType::F8E5M2 || d == DType::F8E4M3; }

enum class DeviceKind : int8_t { CPU = 0, CUDA = 1, Meta = 14 };  // c10::DeviceType

struct Device {
  int8_t kind = 0;  // a c10::DeviceType
  int8_t index = -1;
  friend bool operator==(const Device&, const Device&) = default;
  bool is_cpu() const { return kind == 0; }
};
std::string print(Device d);  // "cpu", "cuda:0"; "device9" for kinds without a name here
// The kind of a device from the word that print(Device) begins with.
std::optional<int8_t> device_kind_from_word(std::string_view s);

struct Layout {
  int8_t value = 0;  // a c10::Layout
};
struct MemoryFormat {
  int8_t value = 0;  // a c10::MemoryFormat
};

// None, True, 2.0, inf, complex(1.0, 2.0), "text", f32, cuda:0, layout(strided),
// memory_format(channels_last): words of torch's, or numbers where we have none.
using Literal = std::variant<std::monostate, bool, double, std::complex<double>, std::string, DType,
                             Device, Layout, MemoryFormat>;
std::string print_literal(const Literal& l);
// Each takes what it gives; nothing where the text goes on with something else.
std::optional<Literal> read_literal(Lexer& lexer);
std::optional<DType> read_dtype(Lexer& lexer);
std::optional<Device> read_device(Lexer& lexer);

}  // namespace oxy
