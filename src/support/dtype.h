// Element types and devices of tensors, as every stage names them. Numbered as torch does, so that
// crossing to torch is a cast.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oxy {

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
bool is_integral(DType d, bool include_bool);
inline bool is_reduced_float(DType d) { return d == DType::F16 || d == DType::BF16; }

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
// Their words in texts, by number; others print as numbers.
inline constexpr std::array<std::string_view, 8> kLayouts = {
    "strided",    "sparse",     "sparse_csr", "mkldnn",
    "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};
inline constexpr std::array<std::string_view, 4> kMemoryFormats = {
    "contiguous", "preserve", "channels_last", "channels_last_3d"};

}  // namespace oxy
