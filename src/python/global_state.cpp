// The words for what has changed, and the table of functions.
#include "python/global_state.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include "python/cpython/handles.h"
#include "support/text.h"

namespace oxy::python {
namespace {

using FunctionModes = at::impl::PythonTorchFunctionTLS;

std::string text(bool on) { return on ? "on" : "off"; }
std::string text(int number) { return std::to_string(number); }
std::string text(uint32_t number) { return std::to_string(number); }
std::string text(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }
std::string text(caffe2::TypeMeta dtype) { return text(c10::typeMetaToScalarType(dtype)); }

}  // namespace

bool is_plain_cpu(py::handle device) {
  if (!THPDevice_Check(device.ptr())) return false;
  const at::Device held = reinterpret_cast<THPDevice*>(device.ptr())->device;
  return held.is_cpu() && !held.has_index();
}

bool default_device_is_cpu() {
  if (FunctionModes::stack_len() != 1) return false;
  const py::handle mode = FunctionModes::get_stack_at(0)->ptr(getPyInterpreter());
  if (!py::type::of(mode).is(member_of<"torch.utils._device", "DeviceContext">())) return false;
  return is_plain_cpu(py::getattr(mode, "device", py::none()));
}

thread_local WithoutDefaultDevice::LeftOut WithoutDefaultDevice::left_out_;

WithoutDefaultDevice::WithoutDefaultDevice()
    : modes_(FunctionModes::get_state()),
      before_(std::exchange(left_out_, {.captures = true, .set = is_set()})) {
  while (FunctionModes::stack_len() > 0) FunctionModes::pop_stack();
}

WithoutDefaultDevice::~WithoutDefaultDevice() {
  FunctionModes::set_state(modes_);
  left_out_ = before_;
}

bool WithoutDefaultDevice::is_set() {
  return left_out_.set || at::impl::torch_function_mode_enabled();
}

bool saved_values_may_change() {
  const auto hooks = at::SavedTensorDefaultHooks::get_hooks();
  if (!hooks) return false;
  PyObject* pack = hooks->first.ptr(getPyInterpreter());
  if (PyFunction_Check(pack)) {
    PyObject* module = reinterpret_cast<PyFunctionObject*>(pack)->func_module;
    for (const char* keeps : {"torch.autograd.graph", "torch.utils.checkpoint"})
      if (is_text(module, keeps)) return false;
  }
  return !py::getattr(pack, "_oxyfuel_keeps_values", py::none()).is(py::bool_(true));
}

int default_devices() { return WithoutDefaultDevice::left_out_.entered; }

void set_default_devices(int number) {
  if (WithoutDefaultDevice::left_out_.captures) {
    WithoutDefaultDevice::left_out_.entered = number;
    return;
  }
  for (; number > 0; number--)
    py::object(member_of<"torch", "device">()("cpu")).attr("__enter__")();
  for (; number < 0; number++)
    py::object(member_of<"torch", "device">()("cpu"))
        .attr("__exit__")(py::none(), py::none(), py::none());
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
