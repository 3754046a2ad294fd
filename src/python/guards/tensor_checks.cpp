// Compares tensors with what was seen of them, and prefetches those that come.
#include "python/guards/tensor_checks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace oxy::python {

TensorChecks::TensorChecks(const GuardWalk& walk)
    : walk_(walk), sharing_(walk.tensors().sharing()) {
  for (uint32_t g : walk.tensor_guards()) {
    const Guard& guard = walk.guards()[g];
    tensors_.push_back({.object = nullptr, .type = guard.expected.ptr()});
    sources_.push_back(guard.source.index);
  }
  storages_.resize(tensors_.size());
  const std::vector<SourceId>& fetch = walk.fetch();
  while (fetched_ < std::min(fetch.size(), sources_.size()) &&
         fetch[fetched_].index == sources_[fetched_]) {
    ++fetched_;
  }
}

void TensorChecks::keep(const GuardWalk::Values& values, const std::vector<bool>& stable) {
  live_.clear();
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].object = values[sources_[i]];
    if (!stable[sources_[i]]) live_.push_back(i);
  }
}

void TensorChecks::prefetch(const Tensor& t) {
  constexpr size_t kLine = 64;
  __builtin_prefetch(t.object, 1);
  const char* impl = reinterpret_cast<const char*>(t.impl);
  for (size_t at = 0; at < sizeof(c10::TensorImpl); at += kLine) __builtin_prefetch(impl + at);
  __builtin_prefetch(&t.meta->requires_grad_);
}

bool TensorChecks::holds(size_t i, const c10::TensorImpl& impl) {
  Tensor& t = tensors_[i];
  if (t.image.is_of(impl)) [[likely]]
    return true;
  if (!walk_.tensors().matches(i, impl)) return false;
  t.image.take(impl);
  t.impl = &impl;
  t.meta = bridge::TensorImage::meta(impl);
  return true;
}

bool TensorChecks::check(const GuardWalk::Values& values, Fetched& fetched) {
  constexpr size_t kAhead = 8;
  const std::vector<SourceId>& fetch = walk_.fetch();
  const size_t count = tensors_.size();
  for (uint32_t i : live_) tensors_[i].object = values[sources_[i]];
  fetched.reserve(fetch.size());
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch(tensors_[i + kAhead]);
    const Tensor& t = tensors_[i];
    if (!t.object || reinterpret_cast<PyObject*>(Py_TYPE(t.object)) != t.type) return false;
    const c10::TensorImpl& impl = *THPVariable_Unpack(t.object).unsafeGetTensorImpl();
    if (!holds(i, impl)) return false;
    storages_[i] = bridge::storage_of(impl);
    if (i < fetched_) fetched.add(t.object);
  }
  for (size_t i = fetched_; i < fetch.size(); ++i) fetched.add(values[fetch[i].index]);
  return sharing_.matches_again(storages_);
}

}  // namespace oxy::python
