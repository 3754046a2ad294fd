// A vector of trivially copyable items whose first N live in the object itself: for short lists in
// hot paths.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace oxy {

template <class T, size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVector() = default;
  SmallVector(const SmallVector& o) { append(o); }
  SmallVector(SmallVector&& o) noexcept { steal(o); }
  SmallVector& operator=(SmallVector o) noexcept {
    release();
    steal(o);
    return *this;
  }
  ~SmallVector() { release(); }

  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& back() const { return data_[size_ - 1]; }

  void push_back(T v) {
    if (size_ == capacity_) [[unlikely]]
      reserve(capacity_ * 2);
    data_[size_++] = v;
  }
  void append(std::span<const T> items) {
    reserve(size_ + items.size());
    for (T v : items) data_[size_++] = v;
  }
  void truncate(size_t n) { size_ = n; }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    T* grown = static_cast<T*>(std::malloc(n * sizeof(T)));
    if (!grown) throw std::bad_alloc();
    std::memcpy(static_cast<void*>(grown), data_, size_ * sizeof(T));
    release();
    data_ = grown;
    capacity_ = n;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(buffer_); }
  void release() {
    if (data_ != inline_data()) std::free(data_);
  }
  void steal(SmallVector& o) {
    size_ = o.size_;
    if (o.data_ == o.inline_data()) {
      data_ = inline_data();
      capacity_ = N;
      std::memcpy(static_cast<void*>(data_), o.data_, size_ * sizeof(T));
    } else {
      data_ = std::exchange(o.data_, o.inline_data());
      capacity_ = std::exchange(o.capacity_, N);
    }
    o.size_ = 0;
  }

  alignas(T) unsigned char buffer_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace oxy
