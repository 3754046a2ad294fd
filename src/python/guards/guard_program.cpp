// The program of guards.
#include "python/guards/guard_program.h"

#include <chrono>

#include "python/cpython/changes.h"
#include "python/guards/guard.h"
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
  const bool one = i == j;
  if (one) std::tie(i, j) = walk.one_object(walk.objects(values));
  uint32_t a = walk.tensor_guards()[i], b = walk.tensor_guards()[j];
  auto name = [&](uint32_t g) { return walk.sources().text(walk.guards()[g].source); };
  const char* what = one                    ? " are one object, were two"
                     : sharing.shared(i, j) ? " share no memory, did"
                                            : " share memory, did not";
  return {b, cat(name(a), " and ", name(b), what), stack_text(walk.guards()[b].stack)};
}

}  // namespace

GuardCache::Verdict GuardProgram::check_structure(PyObject* const* locals, Temporaries& made) {
  uint64_t writes = dict_writes(), changes = object_changes();
  if (!cache_.kept()) return GuardCache::Verdict::Stale;
  level_ = changes != last_changes_ ? Level::ObjectsChanged
           : writes != last_writes_ ? Level::DictsWritten
                                    : Level::NothingWritten;
  const GuardCache::Verdict verdict = cache_.check_structure(locals, level_, made);
  if (verdict == GuardCache::Verdict::Holds) {
    last_writes_ = writes;
    last_changes_ = changes;
  }
  return verdict;
}

bool GuardProgram::start_anew(PyObject* const* locals, Temporaries& made) {
  level_ = Level::Walk;
  GuardWalk::Values values(walk_.sources().size());
  if (!walk_.run(locals, values, made)) return false;
  cache_.keep(values, made);
  last_writes_ = dict_writes();  // after the dicts that the walk may have made
  last_changes_ = object_changes();
  return true;
}

// What is dropped may run Python code when it dies (`fetched` before anything is looked at, `made`
// after all is done).
bool GuardProgram::check(PyObject* const* locals, Fetched& fetched) {
  fetched.clear();
  Temporaries made;
  const GuardCache::Verdict verdict = check_structure(locals, made);
  if (verdict == GuardCache::Verdict::Fails) return false;
  if (verdict == GuardCache::Verdict::Stale && !start_anew(locals, made)) return false;
  if (!cache_.check_tensors(fetched)) return false;
  return shapes_ == nullptr || shapes_->check(fetched);
}

bool GuardProgram::check_structure(PyObject* const* locals) {
  Temporaries made;
  return check_structure(locals, made) == GuardCache::Verdict::Holds;
}

bool GuardProgram::check_fully(PyObject* const* locals, Fetched& fetched) const {
  fetched.clear();
  Temporaries made;
  GuardWalk::Values values(walk_.sources().size());
  if (!walk_.run(locals, values, made)) return false;
  fetched.reserve(walk_.fetch().size());
  for (SourceId id : walk_.fetch()) fetched.add(values[id.index]);
  return shapes_ == nullptr || shapes_->check(fetched);
}

// What can be evaluated is, whatever the guards say.
GuardWalk::Values GuardProgram::all_values(PyObject* const* locals, Temporaries& made) const {
  GuardWalk::Values values(walk_.sources().size());
  for (const WalkNode& node : walk_.nodes())
    values[node.id.index] = walk_.evaluate_node(node, locals, values, made);
  return values;
}

std::optional<GuardProgram::Failure> GuardProgram::why_not(PyObject* const* locals) const {
  Temporaries made;
  const GuardWalk::Values values = all_values(locals, made);
  for (size_t i = 0; i < walk_.guards().size(); ++i) {
    if (walk_.guard_holds(i, values)) continue;
    const Guard& guard = walk_.guards()[i];
    Failure out{i, failure_text(walk_, i, values), stack_text(guard.stack),
                guard.kind == GuardKind::Number};
    SourceId root = guard.source;
    while (walk_.sources()[root].base.valid()) root = walk_.sources()[root].base;
    if (walk_.sources()[root].kind == SourceKind::Local) out.local = walk_.sources()[root].index;
    return out;
  }
  for (const WalkNode& node : walk_.nodes()) {
    if (values[node.id.index] || node.may_miss) continue;
    return Failure{walk_.guards().size(), cat(walk_.sources().text(node.id), " is gone"), ""};
  }
  if (!walk_.sharing_holds(values)) return sharing_failure(walk_, values);
  if (shapes_ == nullptr) return std::nullopt;
  std::vector<PyObject*> fetched;
  for (SourceId id : walk_.fetch()) fetched.push_back(values[id.index]);
  if (auto why = shapes_->why_not(fetched))
    return Failure{walk_.guards().size(), std::move(why->text), std::move(why->where)};
  return std::nullopt;
}

