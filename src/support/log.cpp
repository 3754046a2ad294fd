// Reading a set of artefacts, and writing them.
#include "support/log.h"

#include <cstdio>

#include "support/check.h"

namespace oxy {
namespace {

constexpr ArtifactInfo kArtifacts[] = {
#define OXY_ARTIFACT(name, help) {#name, help},
#include "support/artifacts.def"
#undef OXY_ARTIFACT
};
static_assert(std::size(kArtifacts) <= 32, "LogSet has 32 bits");

constexpr uint32_t kAll = (uint64_t{1} << std::size(kArtifacts)) - 1;

uint32_t bits_of(std::string_view name) {
  if (name == "all") return kAll;
  for (size_t i = 0; i < std::size(kArtifacts); ++i)
    if (kArtifacts[i].name == name) return uint32_t{1} << i;
  std::string known =
      join(kArtifacts, ", ", [](std::string& out, const ArtifactInfo& a) { append(out, a.name); });
  throw UserError(cat("unknown log artefact \"", name, "\"; the known ones are: ", known, ", all"));
}

}  // namespace

std::atomic<LogSet> log_configuration{};

std::span<const ArtifactInfo> artifact_table() { return kArtifacts; }
std::string_view name_of(Artifact a) { return kArtifacts[static_cast<size_t>(a)].name; }

LogSet LogSet::parse(std::string_view text) {
  LogSet set;
  for (std::string_view item : split(text, ',')) {
    const bool off = item.front() == '-';
    if (off || item.front() == '+') item.remove_prefix(1);
    const uint32_t named = bits_of(item);
    set.bits = off ? set.bits & ~named : set.bits | named;
  }
  return set;
}

void log(Artifact a, std::string_view header, std::string_view text) {
  if (!log_enabled(a)) return;
  std::string out = cat("[oxyfuel ", name_of(a), "] ", header, '\n', text);
  if (out.back() != '\n') out += '\n';
  // One call, so that threads do not mix their lines.
  std::fwrite(out.data(), 1, out.size(), stderr);
}

}  // namespace oxy
