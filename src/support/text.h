// Building text: cat("a", 1, 'c') appends its arguments to one string. Floating-point numbers print
// with the fewest digits that read back to the same value.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace oxy {

inline void append(std::string& out, std::string_view s) { out.append(s); }
inline void append(std::string& out, const char* s) { out.append(s); }
inline void append(std::string& out, char c) { out.push_back(c); }
inline void append(std::string& out, bool b) { out.append(b ? "True" : "False"); }

template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append(std::string& out, T v) {
  char buf[48];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  out.append(buf, r.ptr);
}

template <class... A>
void cat_to(std::string& out, const A&... a) {
  (append(out, a), ...);
}

template <class... A>
std::string cat(const A&... a) {
  std::string s;
  cat_to(s, a...);
  return s;
}

// Without blanks around it.
inline std::string_view trim(std::string_view s) {
  s.remove_prefix(std::min(s.find_first_not_of(" \t"), s.size()));
  return s.substr(0, s.find_last_not_of(" \t") + 1);
}

// The parts between separators, trimmed; empty ones are left out.
inline std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; !s.empty(); s.remove_prefix(std::min(end + 1, s.size()))) {
    end = std::min(s.find(separator), s.size());
    if (const auto part = trim(s.substr(0, end)); !part.empty()) parts.push_back(part);
  }
  return parts;
}

// The number that the whole text is.
template <class T>
std::optional<T> parse_number(std::string_view s, int base = 10) {
  T v{};
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v, base);
  return r.ec == std::errc() && r.ptr == s.data() + s.size() ? std::optional(v) : std::nullopt;
}

// join(xs, ", ", [](std::string& out, const X& x) { ... })
template <class Range, class Fn>
std::string join(const Range& xs, std::string_view sep, Fn&& one) {
  std::string s;
  bool first = true;
  for (const auto& x : xs) {
    if (!first) s.append(sep);
    first = false;
    one(s, x);
  }
  return s;
}

}  // namespace oxy
