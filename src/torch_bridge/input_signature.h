// What a plan was made for, compared with the tensors of a call: dtype, device, layout, key set, sizes and strides of
// every one, read again on every call, since nothing else notices `p.data = ...` or a shrunk tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

namespace oxy::bridge {

// An argument of a compiled graph: a tensor, or a number where `tensor` is null.
struct Input {
  const at::Tensor* tensor = nullptr;
  int64_t number = 0;
};

// Why a plan cannot take this tensor at all ("sparse", "a tensor subclass", ...); nullptr where it can.
const char* why_unsupported(const at::Tensor& t);

class InputSignature {
 public:
  struct Options {
    bool offsets = false;  // the storage offset matters
    bool sharing = false;  // so does which inputs share storage (where one of them is mutated)
  };
  InputSignature(std::span<const Input> example, Options options);
  bool matches(std::span<const Input> inputs) const noexcept;
  size_t size() const { return items_.size(); }

 private:
  struct Item {
    caffe2::TypeMeta dtype;
    c10::DispatchKeySet keys;  // without autograd's
    int64_t number = 0;        // a number's value; the storage offset of a tensor
    uint32_t dims = 0;         // where its sizes, then its strides begin
    int32_t rank = -1;         // -1: a number
    int32_t shares_with = -1;  // the first earlier input in the same storage
  };
  bool matches(const Item& item, const Input& input) const noexcept;
  bool sharing_matches(std::span<const Input> inputs) const noexcept;

  Options options_;
  std::vector<Item> items_;
  std::vector<int64_t> dims_;
};

}  // namespace oxy::bridge
