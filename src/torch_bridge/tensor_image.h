// The words of a TensorImpl from which its sizes, strides, offset, dtype, device and key set are
// read, and who requires gradients. Where they are what they were, so is all of that, and comparing
// them is several times as fast as asking. Equal metadata may have other words (sizes beyond the
// rank, cached facts), so a difference says nothing. Tensors of one layout mostly have one image.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <optional>

#include "torch_bridge/compat.h"

// Vectors are values of functions that are always inlined: no call passes any.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

namespace oxy::bridge {

// The members of SizesAndStrides and the private one of TensorImpl lie where of() finds them, or
// else no image is taken.
class TensorImage {
  using Layout = TensorImplLayout;
  using Vector = uint64_t __attribute__((vector_size(32)));
  static constexpr size_t kWord = sizeof(uint64_t);
  static constexpr size_t kMostDims = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;
  static constexpr size_t kSizes = Layout::dims() + kWord;
  static constexpr size_t kStrides = kSizes + kMostDims * kWord;
  static_assert(kStrides + kMostDims * kWord == Layout::rest());
  static constexpr int64_t kNarrow = 3;  // dimensions that fit in a vector beside their number
  static_assert(kMostDims >= 4 && Layout::end() - Layout::rest() <= sizeof(Vector));
  static constexpr size_t kWords = (Layout::end() - Layout::dims()) / kWord;
  static_assert(Layout::end() == Layout::dims() + kWords * kWord);

 public:
  using Meta = torch::autograd::AutogradMeta;

  // What a tensor has for itself: two words side by side.
  struct Owned {
    Owned() = default;
    explicit Owned(const c10::TensorImpl& t) {
      std::memcpy(&storage, at(t, Layout::memory()), kWord);
      const c10::AutogradMetaInterface* found;
      std::memcpy(&found, at(t, Layout::memory() + kWord), kWord);
      meta = static_cast<const Meta*>(found);
    }
    const void* storage = nullptr;
    const Meta* meta = nullptr;
  };

  // Nothing of a tensor whose sizes or strides lie elsewhere, or that has a tangent.
  static std::optional<TensorImage> of(const c10::TensorImpl& t) {
    if (at(t, kSizes) != t.sizes().data() || at(t, kStrides) != t.strides().data() ||
        Owned(t).meta != t.autograd_meta() || has_tangent(Owned(t).meta))
      return std::nullopt;
    TensorImage out;
    std::memcpy(out.words_, at(t, Layout::dims()), sizeof(out.words_));
    out.requires_grad_ = t.requires_grad();
    out.wide_ = t.dim() > kNarrow;
    return out;
  }

  bool operator==(const TensorImage&) const = default;

  // Whether `t` has this image, and `owned`. Loads are what it takes time for.
  [[gnu::always_inline]] bool is_of(const c10::TensorImpl& t, const Owned& owned) const {
    using Pair = uint64_t __attribute__((vector_size(16)));
    const Pair own = load<Pair>(at(t, Layout::memory()), 0) ^ load<Pair>(&owned, 0);
    Vector differs = {own[0], own[1], 0, 0};
    differs |= difference<Layout::dims()>(t);  // with kNarrow sizes
    differs |= difference<kStrides>(t);        // with as many strides, or more
    differs |= difference<Layout::end() - sizeof(Vector)>(t);
    if (wide_) {
      differs |= difference<kSizes + (kMostDims - 4) * kWord>(t);
      differs |= difference<kStrides + (kMostDims - 4) * kWord>(t);
    }
#if __has_builtin(__builtin_reduce_or)
    const uint64_t any = __builtin_reduce_or(differs);
#else
    const uint64_t any = differs[0] | differs[1] | differs[2] | differs[3];
#endif
    return any == 0 && requires_grad(owned.meta) == requires_grad_;
  }

 private:
  template <class T>
  [[gnu::always_inline]] static T load(const void* from, size_t place) {
    T out;
    std::memcpy(&out, static_cast<const char*>(from) + place, sizeof(out));
    return out;
  }
  template <size_t offset>
  [[gnu::always_inline]] Vector difference(const c10::TensorImpl& t) const {
    static_assert(offset >= Layout::dims() && offset + sizeof(Vector) <= Layout::end());
    return load<Vector>(at(t, offset), 0) ^ load<Vector>(words_, offset - Layout::dims());
  }
  static const void* at(const c10::TensorImpl& t, size_t offset) {
    return reinterpret_cast<const char*>(&t) + offset;
  }
  // As TensorImpl::requires_grad, without its virtual call where that can be.
  static bool requires_grad(const Meta* meta) {
    if (meta == nullptr) return false;
    return meta->requires_grad_ || meta->grad_fn_ || (meta->is_view_ && meta->requires_grad());
  }

  static bool has_tangent(const Meta* meta) {
    return meta != nullptr && meta->fw_grad_ && !meta->fw_grad_->empty();
  }

  uint64_t words_[kWords] = {};
  bool requires_grad_ = false, wide_ = false;
};

}  // namespace oxy::bridge

#pragma GCC diagnostic pop