std::vector<std::pair<std::string, bool>> GuardProgram::changed_numbers(
    PyObject* const* locals) const {
  Temporaries made;
  const GuardWalk::Values values = all_values(locals, made);
  std::vector<std::pair<std::string, bool>> out;
  for (size_t i = 0; i < walk_.guards().size(); ++i) {
    const Guard& g = walk_.guards()[i];
    const PyObject* has = values[g.source.index];
    // A scalar of NumPy's is a tensor.
    const bool scalar =
        g.kind == GuardKind::Number && walk_.sources()[g.source].kind == SourceKind::ArrayTensor;
    if (scalar && has != nullptr && !walk_.guard_holds(i, values))
      out.emplace_back(walk_.sources().text(g.source), false);
    if (g.kind != GuardKind::Equals || has == nullptr || walk_.guard_holds(i, values)) continue;
    auto is_number = [](const PyObject* o) {
      return PyLong_CheckExact(o) || PyFloat_CheckExact(o);
    };
    if (is_number(has) && is_number(g.expected.ptr()))
      out.emplace_back(walk_.sources().text(g.source), PyLong_CheckExact(has));
  }
  return out;
}

std::vector<GuardProgram::ChangedSizes> GuardProgram::changed_sizes(PyObject* const* locals) const {
  Temporaries made;
  const GuardWalk::Values values = all_values(locals, made);
  std::vector<ChangedSizes> out;
  for (size_t i = 0; i < walk_.tensor_guards().size(); i++) {
    const SourceId source = walk_.guards()[walk_.tensor_guards()[i]].source;
    PyObject* has = values[source.index];
    if (has == nullptr || !THPVariable_Check(has)) continue;
    auto [dims, strides, ranks] = walk_.tensors().changed(i, THPVariable_Unpack(has));
    if (dims.empty() && strides.empty() && ranks == 0) continue;
    std::vector<int64_t> before;
    for (const int64_t d : dims) before.push_back(walk_.tensors().size(i, d));
    out.push_back({walk_.sources().text(source), std::move(dims), std::move(before),
                   std::move(strides), ranks});
  }
  return out;
}

std::vector<std::string> GuardProgram::tensor_sources() const {
  std::vector<std::string> out;
  for (const uint32_t guard : walk_.tensor_guards())
    out.push_back(walk_.sources().text(walk_.guards()[guard].source));
  return out;
}

void GuardProgram::measure(PyObject* const* locals) {
  constexpr int kRounds = 200;
  Temporaries made, again;
  const GuardWalk::Values values = all_values(locals, made);
  nanoseconds_.assign(walk_.guards().size(), 0);
  for (const WalkNode& node : walk_.nodes()) {
    for (uint32_t at = node.first_guard; at < node.last_guard; ++at) {
      const uint32_t guard = walk_.order()[at];
      bool all = true;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRounds; ++i, again.clear()) {
        walk_.evaluate_node(node, locals, values, again);
        all &= walk_.guard_holds(guard, values);
      }
      const std::chrono::duration<double, std::nano> spent =
          std::chrono::steady_clock::now() - start;
      OXY_CHECK(all, "a guard that is measured holds");
      nanoseconds_[guard] = spent.count() / kRounds;
    }
  }
  if (shapes_ == nullptr) return;
  Fetched fetched;
  for (SourceId id : walk_.fetch()) fetched.add(values[id.index]);
  const size_t count = shapes_->conditions().size();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i)
    OXY_CHECK(shapes_->fits(fetched), "sizes that are measured fit");
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  // They are one program.
  nanoseconds_.resize(nanoseconds_.size() + count,
                      spent.count() / kRounds / static_cast<double>(std::max<size_t>(1, count)));
}

int GuardProgram::traverse(visitproc visit, void* arg) const {
  if (int stop = walk_.traverse(visit, arg)) return stop;
  if (shapes_)
    if (int stop = shapes_->traverse(visit, arg)) return stop;
  return cache_.traverse(visit, arg);
}

std::string GuardProgram::text() const {
  std::string out;
  for (size_t i = 0; i < walk_.guards().size(); ++i)
    cat_to(out, guard_text(walk_, i), line_text(walk_.guards()[i].stack), "\n");
  if (shapes_)
    for (const ShapeGuards::Failure& c : shapes_->conditions()) cat_to(out, c.text, "\n");
  return out;
}

std::string GuardProgram::log_text() const {
  std::string out = guard_log(walk_);
  if (shapes_)
    for (const ShapeGuards::Failure& c : shapes_->conditions())
      cat_to(out, c.where, "      Shape     ", c.text, "\n");
  return out;
}

}  // namespace oxy::python
