// The code that plans name: entry points by the hash of their text. A Plan is bound to a table
// where it becomes executable; who holds the table keeps the code loaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernel_fn.h"
#include "runtime/plan.h"

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
  const Entry* find(const ContentHash& hash) const;
  // By kernel of the plan. InternalError where code is missing.
  std::vector<KernelFn> entries_of(const Plan& p) const;

 private:
  std::map<ContentHash, Entry> entries_;
};

}  // namespace oxy::runtime
