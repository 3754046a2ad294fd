// Logs: a fixed set of artefacts (artifacts.def), each on or off, written to stderr as torch's logs
// are. Threads may log and change the configuration at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

namespace oxy {

enum class Artifact : uint8_t {
#define OXY_ARTIFACT(name, help) name,
#include "support/artifacts.def"
#undef OXY_ARTIFACT
};

struct ArtifactInfo {
  std::string_view name;
  std::string_view help;
};

std::span<const ArtifactInfo> artifact_table();  // in the order of the enum
std::string_view name_of(Artifact a);

// Which artefacts are on: a bit each.
struct LogSet {
  uint32_t bits = 0;

  // "fusion,+aot_graphs,-perf": names with + (or nothing) go on, with - off, "all" means each; the
  // later one counts. Throws UserError for an unknown name; the message lists the known ones.
  static LogSet parse(std::string_view text);

  bool contains(Artifact a) const { return bits >> static_cast<unsigned>(a) & 1; }
  friend bool operator==(LogSet, LogSet) = default;
};

// The process's configuration: everything off until somebody says otherwise.
extern std::atomic<LogSet> log_configuration;

inline bool log_enabled(Artifact a) {
  return log_configuration.load(std::memory_order_relaxed).contains(a);
}
// Writes an artefact that is on; does nothing for one that is off.
void log(Artifact a, std::string_view header, std::string_view text);

}  // namespace oxy
