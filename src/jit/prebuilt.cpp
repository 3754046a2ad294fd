// Finds prebuilt code by the hash of a text, among what runs on this processor.
#include "jit/prebuilt.h"

#include <functional>
#include <vector>

namespace oxy::jit {

namespace {

class PrebuiltCode : public Code {
 public:
  explicit PrebuiltCode(KernelFn entry) : entry_(entry) {}
  KernelFn entry() const override { return entry_; }

 private:
  KernelFn entry_;
};

std::vector<Prebuilt>& usable() {
  static std::vector<Prebuilt> table;
  return table;
}

bool runs_here([[maybe_unused]] const Prebuilt& code) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return code.vector_bytes == 64 ? __builtin_cpu_supports("x86-64-v4")
                                 : __builtin_cpu_supports("x86-64-v3");
#else
  return false;
#endif
}

}  // namespace

uint64_t text_hash(std::string_view text) { return std::hash<std::string_view>()(text); }

void use_prebuilt(std::span<const Prebuilt> table) {
  for (const Prebuilt& code : table)
    if (runs_here(code)) usable().push_back(code);
}

std::shared_ptr<Code> find_prebuilt(const std::string& source) {
  const uint64_t hash = usable().empty() ? 0 : text_hash(source);
  for (const Prebuilt& code : usable())
    if (code.size == source.size() && code.hash == hash)
      return std::make_shared<PrebuiltCode>(code.entry);
  return nullptr;
}

}  // namespace oxy::jit
