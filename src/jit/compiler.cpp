// Finds what is compiled already, here or with the library, compiles the rest in parallel, hands
// each its code.
#include "jit/compiler.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "jit/prebuilt_functions.h"

namespace oxy::jit {
namespace {

// Prebuilt code that runs on this processor.
std::vector<Prebuilt>& usable() {
  static std::vector<Prebuilt> table;
  return table;
}

std::vector<PrebuiltFunction>& functions() {
  static std::vector<PrebuiltFunction> table;
  return table;
}

// nullptr where the text is none of them.
std::shared_ptr<Code> find_prebuilt(const std::string& source) {
  const uint64_t hash = usable().empty() ? 0 : text_hash(source);
  for (const Prebuilt& code : usable())
    if (code.size == source.size() && code.hash == hash) return std::make_shared<Code>(code.entry);
  return nullptr;
}

// A signal of the user (Ctrl-C) belongs to a thread of theirs. New threads inherit the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Calls body(0) .. body(count - 1), each once, on up to `threads` threads, the caller's among them,
// which are joined before it returns: none is alive at exit or at a fork. After the first exception
// no further index is started; that exception is thrown again here.
template <class Body>
void parallel_for(size_t count, int threads, const Body& body) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  {
    SignalsBlocked blocked;
    size_t wanted = std::min(count, static_cast<size_t>(std::max(threads, 1)));
    try {
      while (others.size() + 1 < wanted) others.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: go on with those that are there.
    }
  }
  work();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

uint64_t text_hash(std::string_view text) { return std::hash<std::string_view>()(text); }

bool has_vectors([[maybe_unused]] int vector_bytes) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return vector_bytes == 64 ? __builtin_cpu_supports("x86-64-v4")
                            : __builtin_cpu_supports("x86-64-v3");
#else
  return false;
#endif
}

void use_prebuilt(std::span<const Prebuilt> table) {
  for (const Prebuilt& code : table)
    if (has_vectors(code.vector_bytes)) usable().push_back(code);
}

void use_prebuilt_functions(std::span<const PrebuiltFunction> table) {
  for (const PrebuiltFunction& function : table)
    if (has_vectors(function.vector_bytes)) functions().push_back(function);
}

std::span<const PrebuiltFunction> usable_functions() { return functions(); }

std::vector<std::shared_ptr<Code>> Compiler::build_together(
    std::span<const std::string* const> sources) {
  std::vector<std::shared_ptr<Code>> out;
  for (const std::string* source : sources) out.push_back(build(*source));
  return out;
}

// What there is already; the slot's mutex is held.
std::shared_ptr<Code> Compiler::find(Slot& slot, const std::string& source) {
  std::shared_ptr<Code> code = slot.code.lock();
  if (!code) slot.code = code = find_prebuilt(source);
  return code;
}

void Compiler::compile_missing(std::span<const std::string* const> sources,
                               std::span<Slot* const> slots,
                               std::span<std::shared_ptr<Code>* const> result) {
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<size_t> missing;
  std::vector<const std::string*> texts;
  for (size_t i = 0; i < sources.size(); i++) {
    locks.emplace_back(slots[i]->compiling);
    if ((*result[i] = find(*slots[i], *sources[i]))) continue;
    missing.push_back(i);
    texts.push_back(sources[i]);
  }
  if (missing.empty()) return;
  std::vector<std::shared_ptr<Code>> built = build_together(texts);
  for (size_t k = 0; k < missing.size(); k++)
    slots[missing[k]]->code = *result[missing[k]] = std::move(built[k]);
}

std::vector<std::shared_ptr<Code>> Compiler::compile(const std::vector<std::string>& sources,
                                                     int threads) {
  std::vector<std::shared_ptr<Slot>> slots;
  std::vector<size_t> first;  // of each distinct text, where it stands
  {
    std::lock_guard lock(mutex_);
    // In a forked process nobody ends what was being compiled in the other one.
    if (std::exchange(forks_, ForkMutex::forks()) != ForkMutex::forks()) slots_.clear();
    // What is released goes. A slot that a running batch holds has more than one owner.
    std::erase_if(slots_, [](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->code.expired();
    });
    std::map<const Slot*, size_t> seen;  // only looked up, never iterated
    for (size_t i = 0; i < sources.size(); i++) {
      std::shared_ptr<Slot>& slot = slots_[sources[i]];
      if (!slot) slot = std::make_shared<Slot>();
      slots.push_back(slot);
      if (seen.emplace(slots[i].get(), i).second) first.push_back(i);
    }
  }
  std::vector<std::shared_ptr<Code>> result(sources.size());
  // Another thread may be compiling a text: waited for below.
  std::erase_if(first, [&](size_t i) {
    const std::unique_lock lock(slots[i]->compiling, std::try_to_lock);
    return lock && (result[i] = find(*slots[i], sources[i]));
  });
  // The longest texts first, so that no thread is left alone with a long one at the end; batches of
  // like sizes, as many for each thread and two at least, since the sizes tell little of the times.
  std::sort(first.begin(), first.end(),
            [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const auto per_round = static_cast<size_t>(std::max(threads, 1));
  const size_t rounds =
      std::max<size_t>(2, (first.size() + batch() * per_round - 1) / (batch() * per_round));
  const size_t batches = std::min(first.size(), rounds * per_round);
  parallel_for(batches, threads, [&](size_t n) {
    std::vector<size_t> mine;
    for (size_t i = n; i < first.size(); i += batches) mine.push_back(first[i]);
    // In one order, as whoever else compiles some of them takes them.
    std::ranges::sort(mine, std::less<>(), [&](size_t i) { return slots[i].get(); });
    std::vector<const std::string*> texts;
    std::vector<Slot*> places;
    std::vector<std::shared_ptr<Code>*> codes;
    for (const size_t i : mine) {
      texts.push_back(&sources[i]);
      places.push_back(slots[i].get());
      codes.push_back(&result[i]);
    }
    compile_missing(texts, places, codes);
  });
  if (!first.empty()) finished();
  for (size_t i = 0; i < sources.size(); i++)
    if (!result[i]) result[i] = slots[i]->code.lock();  // held by the first with this text
  return result;
}

}  // namespace oxy::jit
