// The set of guards: equal ones once.
#include "python/guards/guard.h"

#include "python/guards/constants.h"

namespace oxy::python {
namespace {

bool by_value(GuardKind kind) {
  return kind == GuardKind::Equals || kind == GuardKind::Compares || kind == GuardKind::HasKey ||
         kind == GuardKind::LacksKey || kind == GuardKind::Keys || kind == GuardKind::Number;
}

// A source that has many names guarded, such as the dict of a module, has them apart.
size_t hash_of_expected(const Guard& g) {
  PyObject* p = g.expected.ptr();
  if (!by_value(g.kind)) return reinterpret_cast<size_t>(p);
  return p != nullptr && PyUnicode_CheckExact(p) ? static_cast<size_t>(PyObject_Hash(p)) : 0;
}

size_t hash_of(const Guard& g) {
  size_t h = static_cast<size_t>(g.kind) * 31 + g.source.index;
  h = h * 31 + hash_of_expected(g);
  h = h * 31 + g.other.index;
  h = h * 31 + static_cast<size_t>(g.number);
  return h * 0x9e3779b97f4a7c15ull;
}

bool same_guard(const Guard& a, const Guard& b) {
  if (a.kind != b.kind || a.source != b.source || a.other != b.other || a.number != b.number)
    return false;
  if (a.expected.is(b.expected)) return true;
  return by_value(a.kind) && a.expected && b.expected &&
         same_constant(a.expected.ptr(), b.expected.ptr());
}

}  // namespace

void GuardSet::add(Guard guard) {
  size_t hash = hash_of(guard);
  auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (same_guard(guards_[it->second], guard)) return;
  by_hash_.emplace(hash, guards_.size());
  guards_.push_back(std::move(guard));
}

}  // namespace oxy::python
