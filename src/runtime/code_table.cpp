// Looks up the entry points of the kernels of a plan.
#include "runtime/code_table.h"

#include "support/check.h"

namespace oxy::runtime {

const CodeTable::Entry* CodeTable::find(const ContentHash& hash) const {
  const auto it = entries_.find(hash);
  return it == entries_.end() ? nullptr : &it->second;
}

std::vector<KernelFn> CodeTable::entries_of(const Plan& p) const {
  std::vector<KernelFn> out;
  for (const PlanKernel& k : p.kernels) {
    const Entry* code = find(k.code);
    OXY_CHECK(code && code->entry, "no code for ", k.name);
    out.push_back(code->entry);
  }
  return out;
}

}  // namespace oxy::runtime
