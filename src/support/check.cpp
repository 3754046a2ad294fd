// Throws internal errors with the file and line of the check.
#include "support/check.h"

#include <cstring>

namespace oxy {

void internal_error(const char* file, int line, const std::string& what) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(cat(what, " (", base ? base + 1 : file, ":", line, ")"));
}

}  // namespace oxy
