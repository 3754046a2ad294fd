// Compares metadata, shared storages and versions, and says what differs.
#include "torch_bridge/input_signature.h"

#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "support/check.h"

namespace oxy::bridge {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using Storages = StorageSharing::Storages;

constexpr size_t kFew = 8;

// Keys of storage-less or lazily transformed kinds, by the words of a user.
constexpr std::pair<DispatchKey, const char*> kKeyTexts[] = {
    {DispatchKey::Python, "a tensor subclass"},
    {DispatchKey::Conjugate, "a lazily conjugated tensor"},
    {DispatchKey::Negative, "a lazily negated tensor"},
    {DispatchKey::ZeroTensor, "a tensor of zeros without memory"},
    {DispatchKey::Functionalize, "a functional tensor"},
    {DispatchKey::FuncTorchBatched, "a tensor under vmap"},
    {DispatchKey::FuncTorchGradWrapper, "a tensor under functorch's grad"},
};

// By tensor: the first one in the same storage. A table with open addressing: there may be
// hundreds.
std::vector<uint32_t> first_in_storage(Storages storages) {
  constexpr uint32_t kNone = UINT32_MAX;
  const size_t mask = std::bit_ceil(2 * storages.size() + 1) - 1;
  std::vector<uint32_t> table(mask + 1, kNone), out(storages.size());
  for (uint32_t i = 0; i < storages.size(); i++) {
    size_t at = (reinterpret_cast<uintptr_t>(storages[i]) * 0x9e3779b97f4a7c15ull) >> 32;
    while (table[at & mask] != kNone && storages[table[at & mask]] != storages[i]) at++;
    if (table[at & mask] == kNone) table[at & mask] = i;
    out[i] = table[at & mask];
  }
  return out;
}

std::vector<const void*> storages_of(std::span<const Input> inputs) {
  std::vector<const void*> out;
  for (const Input& input : inputs) {
    // A number is in a storage of its own.
    out.push_back(input.tensor ? storage_of(*input.tensor->unsafeGetTensorImpl()) : &input);
  }
  return out;
}

std::string list_text(c10::IntArrayRef values) {
  return cat("[", join(values, ", ", [](std::string& out, int64_t v) { cat_to(out, v); }), "]");
}

std::string dtype_text(caffe2::TypeMeta dtype) {
  return std::string(c10::getDtypeNames(c10::typeMetaToScalarType(dtype)).first);
}

std::string change(const std::string& now, const std::string& before) {
  return cat("has ", now, ", had ", before);
}

// The counter that a tensor shares with its views: VariableVersion is a pointer to it, and has no
// way to ask for it.
const void* counter_of(const c10::VariableVersion& v) {
  const void* counter;
  static_assert(sizeof v == sizeof counter);
  std::memcpy(static_cast<void*>(&counter), static_cast<const void*>(&v), sizeof counter);
  return counter;
}

}  // namespace

runtime::SizeInput size_input(const Input& in) {
  if (in.tensor == nullptr) return {nullptr, nullptr, in.number};
  const c10::TensorImpl& t = *in.tensor->unsafeGetTensorImpl();
  return {t.sizes().data(), t.strides().data(), t.storage_offset()};
}

const char* why_unsupported(const at::Tensor& t) {
  for (auto [key, words] : kKeyTexts)
    if (t.key_set().has(key)) return words;
  if (t.layout() != c10::kStrided)
    return t.is_sparse() ? "a sparse tensor" : "a tensor that is not strided";
  if (has_tangent(*t.unsafeGetTensorImpl())) return "a tensor with a tangent (forward-mode AD)";
  if (t.is_quantized()) return "a quantised tensor";
  if (t.is_nested()) return "a nested tensor";
  if (!t.has_storage()) return "a tensor without storage";
  if (data_keys(*t.unsafeGetTensorImpl()).remove(DispatchKey::ADInplaceOrView) !=
      DispatchKeySet(DispatchKey::CPU))
    return "a tensor that is not on the CPU";
  return nullptr;
}

bool has_tangent(const c10::TensorImpl& t) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(t.autograd_meta());
  return meta != nullptr && meta->fw_grad_ && !meta->fw_grad_->empty();
}

// Levels are opened and closed like brackets, and closing one takes its tangents.
bool may_have_tangents() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

// ---- sharing ----

std::vector<bool> versioned_apart(std::span<const Input> inputs) {
  const std::vector<uint32_t> first = first_in_storage(storages_of(inputs));
  const auto counter = [&](size_t i) {
    return counter_of(inputs[i].tensor->unsafeGetTensorImpl()->version_counter());
  };
  std::vector<bool> out(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++)
    for (size_t j = first[i]; j < i; j++)
      if (first[j] == first[i] && counter(j) != counter(i)) out[i] = out[j] = true;
  return out;
}

