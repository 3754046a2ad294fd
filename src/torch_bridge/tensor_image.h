// The words of a TensorImpl from which its sizes, strides, offset, dtype, device, key set and
// requires_grad are read. Where they are what they were, so is all of that, and comparing them is
// several times as fast as asking. Equal metadata may have other words (sizes beyond the rank,
// cached facts), so a difference says nothing.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstring>

#include "torch_bridge/compat.h"

namespace oxy::bridge {

// The members of SizesAndStrides and the private one of TensorImpl lie where take() finds them, or
// else no image is taken.
class TensorImage {
  using Layout = TensorImplLayout;
  using Meta = torch::autograd::AutogradMeta;
  static constexpr size_t kWord = sizeof(uint64_t);
  static constexpr size_t kSizes = Layout::dims() + kWord;
  static constexpr size_t kMostDims = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;
  static constexpr size_t kStrides = kSizes + kMostDims * kWord;
  static_assert(kStrides + kMostDims * kWord == Layout::rest());
  static constexpr size_t kDims = 2;  // of most tensors; those with more have more words
  static constexpr size_t kRest = (Layout::end() - Layout::rest()) / kWord;
  static_assert(Layout::end() == Layout::rest() + kRest * kWord);
  // In words_: what is always compared comes first.
  static constexpr size_t kFirst = 0, kMore = 1 + 2 * kDims + kRest;

 public:
  void take(const c10::TensorImpl& t) {
    requires_grad_ = t.requires_grad();
    taken_ = at(t, kSizes) == t.sizes().data() && at(t, kStrides) == t.strides().data() &&
             meta(t) == t.autograd_meta() && !tangent(meta(t));
    wide_ = taken_ && t.dim() > static_cast<int64_t>(kDims);
    if (!taken_) return;
    copy<kFirst, 1 + kDims>(at(t, Layout::dims()));
    copy<kFirst + 1 + kDims, kDims>(at(t, kStrides));
    copy<kFirst + 1 + 2 * kDims, kRest>(at(t, Layout::rest()));
    copy<kMore, kMostDims - kDims>(at(t, kSizes + kDims * kWord));
    copy<kMore + kMostDims - kDims, kMostDims - kDims>(at(t, kStrides + kDims * kWord));
  }

  bool is_of(const c10::TensorImpl& t) const {
    uint64_t differs = !taken_;
    differs |= difference<kFirst, 1 + kDims>(at(t, Layout::dims()));
    differs |= difference<kFirst + 1 + kDims, kDims>(at(t, kStrides));
    differs |= difference<kFirst + 1 + 2 * kDims, kRest>(at(t, Layout::rest()));
    if (wide_) {
      differs |= difference<kMore, kMostDims - kDims>(at(t, kSizes + kDims * kWord));
      differs |=
          difference<kMore + kMostDims - kDims, kMostDims - kDims>(at(t, kStrides + kDims * kWord));
    }
    return differs == 0 && requires_grad(meta(t)) == requires_grad_ && !tangent(meta(t));
  }

  static const Meta* meta(const c10::TensorImpl& t) {
    const c10::AutogradMetaInterface* meta;
    std::memcpy(&meta, at(t, Layout::autograd()), sizeof(meta));
    return static_cast<const Meta*>(meta);
  }

 private:
  static const void* at(const c10::TensorImpl& t, size_t offset) {
    return reinterpret_cast<const char*>(&t) + offset;
  }
  template <size_t first, size_t count>
  void copy(const void* from) {
    std::memcpy(words_ + first, from, count * kWord);
  }
  template <size_t first, size_t count>
  uint64_t difference(const void* from) const {
    uint64_t now[count], differs = 0;
    std::memcpy(now, from, sizeof(now));
#pragma GCC unroll 8
    for (size_t i = 0; i < count; i++) differs |= now[i] ^ words_[first + i];
    return differs;
  }
  // As TensorImpl::requires_grad, without its virtual call where that can be.
  static bool requires_grad(const Meta* meta) {
    if (meta == nullptr) return false;
    return meta->requires_grad_ || meta->grad_fn_ || (meta->is_view_ && meta->requires_grad());
  }

  static bool tangent(const Meta* meta) {
    return meta != nullptr && meta->fw_grad_ && !meta->fw_grad_->empty();
  }

  bool taken_ = false, wide_ = false, requires_grad_ = false;
  uint64_t words_[1 + 2 * kMostDims + kRest];
};

}  // namespace oxy::bridge
