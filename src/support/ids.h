// Typed 32-bit ids: an index into a table that some object owns, which cannot be mixed up with an
// id of another table.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace oxy {

template <class Tag>
struct Id {
  uint32_t index = UINT32_MAX;

  constexpr Id() = default;
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != UINT32_MAX; }
  constexpr explicit operator bool() const { return valid(); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

// A vector indexed by a typed id.
template <class IdT, class T>
class IdMap {
 public:
  IdT add(T v) {
    items_.push_back(std::move(v));
    return IdT(items_.size() - 1);
  }
  T& operator[](IdT id) { return items_[id.index]; }
  const T& operator[](IdT id) const { return items_[id.index]; }
  size_t size() const { return items_.size(); }
  bool contains(IdT id) const { return id.index < items_.size(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  void resize(size_t n) { items_.resize(n); }

 private:
  std::vector<T> items_;
};

}  // namespace oxy

template <class Tag>
struct std::hash<oxy::Id<Tag>> {
  size_t operator()(oxy::Id<Tag> id) const { return std::hash<uint32_t>()(id.index); }
};
