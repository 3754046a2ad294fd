// Finds what is compiled already, compiles the rest in parallel, hands each its code.
#include "jit/shared_compiler.h"

#include <algorithm>
#include <utility>

#include "jit/prebuilt.h"
#include "jit/thread_pool.h"

namespace oxy::jit {

std::shared_ptr<SharedCompiler::Slot> SharedCompiler::slot(const std::string& source) {
  std::shared_ptr<Slot>& found = slots_[source];
  if (!found) found = std::make_shared<Slot>();
  return found;
}

void SharedCompiler::forget_released() {
  // A slot that a running batch holds has more than one owner.
  std::erase_if(slots_, [](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->code.expired();
  });
}

// In a forked process nobody ends what was being compiled in the other one.
void SharedCompiler::forget_other_processes() {
  if (std::exchange(forks_, ForkMutex::forks()) != forks_) slots_.clear();
}

std::vector<std::shared_ptr<Code>> SharedCompiler::compile(const std::vector<std::string>& sources,
                                                           int threads) {
  std::vector<std::shared_ptr<Slot>> slots;
  std::vector<size_t> first;  // of each distinct text, where it stands
  {
    std::lock_guard lock(mutex_);
    forget_other_processes();
    forget_released();
    std::map<const Slot*, size_t> seen;  // only looked up, never iterated
    for (size_t i = 0; i < sources.size(); i++) {
      slots.push_back(slot(sources[i]));
      if (seen.emplace(slots[i].get(), i).second) first.push_back(i);
    }
  }
  // The longest texts first, so that no thread is left alone with a long one at the end.
  std::sort(first.begin(), first.end(),
            [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  std::vector<std::shared_ptr<Code>> result(sources.size());
  parallel_for(first.size(), threads, [&](size_t n) {
    Slot& mine = *slots[first[n]];
    std::lock_guard lock(mine.compiling);
    std::shared_ptr<Code> code = mine.code.lock();
    if (!code) code = find_prebuilt(sources[first[n]]);
    if (!code) code = build(sources[first[n]]);
    mine.code = code;
    result[first[n]] = std::move(code);
  });
  if (!first.empty()) finished();
  for (size_t i = 0; i < sources.size(); i++)
    if (!result[i]) result[i] = slots[i]->code.lock();  // held by the first with this text
  return result;
}

}  // namespace oxy::jit
