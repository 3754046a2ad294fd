// What a plan or a guard was made for, compared with the tensors of a call: dtype, device, layout,
// key set, sizes and strides of every one, read again on every call, since nothing else notices
// `p.data = ...` or a shrunk tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <span>

#include "runtime/size_program.h"

namespace oxy::bridge {

// An argument of a compiled graph: a tensor, or a number where `tensor` is null.
struct Input {
  const at::Tensor* tensor = nullptr;
  int64_t number = 0;
};
// As a size program reads it.
runtime::SizeInput size_input(const Input& in);

// Why a plan cannot take this tensor at all ("sparse", "a tensor subclass", ...); nullptr where it
// can.
const char* why_unsupported(const at::Tensor& t);

// Which of some tensors lie in one storage. Storages are told apart by their addresses.
class StorageSharing {
 public:
  using Storages = std::span<const void* const>;

  StorageSharing() = default;
  explicit StorageSharing(Storages storages);
  bool matches(Storages storages) const;
  // The same for a caller that asks again and again: quick while few storages are others than the
  // last time.
  bool matches_again(Storages storages);
  // A pair that shares now and did not, or the other way round; the same index twice where there is
  // none.
  std::pair<size_t, size_t> mismatch(Storages storages) const;
  bool shared(size_t i, size_t j) const { return first_[i] == first_[j]; }
  bool is_shared(size_t i) const { return !alone_[i]; }

 private:
  bool is_alone(size_t i, Storages storages) const;
  bool moved_apart(Storages storages) const;

  std::vector<uint32_t> first_;    // by tensor: the first one in the same storage
  std::vector<bool> alone_;        // by tensor: no other is in its storage
  std::vector<const void*> last_;  // where matches_again last found no difference
};

// By input: whether another one has its memory under a version of its own (`a.data = b`).
std::vector<bool> versioned_apart(std::span<const Input> inputs);

inline const void* storage_of(const c10::TensorImpl& t) {
  return t.unsafe_storage().unsafeGetStorageImpl();
}

// Without the keys of autograd and autocast. ADInplaceOrView stays: an inference tensor lacks it.
inline c10::DispatchKeySet data_keys(const c10::TensorImpl& t) {
  return t.key_set() - (c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset);
}

// Forward-mode AD has put a tangent beside it, which a graph would lose.
bool has_tangent(const c10::TensorImpl& t);

// Whether any tensor of the process can have one: a level of forward-mode AD is open.
bool may_have_tangents();

class InputSignature {
 public:
  struct Options {
    bool offsets = false;        // the storage offset matters
    bool sharing = false;        // so does which inputs share storage
    bool requires_grad = false;  // and who requires gradients or has a tangent
    // In which storages of the example, where several inputs share one, it matters where; with
    // `sharing`.
    std::vector<const void*> written;
  };
  InputSignature() = default;
  // `varies`: of which inputs sizes, strides and offset do not matter; may be shorter.
  InputSignature(std::span<const Input> example, Options options,
                 const std::vector<bool>& varies = {});
  size_t size() const { return items_.size(); }

  bool matches(std::span<const Input> inputs) const;
  // The same but for sizes, strides and numbers. Tensors that share storage lie apart at these
  // sizes alone: where places matter, there are no others.
  bool matches_but_sizes(std::span<const Input> inputs) const;
  // One input that was a tensor, sharing apart.
  bool matches(size_t i, const c10::TensorImpl& t) const noexcept;
  // What of that tensor is not as it was, both ways: "has the sizes [1, 4], had [4, 4]"; "" where
  // all is.
  std::string difference(size_t i, const at::Tensor& t) const;
  // The dimensions whose sizes differ, and those whose strides do, of a tensor of the same kind,
  // whatever its dtype; of one of another rank the larger number of dimensions.
  struct Changed {
    std::vector<int64_t> sizes, strides;
    int64_t ranks = 0;
  };
  Changed changed(size_t i, const at::Tensor& t) const;
  int64_t size(size_t i, int64_t dim) const { return sizes(items_[i])[static_cast<size_t>(dim)]; }
  // What it was: "float32[4, 4], requires grad".
  std::string text(size_t i) const;
  const StorageSharing& sharing() const { return sharing_; }
  const Options& options() const { return options_; }

 private:
  struct Item {
    caffe2::TypeMeta dtype;
    c10::DispatchKeySet keys;  // data_keys
    int64_t number = 0;        // a number's value; the storage offset of a tensor
    uint32_t dims = 0;         // where its sizes, then its strides begin
    int32_t rank = -1;         // -1: a number
    bool requires_grad = false, tangent = false, varies = false, offset = false;
  };
  void add(const Input& input);
  bool is_alike(const Item& item, const c10::TensorImpl& t) const noexcept;
  c10::IntArrayRef sizes(const Item& item) const;
  c10::IntArrayRef strides(const Item& item) const;

  Options options_;
  std::vector<Item> items_;
  std::vector<int64_t> dims_;
  StorageSharing sharing_;
  bool meets_written_ = false;  // inputs share a storage that is written
};

// Notices that a tensor which a plan has taken as a constant is no longer what it was.
//
// What is compared, a few nanoseconds a tensor: its memory, its version counter and the version.
// What leaves no trace there is not noticed: writes through `p.data`, numpy, DLPack or a raw
// pointer. Inference tensors have no version and cannot be frozen.
class FrozenTensors {
 public:
  // Keeps memory and counters, so that no others can have their addresses, but not the tensors:
  // torch.utils.swap_tensors wants to be their only owner.
  FrozenTensors(std::span<const Input> inputs, std::span<const uint32_t> which,
                std::span<const at::Tensor> attributes);

  bool unchanged(std::span<const Input> inputs) const noexcept;

  static bool can_be_frozen(const at::Tensor& t) { return !t.is_inference() && t.has_storage(); }

 private:
  struct Item {
    int64_t input = -1;    // or an attribute:
    at::Tensor attribute;  // which the plan holds anyway
    c10::VariableVersion counter;
    c10::Storage storage;
    const void* data = nullptr;
    uint32_t version = 0;
  };
  void add(int64_t input, const at::Tensor& t);

  std::vector<Item> items_;
};

}  // namespace oxy::bridge
