// The program of guards.
#include "python/guards/guard_program.h"

#include "python/cpython/dict_version.h"
#include "python/guards/guard_cache.h"
#include "python/guards/guard_text.h"
#include "python/guards/guard_walk.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// "  # model.py:12  h = x", from the innermost frame.
std::string line_text(const std::vector<ir::Frame>& stack) {
  if (stack.empty()) return "";
  const ir::Frame& f = stack.back();
  return cat("  # ", f.file.substr(f.file.rfind('/') + 1), ":", f.line, "  ", f.code);
}

}  // namespace

struct GuardProgram::Impl {
  Impl(const SourceTable& sources, const GuardSet& guards, std::span<const SourceId> fetch)
      : walk(sources, guards, fetch), cache(walk) {}

  // The objects of all sources where everything holds, nullptr otherwise.
  const GuardWalk::Values* check(PyObject* const* locals, Temporaries& made) {
    uint64_t writes = dict_writes();
    if (!cache.kept()) return check_fully(locals, made);
    switch (cache.check(locals, writes == last_writes, made)) {
      case GuardCache::Verdict::Holds:
        last_writes = writes;
        return &cache.values();
      case GuardCache::Verdict::Fails:
        return nullptr;
      case GuardCache::Verdict::Stale:
        break;
    }
    return check_fully(locals, made);
  }

  const GuardWalk::Values* check_fully(PyObject* const* locals, Temporaries& made) {
    GuardWalk::Values values(walk.sources().size());
    if (!walk.run(locals, values, made)) return nullptr;
    cache.keep(values, made);
    last_writes = dict_writes();  // after the dicts that the walk may have made
    return &cache.values();
  }

  static void hand_over(const GuardWalk& walk, const GuardWalk::Values& values, Fetched& fetched) {
    for (SourceId id : walk.fetch()) {
      fetched.push_back(py::reinterpret_borrow<py::object>(values[id.index]));
    }
  }

  GuardWalk walk;
  GuardCache cache;
  uint64_t last_writes = 0;
};

GuardProgram::GuardProgram(const SourceTable& sources, const GuardSet& guards,
                           std::span<const SourceId> fetch)
    : impl_(std::make_unique<Impl>(sources, guards, fetch)) {}

GuardProgram::~GuardProgram() = default;

// What is dropped may run Python code when it dies (`fetched` before anything is looked at, `made` after all is done).
bool GuardProgram::check(PyObject* const* locals, Fetched& fetched) {
  fetched.clear();
  Temporaries made;
  const GuardWalk::Values* values = impl_->check(locals, made);
  if (values) Impl::hand_over(impl_->walk, *values, fetched);
  return values;
}

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
    return Failure{i, failure_text(walk.sources(), guard, values[guard.source.index])};
  }
  for (const WalkNode& node : walk.nodes()) {
    if (values[node.id.index] || node.may_miss) continue;
    return Failure{walk.guards().size(), cat(walk.sources().text(node.id), " is gone")};
  }
  return std::nullopt;
}

int GuardProgram::traverse(visitproc visit, void* arg) const {
  if (int stop = impl_->walk.traverse(visit, arg)) return stop;
  return impl_->cache.traverse(visit, arg);
}

std::string GuardProgram::text() const {
  std::string out;
  for (const Guard& guard : impl_->walk.guards()) {
    cat_to(out, guard_text(impl_->walk.sources(), guard), line_text(guard.stack), "\n");
  }
  return out;
}

}  // namespace oxy::python
