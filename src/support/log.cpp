// Reading a set of artefacts, and handing text to the sink.
#include "support/log.h"

#include <cstdio>

#include "support/check.h"

namespace oxy {
namespace {

constexpr ArtifactInfo kTable[] = {
#define OXY_ARTIFACT(name, help) {#name, help},
#include "support/artifacts.def"
#undef OXY_ARTIFACT
};
static_assert(std::size(kTable) <= 32, "LogSet has 32 bits");

constexpr uint32_t kAll = (uint64_t{1} << std::size(kTable)) - 1;

uint32_t bits_of(std::string_view name) {
  if (name == "all") return kAll;
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].name == name) return uint32_t{1} << i;
  }
  std::string known =
      join(kTable, ", ", [](std::string& out, const ArtifactInfo& a) { append(out, a.name); });
  throw UserError(cat("unknown log artefact \"", name, "\"; the known ones are: ", known, ", all"));
}

std::string_view trim(std::string_view s) {
  size_t begin = s.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t") - begin + 1);
}

void write_to_stderr(Artifact a, std::string_view header, std::string_view text) {
  std::string out = cat("[oxyfuel ", name_of(a), "] ", header, '\n', text);
  if (out.back() != '\n') out += '\n';
  std::fwrite(out.data(), 1, out.size(),
              stderr);  // one call, so that threads do not mix their lines
}

}  // namespace

std::span<const ArtifactInfo> artifact_table() { return kTable; }
std::string_view name_of(Artifact a) { return kTable[static_cast<size_t>(a)].name; }

LogSet LogSet::parse(std::string_view text) {
  LogSet set;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view item = trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    bool off = item.front() == '-';
    if (off || item.front() == '+') item.remove_prefix(1);
    uint32_t bits = bits_of(item);
    set.bits_ = off ? set.bits_ & ~bits : set.bits_ | bits;
  }
  return set;
}

void LogSet::set(Artifact a, bool on) {
  uint32_t bit = uint32_t{1} << static_cast<unsigned>(a);
  bits_ = on ? bits_ | bit : bits_ & ~bit;
}

Logs& Logs::instance() {
  static Logs logs;
  return logs;
}

LogSet Logs::configuration() const {
  LogSet set;
  set.bits_ = bits_.load(std::memory_order_relaxed);
  return set;
}

void Logs::set_sink(LogSink sink) {
  auto shared = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  std::lock_guard lock(mutex_);
  sink_.swap(shared);  // the old one dies after the lock
}

void Logs::log(Artifact a, std::string_view header, std::string_view text) {
  if (!enabled(a)) return;
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard lock(mutex_);
    sink = sink_;
  }
  if (sink) {
    (*sink)(a, header, text);
  } else {
    write_to_stderr(a, header, text);
  }
}

}  // namespace oxy
