// Texts of the rows of breaks.def.
#include "python/capture/break.h"

namespace oxy::python {
namespace {

struct BreakRow {
  const char* message;
  const char* hint;
};

constexpr BreakRow kBreaks[] = {
#define OXY_BREAK(id, message, hint) {message, hint},
#include "python/capture/breaks.def"
#undef OXY_BREAK
};

std::string break_text(BreakId id, const std::string& detail) {
  const BreakRow& row = kBreaks[static_cast<size_t>(id)];
  return cat(row.message, detail.empty() ? "" : " (", detail, detail.empty() ? "" : ")",
             "; hint: ", row.hint);
}

}  // namespace

Break::Break(BreakId id, const std::string& detail)
    : std::runtime_error(break_text(id, detail)), id(id) {}

}  // namespace oxy::python
