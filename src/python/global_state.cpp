// The words for what has changed, and the table of functions.
#include "python/global_state.h"

#include <c10/core/ScalarType.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include "python/cpython/handles.h"
#include "support/text.h"

namespace oxy::python {
namespace {

using FunctionModes = at::impl::PythonTorchFunctionTLS;

thread_local bool default_device_left_out = false;

std::string text(bool on) { return on ? "on" : "off"; }
std::string text(uint32_t number) { return std::to_string(number); }
std::string text(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }
std::string text(caffe2::TypeMeta dtype) { return text(c10::typeMetaToScalarType(dtype)); }

}  // namespace

bool default_device_is_cpu() {
  if (FunctionModes::stack_len() != 1) return false;
  const py::handle mode = FunctionModes::get_stack_at(0)->ptr(getPyInterpreter());
  if (!py::type::of(mode).is(member_of<"torch.utils._device", "DeviceContext">())) return false;
  const py::object held = py::getattr(mode, "device", py::none());
  if (!THPDevice_Check(held.ptr())) return false;
  const at::Device device = reinterpret_cast<THPDevice*>(held.ptr())->device;
  return device.is_cpu() && !device.has_index();
}

WithoutDefaultDevice::WithoutDefaultDevice()
    : modes_(FunctionModes::get_state()),
      was_left_out_(std::exchange(default_device_left_out, is_set())) {
  while (FunctionModes::stack_len() > 0) FunctionModes::pop_stack();
}

WithoutDefaultDevice::~WithoutDefaultDevice() {
  FunctionModes::set_state(modes_);
  default_device_left_out = was_left_out_;
}

bool WithoutDefaultDevice::is_set() {
  return default_device_left_out || at::impl::torch_function_mode_enabled();
}

std::string difference(const GlobalState& now, const GlobalState& before) {
  std::string out;
  auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a == b) return;
    if (!out.empty()) out += "; ";
    cat_to(out, name, " is ", text(a), ", was ", text(b));
  };
#define OXY_MODE(type, field, words, read, write) \
  compare(words, now.modes.field, before.modes.field);
#define OXY_STATE(type, field, words, read) compare(words, now.field, before.field);
#include "python/torch_state.def"
  return out;
}

const std::map<std::string_view, Folded>& folded_functions() {
  static const auto table = [] {
    std::map<std::string_view, Folded> out;
#define OXY_FOLDED(guard, ...) \
  for (const char* function : {__VA_ARGS__}) out.emplace(function, Folded::guard);
#include "python/torch_state.def"
    return out;
  }();
  return table;
}

}  // namespace oxy::python
