// The program of guards.
#include "python/guards/guard_program.h"

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
      : walk(sources, guards, fetch), values(sources.size()) {}

  void hand_over(Fetched& fetched) const {
    for (SourceId id : walk.fetch()) {
      fetched.push_back(py::reinterpret_borrow<py::object>(values[id.index]));
    }
  }

  GuardWalk walk;
  GuardWalk::Values values;
};

GuardProgram::GuardProgram(const SourceTable& sources, const GuardSet& guards,
                           std::span<const SourceId> fetch)
    : impl_(std::make_unique<Impl>(sources, guards, fetch)) {}

GuardProgram::~GuardProgram() = default;

bool GuardProgram::check(PyObject* const* locals, Fetched& fetched) {
  return check_fully(locals, fetched);
}

bool GuardProgram::check_fully(PyObject* const* locals, Fetched& fetched) {
  fetched.clear();
  Temporaries made;
  bool ok = impl_->walk.run(locals, impl_->values, made);
  if (ok) impl_->hand_over(fetched);
  return ok;
}

std::optional<GuardProgram::Failure> GuardProgram::why_not(PyObject* const* locals) const {
  const GuardWalk& walk = impl_->walk;
  GuardWalk::Values values(impl_->values.size());
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

std::string GuardProgram::text() const {
  std::string out;
  for (const Guard& guard : impl_->walk.guards()) {
    cat_to(out, guard_text(impl_->walk.sources(), guard), line_text(guard.stack), "\n");
  }
  return out;
}

}  // namespace oxy::python
