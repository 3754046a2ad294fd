// Whose fault is it? A UserError is the user's (bad option, bad input) and reaches them as it is;
// an InternalError is ours: compilation stops, the call runs in eager, and one warning says how to
// see more (OXYFUEL_STRICT=1 raises it). Their types are visible: one library throws what another
// catches.
#pragma once

#include <stdexcept>

#include "support/text.h"

namespace oxy {

class [[gnu::visibility("default")]] UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class [[gnu::visibility("default")]] InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something that is right but that we do not compile (a sparse input, say). `what()` names it for
// the user.
class [[gnu::visibility("default")]] Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void internal_error(std::string_view file, int line,
                                                                  const std::string& what) {
  throw InternalError(cat(what, " (", file.substr(file.rfind('/') + 1), ":", line, ")"));
}

}  // namespace oxy

// An invariant of ours. The message is built only when the check fails.
#define OXY_CHECK(cond, ...)                                                        \
  do {                                                                              \
    if (!(cond)) [[unlikely]]                                                       \
      ::oxy::internal_error(__FILE__, __LINE__,                                     \
                            ::oxy::cat("check failed: " #cond " ", ##__VA_ARGS__)); \
  } while (0)
#define OXY_FAIL(...) ::oxy::internal_error(__FILE__, __LINE__, ::oxy::cat(__VA_ARGS__))
