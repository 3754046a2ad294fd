// Names and properties of dtypes and devices.
#include "support/dtype.h"

#include <array>
#include <charconv>

#include "support/check.h"

namespace oxy {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::string_view torch_name;
  int bytes;
};

constexpr std::array kDTypes = {
#define DTYPE(e, num, text, torch, bytes) DTypeRow{DType::e, text, torch, bytes},
#include "support/dtype.def"
#undef DTYPE
};

const DTypeRow& row(DType d) {
  for (const DTypeRow& r : kDTypes) {
    if (r.dtype == d) return r;
  }
  OXY_FAIL("no such dtype: ", static_cast<int>(d));
}

}  // namespace

std::string_view name(DType d) { return row(d).name; }
std::string_view torch_name(DType d) { return row(d).torch_name; }
int byte_size(DType d) { return row(d).bytes; }

std::optional<DType> dtype_from_name(std::string_view s) {
  for (const DTypeRow& r : kDTypes) {
    if (r.name == s || r.torch_name == s) return r.dtype;
  }
  return std::nullopt;
}

bool is_dtype(int8_t number) {
  for (const DTypeRow& r : kDTypes) {
    if (static_cast<int8_t>(r.dtype) == number) return true;
  }
  return false;
}

bool is_floating(DType d) {
  switch (d) {
    case DType::F16:
    case DType::BF16:
    case DType::F32:
    case DType::F64:
    case DType::F8E5M2:
    case DType::F8E4M3:
      return true;
    default:
      return false;
  }
}

bool is_complex(DType d) { return d == DType::C32 || d == DType::C64 || d == DType::C128; }

bool is_integral(DType d, bool include_bool) {
  switch (d) {
    case DType::U8:
    case DType::U16:
    case DType::U32:
    case DType::U64:
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
      return true;
    case DType::B8:
      return include_bool;
    default:
      return false;
  }
}

std::string print(Device d) {
  std::string s;
  switch (static_cast<DeviceKind>(d.kind)) {
    case DeviceKind::CPU:
      s = "cpu";
      break;
    case DeviceKind::CUDA:
      s = "cuda";
      break;
    case DeviceKind::Meta:
      s = "meta";
      break;
    default:
      s = cat("device", static_cast<int>(d.kind));
  }
  if (d.index >= 0) cat_to(s, ':', static_cast<int>(d.index));
  return s;
}

std::optional<int8_t> device_kind_from_word(std::string_view s) {
  if (s == "cpu") return static_cast<int8_t>(DeviceKind::CPU);
  if (s == "cuda") return static_cast<int8_t>(DeviceKind::CUDA);
  if (s == "meta") return static_cast<int8_t>(DeviceKind::Meta);
  int8_t kind = 0;
  constexpr std::string_view prefix = "device";
  if (s.substr(0, prefix.size()) != prefix) return std::nullopt;
  auto r = std::from_chars(s.data() + prefix.size(), s.data() + s.size(), kind);
  if (r.ec != std::errc() || r.ptr != s.data() + s.size()) return std::nullopt;
  return kind;
}

}  // namespace oxy
