#include "schedule/fetch_ahead.h"

#include <algorithm>

#include "schedule/cost.h"
#include "schedule/nest.h"

namespace oxy::schedule {
namespace {

constexpr int64_t kAhead = 1024;            // bytes: some lines across the end of a page, in time
constexpr int64_t kLongRun = 8192;          // bytes that lie together: little is fetched in vain
constexpr int64_t kLongestRow = 128 << 10;  // of the next point: what stays in a core's cache
constexpr size_t kMost = 4;                 // in a loop

class Fetcher {
 public:
  Fetcher(Kernel& k, int64_t large) : kernel_(k), large_(large) {}

  void run() {
    Block* point = &kernel_.body;
    while (point->size() == 1) {
      For* f = std::get_if<For>(&point->front().v);
      if (!f || f->kind != ForKind::Parallel) break;
      parallel_.push_back(f);
      point = &f->body;
    }
    std::vector<For*> loops;
    for (Stmt& s : *point) {
      if (For* f = std::get_if<For>(&s.v)) loops.push_back(f);
    }
    if (parallel_.empty() || loops.empty() || !is_lanes(*loops[0])) return;
    if (loops.size() == 1)
      within(*loops[0]);
    else
      next_point(*loops[0], *loops[1]);
  }

 private:
  static bool is_lanes(const For& f) {
    return (f.kind == ForKind::Vector || f.kind == ForKind::VectorReduce) && !f.tiled &&
           f.size.is_const();
  }

  static bool streams(const For& f) {
    return std::any_of(f.body.begin(), f.body.end(), [](const Stmt& s) {
      const Compute* c = std::get_if<Compute>(&s.v);
      return c && c->op == LoopOp::Store && c->streaming;
    });
  }

  // The loads of large buffers that lie along the loop, each place once.
  std::vector<const Compute*> loads(const For& f) const {
    std::vector<const Compute*> found;
    for (const Stmt& s : f.body) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (!c || c->op != LoopOp::Load || !c->args.empty() || !is_large(kernel_.buffers[c->buffer]))
        continue;
      const auto along = coefficient(c->index, f.var);
      const bool known = std::any_of(found.begin(), found.end(), [&](const Compute* x) {
        return x->buffer == c->buffer && x->index == c->index;
      });
      if (along && along->is_const(1) && !known) found.push_back(c);
    }
    if (found.size() > kMost) found.clear();
    return found;
  }

  bool is_large(const KernelBuffer& b) const {
    return b.kind != KernelBuffer::Kind::Local && b.elements.is_const() &&
           b.elements.value() * ir::byte_size(b.dtype) >= large_;
  }

  // Whether what the loop reads lies together, and so much of it, or with what comes next behind it.
  bool runs_on(const Compute& c, const For& f) const {
    int64_t run = f.size.value();
    for (size_t k = parallel_.size(); k-- > 0;) {
      const auto step = coefficient(c.index, parallel_[k]->var);
      if (!step || !step->is_const(run) || !parallel_[k]->size.is_const()) break;
      run *= parallel_[k]->size.value();
    }
    return run * ir::byte_size(c.dtype) >= kLongRun;
  }

  void within(For& f) {
    if (!streams(f)) return;
    Block fetches;
    for (const Compute* c : loads(f)) {
      if (runs_on(*c, f))
        fetches.push_back(Stmt{Fetch{c->buffer, c->index + kAhead / ir::byte_size(c->dtype)}});
    }
    f.body.insert(f.body.begin(), fetches.begin(), fetches.end());
  }

  void next_point(const For& first, For& second) {
    if (!is_lanes(second) || !(first.size == second.size)) return;
    const Expr point = parallel_.back()->var;
    Block fetches;
    int64_t bytes = 0;
    for (const Compute* c : loads(first)) {
      const auto step = coefficient(c->index, point);
      if (!step || step->is_const(0)) continue;
      bytes += first.size.value() * ir::byte_size(c->dtype);
      fetches.push_back(
          Stmt{Fetch{c->buffer, replace(c->index, {{point, point + 1}, {first.var, second.var}})}});
    }
    if (bytes > kLongestRow) return;
    second.body.insert(second.body.begin(), fetches.begin(), fetches.end());
  }

  Kernel& kernel_;
  const int64_t large_;
  std::vector<const For*> parallel_;
};

}  // namespace

void fetch_ahead(Kernel& k, int64_t large) { Fetcher(k, large).run(); }

}  // namespace oxy::schedule
