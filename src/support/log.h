// Logs: a fixed set of artefacts (artifacts.def), each on or off, and one sink for the process, as
// torch's logs have. Threads may log and change the configuration at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "support/fork_mutex.h"

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

// Which artefacts are on.
class LogSet {
 public:
  // "fusion,+aot_graphs,-perf": names with + (or nothing) go on, with - off, "all" means each; the
  // later one counts. Throws UserError for an unknown name; the message lists the known ones.
  static LogSet parse(std::string_view text);

  void set(Artifact a, bool on);
  bool contains(Artifact a) const { return bits_ >> static_cast<unsigned>(a) & 1; }
  uint32_t bits() const { return bits_; }
  friend bool operator==(LogSet, LogSet) = default;

 private:
  friend class Logs;
  uint32_t bits_ = 0;
};

using LogSink = std::function<void(Artifact, std::string_view header, std::string_view text)>;

class Logs {
 public:
  // The process's configuration: everything off, the sink stderr, until somebody says otherwise.
  static Logs& instance();

  void configure(LogSet set) { bits_.store(set.bits_, std::memory_order_relaxed); }
  LogSet configuration() const;
  bool enabled(Artifact a) const { return configuration().contains(a); }
  // An empty function brings stderr back. The sink is called without a lock held, from any thread.
  void set_sink(LogSink sink);
  // Hands an artefact that is on to the sink; does nothing for one that is off.
  void log(Artifact a, std::string_view header, std::string_view text);

 private:
  std::atomic<uint32_t> bits_{0};
  ForkMutex mutex_;
  std::shared_ptr<const LogSink> sink_;  // guarded by mutex_; null: stderr
};

inline bool log_enabled(Artifact a) { return Logs::instance().enabled(a); }
inline void log(Artifact a, std::string_view header, std::string_view text) {
  Logs::instance().log(a, header, text);
}

}  // namespace oxy
