// Machines: measured, narrowed, printed and read.
#include "support/machine.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "support/check.h"
#include "support/lexer.h"

namespace oxy {
namespace {

template <class T>
using Named = std::pair<std::string_view, T Machine::*>;

constexpr Named<bool> kInstructionSets[] = {
    {"avx2", &Machine::avx2},
    {"avx512", &Machine::avx512},
    {"avx512_bf16", &Machine::avx512_bf16},
    {"avx512_fp16", &Machine::avx512_fp16},
    {"amx_bf16", &Machine::amx_bf16},
    {"amx_fp16", &Machine::amx_fp16},
};
constexpr Named<Cache> kCaches[] = {
    {"l1", &Machine::l1}, {"l2", &Machine::l2}, {"l3", &Machine::l3}};
constexpr Named<int64_t> kSizes[] = {{"line", &Machine::line_bytes},
                                     {"page", &Machine::page_bytes}};

template <class T, size_t N>
T Machine::* find(const Named<T> (&members)[N], std::string_view name) {
  for (const auto& [known, member] : members)
    if (known == name) return member;
  return nullptr;
}

int widest_vectors(const Machine& m) { return m.avx512 ? 64 : m.avx2 ? 32 : 0; }

#if defined(__x86_64__)
// Linux saves tiles for processes that have asked for them: ARCH_REQ_XCOMP_PERM of XTILEDATA.
bool may_use_tiles() {
#ifdef SYS_arch_prctl
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

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
    m.amx_bf16 = (d >> 22 & 1) && may_use_tiles();
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) m.amx_fp16 = m.amx_bf16 && (a >> 21 & 1);
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

// A number, with K or M right behind it.
int64_t read_size(Lexer& e) {
  const char unit = e.after();
  const int shift = unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
  const int64_t n = e.integer();
  if (shift > 0) e.expect(std::string_view(&unit, 1));
  if (n < 0 || n > INT64_MAX >> shift) e.fail("a size out of range");
  return n << shift;
}

int64_t read_positive(Lexer& e) {
  const int64_t n = read_size(e);
  if (n == 0) e.fail("a size of 0");
  return n;
}

void read_entry(Machine& m, std::string_view text) try {
  Lexer e(text);
  const std::string what = e.identifier();
  if (what == "plain")
    for (const auto& [name, has] : kInstructionSets) m.*has = false;
  else if (what == "vectors")
    m.vector_bytes = static_cast<int>(std::min<int64_t>(read_size(e), 64));
  else if (what == "threads")
    m.threads = static_cast<int>(std::min<int64_t>(read_positive(e), 1 << 16));
  else if (what == "onednn")
    m.onednn = true;
  else if (what == "no" && e.accept("onednn"))
    m.onednn = false;
  else if (auto cache = find(kCaches, what))
    m.*cache = {read_size(e), e.accept("/") ? read_positive(e) : 1};
  else if (auto bytes = find(kSizes, what))
    m.*bytes = read_positive(e);
  else if (auto has = find(kInstructionSets, what))
    m.*has = true;
  else
    e.fail("an unknown word");
  if (!e.at_end()) e.fail("too many words");
} catch (const UserError&) {
  throw UserError(cat("machine: cannot read \"", text, '"'));
}

// `m` with the entries of a text.
Machine read(Machine m, std::string_view text) {
  m.vector_bytes = INT_MAX;
  for (std::string_view line : split(text, '\n'))
    for (std::string_view entry : split(line.substr(0, line.find('#')), ',')) read_entry(m, entry);
  m.avx2 |= m.avx512;
  return m.with_vectors(m.vector_bytes);
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
  for (const auto& [name, has] : kInstructionSets)
    if (m.*has) cat_to(out, ", ", name);
  for (const auto& [name, cache] : kCaches) {
    cat_to(out, ", ", name, ' ', size_text((m.*cache).bytes));
    if ((m.*cache).shared_by != 1) cat_to(out, " / ", (m.*cache).shared_by);
  }
  cat_to(out, ", threads ", m.threads, ", line ", m.line_bytes, ", page ", m.page_bytes);
  if (m.vector_bytes != widest_vectors(m)) cat_to(out, ", vectors ", m.vector_bytes);
  return cat(out, m.onednn ? ", onednn" : ", no onednn");
}

Machine parse_machine(std::string_view text) { return read(Machine(), text); }

Machine host_machine_with(std::string_view text) {
  const Machine& host = host_machine();
  Machine m = read(host, text);
  for (const auto& [name, has] : kInstructionSets) m.*has = m.*has && host.*has;
  return m.with_vectors(m.vector_bytes);
}

}  // namespace oxy