StorageSharing::StorageSharing(Storages storages)
    : first_(first_in_storage(storages)), alone_(storages.size(), true) {
  for (uint32_t i = 0; i < first_.size(); i++)
    if (first_[i] != i) alone_[i] = alone_[first_[i]] = false;
}

bool StorageSharing::matches(Storages storages) const {
  return first_in_storage(storages) == first_;
}

bool StorageSharing::is_alone(size_t i, Storages storages) const {
  size_t found = 0;
  for (const void* s : storages) found += s == storages[i];
  return found == 1;
}

// Whether the only storages that are others than the last time belong to tensors that are and were
// alone in theirs.
bool StorageSharing::moved_apart(Storages storages) const {
  size_t moved = 0;
  for (size_t i = 0; i < storages.size(); i++) {
    if (storages[i] == last_[i]) continue;
    if (++moved > kFew || !alone_[i] || !is_alone(i, storages)) return false;
  }
  return true;
}

bool StorageSharing::matches_again(Storages storages) {
  if (last_.size() == storages.size()) {
    if (std::equal(last_.begin(), last_.end(), storages.begin())) return true;
    if (moved_apart(storages)) {
      std::copy(storages.begin(), storages.end(), last_.begin());
      return true;
    }
  }
  if (!matches(storages)) return false;
  last_.assign(storages.begin(), storages.end());
  return true;
}

std::pair<size_t, size_t> StorageSharing::mismatch(Storages storages) const {
  const std::vector<uint32_t> now = first_in_storage(storages);
  for (size_t i = 0; i < now.size(); i++)
    if (now[i] != first_[i]) return {now[i] == i ? first_[i] : now[i], i};
  return {0, 0};
}

// ---- signature ----

InputSignature::InputSignature(std::span<const Input> example, Options given,
                               const std::vector<bool>& varies)
    : options_(std::move(given)) {
  const Options& options = options_;
  for (const Input& input : example) add(input);
  for (size_t i = 0; i < varies.size(); i++) items_[i].varies = varies[i];
  if (options.sharing) sharing_ = StorageSharing(storages_of(example));
  for (size_t i = 0; i < items_.size(); i++) {
    const at::Tensor* t = example[i].tensor;
    const bool written =
        options.sharing && t != nullptr && sharing_.is_shared(i) &&
        std::ranges::count(options_.written, storage_of(*t->unsafeGetTensorImpl()));
    items_[i].offset = options.offsets || written;
    meets_written_ |= written;
  }
}

void InputSignature::add(const Input& input) {
  Item& item = items_.emplace_back();
  if (input.tensor == nullptr) {
    item.number = input.number;
    return;
  }
  const at::Tensor& t = *input.tensor;
  item.dtype = t.dtype();
  item.keys = data_keys(*t.unsafeGetTensorImpl());
  item.number = t.storage_offset();
  item.dims = static_cast<uint32_t>(dims_.size());
  item.rank = static_cast<int32_t>(t.dim());
  item.requires_grad = t.requires_grad();
  item.tangent = has_tangent(*t.unsafeGetTensorImpl());
  dims_.insert(dims_.end(), t.sizes().begin(), t.sizes().end());
  dims_.insert(dims_.end(), t.strides().begin(), t.strides().end());
}

// All but sizes, strides and offset.
bool InputSignature::is_alike(const Item& item, const c10::TensorImpl& t) const noexcept {
  if (t.dim() != item.rank || data_keys(t) != item.keys || t.dtype() != item.dtype) return false;
  return !options_.requires_grad ||
         (t.requires_grad() == item.requires_grad && has_tangent(t) == item.tangent);
}

bool InputSignature::matches(size_t i, const c10::TensorImpl& t) const noexcept {
  const Item& item = items_[i];
  if (!is_alike(item, t)) return false;
  if (item.varies) return true;
  const int64_t *sizes = t.sizes().data(), *strides = t.strides().data();
  const int64_t* dims = dims_.data() + item.dims;
  int64_t differs = item.offset ? t.storage_offset() ^ item.number : 0;
  for (int32_t d = 0; d < item.rank; d++)
    differs |= (sizes[d] ^ dims[d]) | (strides[d] ^ dims[item.rank + d]);
  return differs == 0;
}

InputSignature::Changed InputSignature::changed(size_t i, const at::Tensor& t) const {
  const Item& item = items_[i];
  Changed out;
  if (data_keys(*t.unsafeGetTensorImpl()) != item.keys) return out;
  if (t.dim() != item.rank) {
    out.ranks = std::max<int64_t>(t.dim(), item.rank);
    return out;
  }
  for (int64_t d = 0; d < item.rank; d++) {
    const auto at = static_cast<size_t>(d);
    if (t.sizes()[at] != sizes(item)[at]) out.sizes.push_back(d);
    if (t.strides()[at] != strides(item)[at]) out.strides.push_back(d);
  }
  return out;
}

