// The program of guards.
#include "python/guards/guard_program.h"

#include <chrono>

#include "python/cpython/dict_version.h"
#include "python/cpython/object_changes.h"
#include "python/guards/guard_cache.h"
#include "python/guards/guard_text.h"
#include "python/guards/guard_walk.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// "  # model.py:12  h = x", from the innermost frame.
std::string line_text(const UserStack& stack) {
  if (stack.empty()) return "";
  const ir::Frame f = stack.innermost();
  return cat("  # ", f.file.substr(f.file.rfind('/') + 1), ":", f.line, "  ", f.code);
}

GuardProgram::Failure sharing_failure(const GuardWalk& walk, const GuardWalk::Values& values) {
  const bridge::StorageSharing& sharing = walk.tensors().sharing();
  auto [i, j] = sharing.mismatch(walk.storages(values));
  uint32_t a = walk.tensor_guards()[i], b = walk.tensor_guards()[j];
  auto name = [&](uint32_t g) { return walk.sources().text(walk.guards()[g].source); };
  const char* what = sharing.shared(i, j) ? " share no memory, did" : " share memory, did not";
  return {b, cat(name(a), " and ", name(b), what), stack_text(walk.guards()[b].stack)};
}

}  // namespace

struct GuardProgram::Impl {
  Impl(const SourceTable& sources, const GuardSet& guards, std::span<const SourceId> fetch)
      : walk(sources, guards, fetch), cache(walk) {}

  using Since = GuardCache::Since;
  using Verdict = GuardCache::Verdict;

  Verdict check_structure(PyObject* const* locals, Temporaries& made) {
    uint64_t writes = dict_writes(), changes = object_changes();
    if (!cache.kept()) return Verdict::Stale;
    Since since = changes != last_changes ? Since::ObjectsChanged
                  : writes != last_writes ? Since::DictsWritten
                                          : Since::Nothing;
    level = static_cast<Level>(since);
    Verdict verdict = cache.check_structure(locals, since, made);
    if (verdict != Verdict::Holds) return verdict;
    last_writes = writes;
    last_changes = changes;
    return verdict;
  }

  bool check(PyObject* const* locals, Fetched& fetched, Temporaries& made) {
    switch (check_structure(locals, made)) {
      case Verdict::Holds:
        return cache.check_tensors(fetched);
      case Verdict::Fails:
        return false;
      case Verdict::Stale:
        return start_anew(locals, made) && cache.check_tensors(fetched);
    }
    OXY_FAIL("verdict");
  }

  bool start_anew(PyObject* const* locals, Temporaries& made) {
    level = Level::Walk;
    GuardWalk::Values values(walk.sources().size());
    if (!walk.run(locals, values, made)) return false;
    cache.keep(values, made);
    last_writes = dict_writes();  // after the dicts that the walk may have made
    last_changes = object_changes();
    return true;
  }

  static void hand_over(const GuardWalk& walk, const GuardWalk::Values& values, Fetched& fetched) {
    fetched.reserve(walk.fetch().size());
    for (SourceId id : walk.fetch()) {
      fetched.add(values[id.index]);
    }
  }

  GuardWalk walk;
  GuardCache cache;
  uint64_t last_writes = 0, last_changes = 0;  // when the structure was last seen to hold
  Level level = Level::Walk;
  std::vector<double> nanoseconds;
};

GuardProgram::GuardProgram(const SourceTable& sources, const GuardSet& guards,
                           std::span<const SourceId> fetch)
    : impl_(std::make_unique<Impl>(sources, guards, fetch)) {}

GuardProgram::~GuardProgram() = default;

// What is dropped may run Python code when it dies (`fetched` before anything is looked at, `made` after all is done).
bool GuardProgram::check(PyObject* const* locals, Fetched& fetched) {
  fetched.clear();
  Temporaries made;
  return impl_->check(locals, fetched, made);
}

