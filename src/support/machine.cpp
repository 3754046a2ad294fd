// Machines: measured, narrowed, printed and read.
#include "support/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "support/check.h"
#include "support/text.h"

namespace oxy {
namespace {

struct InstructionSet {
  std::string_view name;
  bool Machine::* has;
};
constexpr InstructionSet kInstructionSets[] = {
    {"avx2", &Machine::avx2},
    {"avx512", &Machine::avx512},
    {"avx512_bf16", &Machine::avx512_bf16},
    {"avx512_fp16", &Machine::avx512_fp16},
    {"amx_bf16", &Machine::amx_bf16},
    {"amx_fp16", &Machine::amx_fp16},
};

int widest_vectors(const Machine& m) { return m.avx512 ? 64 : m.avx2 ? 32 : 0; }

#if defined(__x86_64__)
void read_instructions(Machine& m) {
  __builtin_cpu_init();
  m.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  m.avx512 = m.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!m.avx512) return;
  m.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    m.avx512_fp16 = d >> 23 & 1;
    m.amx_bf16 = d >> 22 & 1;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) m.amx_fp16 = a >> 21 & 1;
}
#else
void read_instructions(Machine&) {}
#endif

// Threads that share it, 1 where that is not known.
int64_t sharers_of(int level) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  for (unsigned leaf : {4U, 0x8000001DU}) {  // Intel's, AMD's
    for (unsigned i = 0; i < 8; ++i) {
      if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || (a & 31) == 0) break;
      const bool instructions = (a & 31) == 2;
      if (!instructions && static_cast<int>(a >> 5 & 7) == level) return (a >> 14 & 0xFFF) + 1;
    }
  }
#else
  static_cast<void>(level);
#endif
  return 1;
}

Machine measure() {
  Machine m;
  m.avx2 = m.avx512 = false;
  read_instructions(m);
  m.vector_bytes = widest_vectors(m);
  auto read = [](int name, int level, Cache& cache) {
    if (const int64_t bytes = sysconf(name); bytes > 0) cache = {bytes, sharers_of(level)};
  };
#ifdef _SC_LEVEL2_CACHE_SIZE
  read(_SC_LEVEL1_DCACHE_SIZE, 1, m.l1);
  read(_SC_LEVEL2_CACHE_SIZE, 2, m.l2);
  read(_SC_LEVEL3_CACHE_SIZE, 3, m.l3);
#endif
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
  if (const int64_t bytes = sysconf(_SC_LEVEL1_DCACHE_LINESIZE); bytes > 0) m.line_bytes = bytes;
#endif
  if (const int64_t bytes = sysconf(_SC_PAGESIZE); bytes > 0) m.page_bytes = bytes;
  m.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return m;
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return cat(bytes >> 20, 'M');
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return cat(bytes >> 10, 'K');
  return cat(bytes);
}

// One entry of a text, word by word.
class Entry {
 public:
  explicit Entry(std::string_view text) : text_(text), rest_(text) {}

  std::string_view word() {
    skip_blank();
    const size_t end = std::min(rest_.find_first_of(" \t/"), rest_.size());
    const std::string_view taken = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return taken;
  }
  bool accept(char c) {
    skip_blank();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  int64_t number() {
    const std::string_view w = word();
    int64_t n = 0;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), n);
    const std::string_view unit = w.substr(static_cast<size_t>(end - w.data()));
    const int shift = unit == "K" ? 10 : unit == "M" ? 20 : 0;
    if (error != std::errc() || (!unit.empty() && shift == 0) || n < 0 || n > INT64_MAX >> shift)
      fail();
    return n << shift;
  }
  int64_t positive() {
    const int64_t n = number();
    if (n == 0) fail();
    return n;
  }
  void end() {
    skip_blank();
    if (!rest_.empty()) fail();
  }
  [[noreturn]] void fail() const { throw UserError(cat("machine: cannot read \"", text_, '"')); }

 private:
  void skip_blank() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
  }
  std::string_view text_, rest_;
};

bool Machine::* instruction_set(std::string_view name) {
  for (const InstructionSet& s : kInstructionSets)
    if (s.name == name) return s.has;
  return nullptr;
}

void read_entry(Machine& m, std::string_view text) {
  Entry e(text);
  const std::string_view what = e.word();
  auto cache = [&](Cache& c) {
    c.bytes = e.number();
    c.shared_by = e.accept('/') ? e.positive() : 1;
  };
  if (what == "plain")
    for (const InstructionSet& s : kInstructionSets) m.*s.has = false;
  else if (what == "vectors")
    m.vector_bytes = static_cast<int>(std::min<int64_t>(e.number(), 64));
  else if (what == "l1")
    cache(m.l1);
  else if (what == "l2")
    cache(m.l2);
  else if (what == "l3")
    cache(m.l3);
  else if (what == "threads")
    m.threads = static_cast<int>(std::min<int64_t>(e.positive(), 1 << 16));
  else if (what == "line")
    m.line_bytes = e.positive();
  else if (what == "page")
    m.page_bytes = e.positive();
  else if (what == "onednn")
    m.onednn = true;
  else if (what == "no" && e.word() == "onednn")
    m.onednn = false;
  else if (bool Machine::* has = instruction_set(what))
    m.*has = true;
  else
    e.fail();
  e.end();
}

}  // namespace

Machine Machine::with_vectors(int bytes) const {
  Machine m = *this;
  m.vector_bytes = std::min(bytes < 32 ? 0 : bytes < 64 ? 32 : 64, widest_vectors(m));
  return m;
}

const Machine& host_machine() {
  static const Machine machine = measure();
  return machine;
}

std::string print(const Machine& m) {
  std::string out = "plain";
  for (const InstructionSet& s : kInstructionSets)
    if (m.*s.has) cat_to(out, ", ", s.name);
  auto cache = [&](std::string_view name, const Cache& c) {
    cat_to(out, ", ", name, ' ', size_text(c.bytes));
    if (c.shared_by != 1) cat_to(out, " / ", c.shared_by);
  };
  cache("l1", m.l1);
  cache("l2", m.l2);
  cache("l3", m.l3);
  cat_to(out, ", threads ", m.threads, ", line ", m.line_bytes, ", page ", m.page_bytes);
  if (m.vector_bytes != widest_vectors(m)) cat_to(out, ", vectors ", m.vector_bytes);
  return cat(out, m.onednn ? ", onednn" : ", no onednn");
}

Machine parse_machine(std::string_view text) {
  Machine m;
  m.vector_bytes = INT_MAX;
  auto take = [](std::string_view& from, char end) {
    const size_t at = std::min(from.find(end), from.size());
    const std::string_view taken = from.substr(0, at);
    from.remove_prefix(std::min(at + 1, from.size()));
    return taken;
  };
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view entry = take(line, ',');
      if (entry.find_first_not_of(" \t") != entry.npos) read_entry(m, entry);
    }
  }
  m.avx2 |= m.avx512;
  return m.with_vectors(m.vector_bytes);
}

}  // namespace oxy
