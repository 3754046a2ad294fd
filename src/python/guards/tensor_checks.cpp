// One pass over the tensors, for each set of vector instructions that it is worth while for.
#include "python/guards/tensor_checks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/cpython/changes.h"

namespace oxy::python {
namespace {

// Images of layouts that stable tensors have in common: few, or looking for one takes its time.
constexpr uint32_t kMostShared = 24;

using Tensor = TensorChecks::Tensor;
using Image = TensorChecks::Image;

// Whether all that the guard of a tensor asks is as it was when it held. Nobody has a tangent.
[[gnu::always_inline]] inline bool is_as_before(const Tensor& t, const Image* images) {
  const auto& image =
      *reinterpret_cast<const Image*>(reinterpret_cast<const char*>(images) + t.image);
  // The type first: only then is there a tensor.
  if (Py_TYPE(t.object) != image.type) return false;
  if (THPVariable_Unpack(t.object).unsafeGetTensorImpl() != t.impl) return false;
  PyObject* dict = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(t.object) + image.dict_at);
  if (dict != t.dict || (dict != nullptr && dict_version(dict) != t.version)) return false;
  return image.words.is_of(*t.impl, t.owned);
}

// The first of the tensors [from, count) that may not be as it was. References to those in front of
// it, as far as they are among the first `fetched`, are taken and put into `out`.
using Pass = size_t (*)(const Tensor* tensors, const Image* images, size_t from, size_t count,
                        size_t fetched, PyObject** out);

[[gnu::always_inline]] inline size_t pass(const Tensor* tensors, const Image* images, size_t from,
                                          size_t count, size_t fetched, PyObject** out) {
  const size_t taken = std::min(count, fetched);
  size_t i = from;
  for (; i < taken; ++i) {
    const Tensor& t = tensors[i];
    if (!is_as_before(t, images)) return i;
    out[i] = Py_NewRef(t.object);
  }
  for (; i < count; ++i)
    if (!is_as_before(tensors[i], images)) return i;
  return i;
}

size_t plain_pass(const Tensor* tensors, const Image* images, size_t from, size_t count,
                  size_t fetched, PyObject** out) {
  return pass(tensors, images, from, count, fetched, out);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] size_t avx2_pass(const Tensor* tensors, const Image* images, size_t from,
                                         size_t count, size_t fetched, PyObject** out) {
  return pass(tensors, images, from, count, fetched, out);
}

Pass best_pass() { return __builtin_cpu_supports("avx2") ? avx2_pass : plain_pass; }
#else
Pass best_pass() { return plain_pass; }
#endif

}  // namespace

TensorChecks::TensorChecks(const GuardWalk& walk)
    : walk_(walk), images_(1 + kMostShared), sharing_(walk.tensors().sharing()) {
  for (uint32_t g : walk.tensor_guards()) {
    tensors_.push_back({.object = nullptr});
    sources_.push_back(walk.guards()[g].source.index);
  }
  const std::vector<SourceId>& fetch = walk.fetch();
  while (fetched_ < std::min(fetch.size(), sources_.size()) &&
         fetch[fetched_].index == sources_[fetched_]) {
    ++fetched_;
  }
}

void TensorChecks::keep(const GuardWalk::Values& values, const std::vector<bool>& stable) {
  live_.clear();
  is_live_.assign(tensors_.size(), false);
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].object = values[sources_[i]];
    if (stable[sources_[i]]) continue;
    live_.push_back(i);
    is_live_[i] = true;
  }
  if (shared_ < kMostShared) return;
  shared_ = 0;  // they may be of layouts that are gone
  for (Tensor& t : tensors_) t.image = 0;
}

bool TensorChecks::holds(size_t i) {
  Tensor& t = tensors_[i];
  PyObject* type = walk_.guards()[walk_.tensor_guards()[i]].expected.ptr();
  if (reinterpret_cast<PyObject*>(Py_TYPE(t.object)) != type) return false;
  const c10::TensorImpl& impl = *THPVariable_Unpack(t.object).unsafeGetTensorImpl();
  if (!walk_.tensors().matches(i, impl) || walk_.newly_hidden(i, t.object) != nullptr) return false;
  const bridge::TensorImage::Owned owned(impl);
  moved_ |= t.owned.storage != owned.storage || (t.impl != &impl && walk_.may_be_one_object());
  t.impl = &impl;
  t.owned = owned;
  t.dict = *_PyObject_GetDictPtr(t.object);
  t.version = t.dict != nullptr ? tracked_version(t.dict) : 0;
  const auto words = bridge::TensorImage::of(impl);
  t.image = words ? image_of(i, *words) * static_cast<uint32_t>(sizeof(Image)) : 0;
  return true;
}

uint32_t TensorChecks::image_of(size_t i, const bridge::TensorImage& words) {
  Tensor& t = tensors_[i];
  PyTypeObject* type = Py_TYPE(t.object);
  const Py_ssize_t dict_at =
      reinterpret_cast<char*>(_PyObject_GetDictPtr(t.object)) - reinterpret_cast<char*>(t.object);
  if (!is_live_[i]) {
    for (uint32_t at = 1; at <= shared_; ++at)
      if (images_[at].type == type && images_[at].words == words) return at;
    if (shared_ < kMostShared) {
      images_[++shared_] = {type, dict_at, words};
      return shared_;
    }
  }
  if (t.own == 0) {
    t.own = static_cast<uint32_t>(images_.size());
    images_.emplace_back();
  }
  images_[t.own] = {type, dict_at, words};
  return t.own;
}

bool TensorChecks::are_distinct() const {
  if (!walk_.may_be_one_object()) return true;
  std::vector<const void*> objects;
  for (const Tensor& t : tensors_) objects.push_back(t.object);
  const auto [i, j] = walk_.one_object(objects);
  return i == j;
}

bool TensorChecks::check(const GuardWalk::Values& values, Fetched& fetched) {
  static const Pass best = best_pass();
  for (uint32_t i : live_) {
    tensors_[i].object = values[sources_[i]];
    if (!tensors_[i].object) return false;
  }
  const size_t count = tensors_.size();
  const bool tangents = bridge::may_have_tangents();
  const std::vector<SourceId>& fetch = walk_.fetch();
  PyObject** out = fetched.room(fetch.size());
  for (size_t i = 0;; ++i) {
    if (!tangents) i = best(tensors_.data(), images_.data(), i, count, fetched_, out);
    if (i == count) break;
    if (!holds(i)) {
      fetched.filled(std::min(i, fetched_));
      return false;
    }
    if (i < fetched_) out[i] = Py_NewRef(tensors_[i].object);
  }
  for (size_t i = fetched_; i < fetch.size(); ++i) out[i] = Py_NewRef(values[fetch[i].index]);
  fetched.filled(fetch.size());
  if (!moved_) [[likely]]
    return true;
  std::vector<const void*> storages;
  for (const Tensor& t : tensors_) storages.push_back(t.owned.storage);
  moved_ = !sharing_.matches_again(storages) || !are_distinct();
  return !moved_;
}

}  // namespace oxy::python