bool GuardProgram::check_structure(PyObject* const* locals) {
  Temporaries made;
  return impl_->check_structure(locals, made) == GuardCache::Verdict::Holds;
}

GuardProgram::Level GuardProgram::last_level() const { return impl_->level; }

bool GuardProgram::check_fully(PyObject* const* locals, Fetched& fetched) const {
  fetched.clear();
  Temporaries made;
  GuardWalk::Values values(impl_->walk.sources().size());
  if (!impl_->walk.run(locals, values, made)) return false;
  Impl::hand_over(impl_->walk, values, fetched);
  return true;
}

std::optional<GuardProgram::Failure> GuardProgram::why_not(PyObject* const* locals) const {
  const GuardWalk& walk = impl_->walk;
  GuardWalk::Values values(walk.sources().size());
  Temporaries made;
  walk.evaluate_all(locals, values, made);
  for (size_t i = 0; i < walk.guards().size(); ++i) {
    if (walk.guard_holds(i, values)) continue;
    const Guard& guard = walk.guards()[i];
    return Failure{i, failure_text(walk, i, values), stack_text(guard.stack),
                   guard.kind == GuardKind::Number};
  }
  for (const WalkNode& node : walk.nodes()) {
    if (values[node.id.index] || node.may_miss) continue;
    return Failure{walk.guards().size(), cat(walk.sources().text(node.id), " is gone"), ""};
  }
  if (!walk.sharing_holds(values)) return sharing_failure(walk, values);
  return std::nullopt;
}

std::vector<std::string> GuardProgram::changed_numbers(PyObject* const* locals) const {
  const GuardWalk& walk = impl_->walk;
  GuardWalk::Values values(walk.sources().size());
  Temporaries made;
  walk.evaluate_all(locals, values, made);
  std::vector<std::string> out;
  for (size_t i = 0; i < walk.guards().size(); ++i) {
    const Guard& g = walk.guards()[i];
    const PyObject* has = values[g.source.index];
    if (g.kind != GuardKind::Equals || has == nullptr || walk.guard_holds(i, values)) continue;
    const bool number = PyLong_CheckExact(has) || PyFloat_CheckExact(has);
    if (number && Py_TYPE(has) == Py_TYPE(g.expected.ptr()))
      out.push_back(walk.sources().text(g.source));
  }
  return out;
}

void GuardProgram::measure(PyObject* const* locals) {
  constexpr int kRounds = 200;
  const GuardWalk& walk = impl_->walk;
  GuardWalk::Values values(walk.sources().size());
  Temporaries made, again;
  walk.evaluate_all(locals, values, made);
  impl_->nanoseconds.assign(walk.guards().size(), 0);
  for (const WalkNode& node : walk.nodes()) {
    for (uint32_t at = node.first_guard; at < node.last_guard; ++at) {
      const uint32_t guard = walk.order()[at];
      bool all = true;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRounds; ++i, again.clear()) {
        walk.evaluate_node(node, locals, values, again);
        all &= walk.guard_holds(guard, values);
      }
      const std::chrono::duration<double, std::nano> spent =
          std::chrono::steady_clock::now() - start;
      OXY_CHECK(all, "a guard that is measured holds");
      impl_->nanoseconds[guard] = spent.count() / kRounds;
    }
  }
}

std::span<const double> GuardProgram::nanoseconds() const { return impl_->nanoseconds; }

int GuardProgram::traverse(visitproc visit, void* arg) const {
  if (int stop = impl_->walk.traverse(visit, arg)) return stop;
  return impl_->cache.traverse(visit, arg);
}

std::string GuardProgram::log_text() const { return guard_log(impl_->walk); }

std::string GuardProgram::text() const {
  std::string out;
  const GuardWalk& walk = impl_->walk;
  for (size_t i = 0; i < walk.guards().size(); ++i) {
    cat_to(out, guard_text(walk, i), line_text(walk.guards()[i].stack), "\n");
  }
  return out;
}

}  // namespace oxy::python
