// Python's min and max of tensors, which choose one of the objects that they are given: the graph
// computes what it holds.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/transform_levels.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {
namespace {

// Whether a tensor of this dtype holds it as well as the number itself does.
bool is_held_by(py::handle number, c10::ScalarType dtype) {
  if (PyLong_CheckExact(number.ptr())) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0 || std::abs(value) > 127) return dtype == at::kLong && overflow == 0;
    return at::isFloatingType(dtype) || (at::isIntegralType(dtype, false) && dtype != at::kByte);
  }
  if (!PyFloat_CheckExact(number.ptr())) return false;
  const double value = PyFloat_AS_DOUBLE(number.ptr());
  return dtype == at::kDouble || dtype == at::kFloat ||
         (dtype == at::kBFloat16 &&
          static_cast<float>(at::BFloat16(static_cast<float>(value))) == value) ||
         (dtype == at::kHalf && static_cast<float>(at::Half(static_cast<float>(value))) == value);
}

}  // namespace

py::object Graphs::extreme(const py::list& items, bool least) {
  std::optional<c10::ScalarType> dtype;
  for (py::handle item : items) {
    if (!heap().is_tensor(item)) continue;
    const at::Tensor& t = THPVariable_Unpack(item.ptr());
    if (t.dim() != 0 || dtype.value_or(t.scalar_type()) != t.scalar_type() || is_wrapped(t))
      return {};
    dtype = t.scalar_type();
  }
  const auto fits = [&](py::handle item) {
    return heap().is_tensor(item) || is_held_by(item, *dtype);
  };
  if (!dtype || inner() != nullptr || !std::all_of(items.begin(), items.end(), fits)) return {};
  py::object best = items[0];
  for (size_t i = 1; i < items.size(); i++) {
    const py::object item = items[i];
    const py::object better = objects().compare(item, best, least ? Py_LT : Py_GT);
    if (const auto known = objects().known_truth(better))
      best = *known ? item : best;
    else
      best = calls().call(member_of<"torch", "where">(), {better, item, best});
  }
  if (std::ranges::none_of(items, [&](py::handle item) { return best.is(item); }))
    extremes_.emplace_back(THPVariable_Unpack(best.ptr()), frames().here());
  return best;
}

// Somebody may see which object was chosen: its type, who it is, that a number has no gradient.
void Graphs::refuse_extremes(const std::vector<at::Tensor>& outputs) const {
  for (const auto& [tensor, place] : extremes_)
    if (tensor.requires_grad() || tensor._version() > 0 ||
        std::ranges::any_of(outputs, [&](const at::Tensor& t) { return t.is_same(tensor); }))
      place.refuse(BreakId::data_dependent, "min or max of tensors");
}

}  // namespace oxy::python
