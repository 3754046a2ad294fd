#include "torch_bridge/input_signature.h"

#include <algorithm>
#include <cstring>

namespace oxy::bridge {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Keys of what lies above the data, autograd and autocast: an inference tensor lacks some of them.
constexpr DispatchKeySet kAboveData =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
// Keys of storage-less or lazily transformed kinds, by the words of a user.
constexpr std::pair<DispatchKey, const char*> kKinds[] = {
    {DispatchKey::Python, "a tensor subclass"},
    {DispatchKey::Conjugate, "a lazily conjugated tensor"},
    {DispatchKey::Negative, "a lazily negated tensor"},
    {DispatchKey::ZeroTensor, "a tensor of zeros without memory"},
    {DispatchKey::Functionalize, "a functional tensor"},
    {DispatchKey::FuncTorchBatched, "a tensor under vmap"},
    {DispatchKey::FuncTorchGradWrapper, "a tensor under functorch's grad"},
};

DispatchKeySet data_keys(const c10::TensorImpl* t) { return t->key_set() - kAboveData; }

// By linear search: plans that mutate have few inputs as a rule.
int32_t first_sharing(std::span<const Input> inputs, size_t i) {
  const auto* storage = inputs[i].tensor->storage().unsafeGetStorageImpl();
  for (size_t j = 0; j < i; j++) {
    const at::Tensor* t = inputs[j].tensor;
    if (t != nullptr && t->storage().unsafeGetStorageImpl() == storage)
      return static_cast<int32_t>(j);
  }
  return -1;
}

}  // namespace

const char* why_unsupported(const at::Tensor& t) {
  for (auto [key, words] : kKinds) {
    if (t.key_set().has(key)) return words;
  }
  if (t.layout() != c10::kStrided)
    return t.is_sparse() ? "a sparse tensor" : "a tensor that is not strided";
  if (t.is_quantized()) return "a quantised tensor";
  if (t.is_nested()) return "a nested tensor";
  if (!t.has_storage()) return "a tensor without storage";
  if (data_keys(t.unsafeGetTensorImpl()) != DispatchKeySet(DispatchKey::CPU))
    return "a tensor that is not on the CPU";
  return nullptr;
}

InputSignature::InputSignature(std::span<const Input> example, Options options)
    : options_(options) {
  for (size_t i = 0; i < example.size(); i++) {
    Item item;
    if (const at::Tensor* t = example[i].tensor) {
      item.dtype = t->dtype();
      item.keys = data_keys(t->unsafeGetTensorImpl());
      item.number = t->storage_offset();
      item.dims = static_cast<uint32_t>(dims_.size());
      item.rank = static_cast<int32_t>(t->dim());
      if (options.sharing) item.shares_with = first_sharing(example, i);
      dims_.insert(dims_.end(), t->sizes().begin(), t->sizes().end());
      dims_.insert(dims_.end(), t->strides().begin(), t->strides().end());
    } else {
      item.number = example[i].number;
    }
    items_.push_back(item);
  }
}

bool InputSignature::matches(const Item& item, const Input& input) const noexcept {
  if (input.tensor == nullptr) return item.rank < 0 && item.number == input.number;
  const c10::TensorImpl* t = input.tensor->unsafeGetTensorImpl();
  if (data_keys(t) != item.keys || t->dtype() != item.dtype || t->dim() != item.rank) return false;
  size_t bytes = static_cast<size_t>(item.rank) * sizeof(int64_t);
  const int64_t* dims = dims_.data() + item.dims;
  if (std::memcmp(t->sizes().data(), dims, bytes) != 0) return false;
  if (std::memcmp(t->strides().data(), dims + item.rank, bytes) != 0) return false;
  return !options_.offsets || t->storage_offset() == item.number;
}

bool InputSignature::matches(std::span<const Input> inputs) const noexcept {
  if (inputs.size() != items_.size()) return false;
  for (size_t i = 0; i < items_.size(); i++) {
    if (!matches(items_[i], inputs[i])) return false;
  }
  return !options_.sharing || sharing_matches(inputs);
}

bool InputSignature::sharing_matches(std::span<const Input> inputs) const noexcept {
  for (size_t i = 0; i < items_.size(); i++) {
    if (items_[i].rank >= 0 && first_sharing(inputs, i) != items_[i].shares_with) return false;
  }
  return true;
}

}  // namespace oxy::bridge