bool InputSignature::matches(std::span<const Input> inputs) const {
  if (inputs.size() != items_.size()) return false;
  for (size_t i = 0; i < items_.size(); i++) {
    const Item& item = items_[i];
    const at::Tensor* t = inputs[i].tensor;
    if ((t == nullptr) != (item.rank < 0)) return false;
    if (t != nullptr ? !matches(i, *t->unsafeGetTensorImpl()) : item.number != inputs[i].number)
      return false;
  }
  return !options_.sharing || sharing_.matches(storages_of(inputs));
}

bool InputSignature::matches_but_sizes(std::span<const Input> inputs) const {
  if (inputs.size() != items_.size()) return false;
  for (size_t i = 0; i < items_.size(); i++) {
    const Item& item = items_[i];
    const at::Tensor* t = inputs[i].tensor;
    if ((t == nullptr) != (item.rank < 0)) return false;
    if (t == nullptr) continue;
    if (t->dtype() != item.dtype || t->dim() != item.rank ||
        data_keys(*t->unsafeGetTensorImpl()) != item.keys)
      return false;
    if (item.offset && t->storage_offset() != item.number) return false;
  }
  if (!options_.sharing) return true;
  return !meets_written_ && sharing_.matches(storages_of(inputs));
}

c10::IntArrayRef InputSignature::sizes(const Item& item) const {
  return {dims_.data() + item.dims, static_cast<size_t>(item.rank)};
}

c10::IntArrayRef InputSignature::strides(const Item& item) const {
  return {dims_.data() + item.dims + item.rank, static_cast<size_t>(item.rank)};
}

std::string InputSignature::difference(size_t i, const at::Tensor& t) const {
  const Item& item = items_[i];
  DispatchKeySet keys = data_keys(*t.unsafeGetTensorImpl());
  if (keys != item.keys) return change(c10::toString(keys), c10::toString(item.keys));
  if (t.dtype() != item.dtype)
    return cat("is ", dtype_text(t.dtype()), ", was ", dtype_text(item.dtype));
  if (item.varies && t.dim() != item.rank)
    return cat("has ", t.dim(), " dimensions, had ", item.rank);
  if (!item.varies && t.sizes() != sizes(item))
    return change(cat("the sizes ", list_text(t.sizes())), list_text(sizes(item)));
  if (!item.varies && t.strides() != strides(item))
    return change(cat("the strides ", list_text(t.strides())), list_text(strides(item)));
  if (item.offset && !item.varies && t.storage_offset() != item.number)
    return cat("begins at element ", t.storage_offset(), " of its storage, began at ", item.number);
  if (options_.requires_grad && t.requires_grad() != item.requires_grad)
    return item.requires_grad ? "does not require grad, did" : "requires grad, did not";
  if (options_.requires_grad && has_tangent(*t.unsafeGetTensorImpl()) != item.tangent)
    return item.tangent ? "has no tangent, had one" : "has a tangent, had none";
  return "";
}

std::string InputSignature::text(size_t i) const {
  const Item& item = items_[i];
  std::string out = item.varies ? cat(dtype_text(item.dtype), " of ", item.rank, " dimensions")
                                : cat(dtype_text(item.dtype), list_text(sizes(item)), ", strides ",
                                      list_text(strides(item)));
  if (options_.offsets && !item.varies && item.number != 0) cat_to(out, ", offset ", item.number);
  if (options_.requires_grad)
    cat_to(out, item.requires_grad ? ", requires grad" : ", does not require grad");
  return out;
}

// ---- frozen tensors ----

FrozenTensors::FrozenTensors(std::span<const Input> inputs, std::span<const uint32_t> which,
                             std::span<const at::Tensor> attributes) {
  for (uint32_t i : which) add(i, *inputs[i].tensor);
  for (const at::Tensor& t : attributes) add(-1, t);
}

void FrozenTensors::add(int64_t input, const at::Tensor& t) {
  OXY_CHECK(can_be_frozen(t), "a tensor without a version is frozen");
  const c10::VariableVersion& counter = t.unsafeGetTensorImpl()->version_counter();
  items_.push_back({input, input < 0 ? t : at::Tensor(), counter, t.storage(), t.storage().data(),
                    counter.current_version()});
}

bool FrozenTensors::unchanged(std::span<const Input> inputs) const noexcept {
  for (const Item& item : items_) {
    const at::Tensor& t =
        item.input < 0 ? item.attribute : *inputs[static_cast<size_t>(item.input)].tensor;
    const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
    const c10::VariableVersion& counter = impl.version_counter();
    if (counter_of(counter) != counter_of(item.counter) ||
        impl.unsafe_storage().unsafeGetStorageImpl() != item.storage.unsafeGetStorageImpl() ||
        item.storage.data() != item.data || counter.current_version() != item.version)
      return false;
  }
  return true;
}

}  // namespace oxy::bridge
