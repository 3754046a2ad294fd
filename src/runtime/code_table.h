// The code that plans name: entry points by the hash of their text. A Plan is bound to a table
// where it becomes executable; who holds the table keeps the code loaded.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "runtime/host.h"
#include "runtime/plan.h"
#include "support/check.h"

namespace oxy::runtime {

class CodeTable {
 public:
  struct Entry {
    KernelFn entry = nullptr;
    std::shared_ptr<const void> owner;        // keeps the code loaded
    std::shared_ptr<const std::string> text;  // what it was compiled from
  };

  void add(const ContentHash& hash, Entry entry) {
    entries_.insert_or_assign(hash, std::move(entry));
  }
  const Entry* find(const ContentHash& hash) const {
    const auto it = entries_.find(hash);
    return it == entries_.end() ? nullptr : &it->second;
  }
  // Whether the text of any kernel has the word.
  bool mentions(std::string_view word) const {
    return std::ranges::any_of(entries_, [&](const auto& e) {
      return e.second.text && e.second.text->find(word) != std::string::npos;
    });
  }
  // By kernel of the plan. InternalError where code is missing.
  std::vector<KernelFn> entries_of(const Plan& p) const {
    std::vector<KernelFn> out;
    for (const PlanKernel& k : p.kernels) {
      const Entry* code = find(k.code);
      OXY_CHECK(code && code->entry, "no code for ", k.name);
      out.push_back(code->entry);
    }
    return out;
  }

 private:
  std::map<ContentHash, Entry> entries_;
};

}  // namespace oxy::runtime
