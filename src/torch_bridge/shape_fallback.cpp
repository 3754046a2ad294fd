// Calls torch's meta kernel on fakes and takes the metadata of what it gives.
#include "torch_bridge/shape_fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>

#include <array>

#include "support/check.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

// Nothing above the backend's kernels takes part.
c10::DispatchKeySet above_backend() {
  using c10::DispatchKey;
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet({DispatchKey::Functionalize, DispatchKey::Python,
                              DispatchKey::PythonTLSSnapshot, DispatchKey::PythonDispatcher});
}

// The arguments with meta tensors in place of fakes, and the way back.
class MetaArguments {
 public:
  MetaArguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (schema.arguments()[i].real_type()->isSubtypeOf(
              *c10::OptionalType::create(c10::DeviceObjType::get()))) {
        if (args[i].isDevice()) device_ = args[i].toDevice();
        stack_.emplace_back(c10::Device(c10::kMeta));
      } else {
        stack_.push_back(
            with_numbers(map_tensors(args[i], [&](const at::Tensor& t) { return convert(t); })));
      }
    }
    if (!device_) device_ = tensor_device_.value_or(c10::Device(c10::kCPU));
  }

  torch::jit::Stack& stack() { return stack_; }

  PredictedTensor read(const at::Tensor& m) const {
    PredictedTensor out;
    if (!m.defined()) return out;
    out.defined = true;
    if (m.layout() != c10::kStrided) throw Unsupported("an op with a result that is sparse");
    for (size_t i = 0; i < metas_.size(); ++i) {
      if (!metas_[i].defined()) continue;
      if (m.has_storage() && metas_[i].storage().is_alias_of(m.storage()))
        out.alias_of = static_cast<int>(i);
    }
    out.type = type_of(m);
    out.type.device = {static_cast<int8_t>(device_->type()), static_cast<int8_t>(device_->index())};
    return out;
  }

 private:
  at::Tensor convert(const at::Tensor& t) {
    // A wrapped number keeps its value: kernels in Python take it out.
    if (!t.defined() || t.unsafeGetTensorImpl()->is_wrapped_number()) {
      metas_.emplace_back();
      return t;
    }
    // A zero-dimensional CPU tensor may meet tensors of another device: theirs is the result's.
    if (!tensor_device_ || (t.dim() > 0 && !t.is_cpu())) tensor_device_ = t.device();
    return metas_.emplace_back(make_meta(t));
  }

  torch::jit::Stack stack_;
  std::vector<at::Tensor> metas_;
  std::optional<c10::Device> device_, tensor_device_;
};

RunFake run_fake = nullptr;

}  // namespace

void set_run_fake(RunFake run) { run_fake = run; }

size_t sizes_asked_for(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  constexpr std::array<int64_t, 16> kAny{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
  if (run_fake == nullptr) return 0;
  MetaArguments meta(op.schema(), args);
  const c10::impl::ExcludeDispatchKeyGuard guard(above_backend());
  return run_fake(op, meta.stack(), kAny);
}

std::vector<PredictedReturn> predict_on_meta(const c10::OperatorHandle& op,
                                             c10::ArrayRef<c10::IValue> args,
                                             std::span<const int64_t> sizes_of_data) {
  MetaArguments meta(op.schema(), args);
  {
    const c10::impl::ExcludeDispatchKeyGuard guard(above_backend());
    if (sizes_of_data.empty())
      op.callBoxed(meta.stack());
    else
      run_fake(op, meta.stack(), sizes_of_data);
  }
  std::vector<PredictedReturn> out;
  for (const c10::IValue& v : meta.stack()) {
    PredictedReturn& r = out.emplace_back();
    if (v.isTensor()) {
      r.is_tensor = true;
      r.tensors.push_back(meta.read(v.toTensor()));
    } else if (v.isTensorList()) {
      r.is_tensor = r.is_list = true;
      for (const at::Tensor& t : v.toTensorVector()) r.tensors.push_back(meta.read(t));
    } else {
      r.data = v;
    }
  }
  correct_cpu_layouts(op, args, out);
  return out;
}

void run_on_metadata(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(above_backend());
  op.callBoxed(stack);
}

}  // namespace oxy::bridge
