// Looks for groups that fit behind a gemm, and arranges them by its panels.
#include "schedule/cpu/epilogues.h"

#include <algorithm>

#include "schedule/cpu/annotations.h"
#include "schedule/cpu/arrange_loops.h"
#include "schedule/kernel_access.h"
#include "schedule/uses.h"

namespace oxy::schedule {

namespace {

bool is_elementwise(const Group& g) {
  using enum LoopOp;
  return std::ranges::all_of(g.nests, [&](const Nest& n) {
    return n.axes.size() == g.parallel.size() && std::ranges::none_of(n.body, [](const Inst& i) {
             return is_any(i.op, Reduce, Scan, StoreAdd, Symbol, Check);
           });
  });
}

// What earlier steps have made for the group.
std::set<BufferId> sources_of(const loops::Program& p, const Group& g) {
  std::set<BufferId> read, written;
  for (const Inst& i : instructions(g.nests)) {
    if (touches_memory(i.op)) (i.op == LoopOp::Load ? read : written).insert(i.buffer);
  }
  for (BufferId b : written) read.erase(b);
  std::erase_if(read, [&](BufferId b) {
    const Buffer::Kind kind = p.buffers[b].kind;
    return kind == Buffer::Kind::Input || kind == Buffer::Kind::Attribute;
  });
  return read;
}

// Columns of the matrix that a kernel of our own writes row by row; nothing where there is no
// epilogue: with few rows or columns a block is soon done, by a kernel that has none
// (codegen/cpp/dot_gemm.cpp, narrow_gemm.cpp). Where the number varies it may be large.
std::optional<Expr> columns_of(const Schedule& s, const loops::ContractionStep& c,
                               const Machine& machine) {
  const Buffer& matrix = s.program.buffers[c.c()];
  const bool planned = matrix.kind == Buffer::Kind::Temp || matrix.kind == Buffer::Kind::Output;
  if (!c.is_own() || !planned) return std::nullopt;
  const ops::ContractionLayout l = layout_of(s.program, c);
  if (c.what.kind == ops::Contraction::Kind::Convolution) return l.n;
  const bool lies_in_rows =
      sym::range_of(l.m).hi > tuning::dot_most_rows && matrix.type.is_contiguous();
  const auto known = [](Expr e) { return e.is_const() ? std::optional(e.value()) : std::nullopt; };
  const bool narrow = ops::is_narrow(l.dtype, known(l.n), known(l.k), machine);
  return lies_in_rows && !narrow ? std::optional(l.n) : std::nullopt;
}

// Whether a step can wait until all before `end` have run.
bool can_wait(const Schedule& s, size_t at, size_t end) {
  const StepUses own = uses_of(s, s.steps[at]);
  for (size_t i = at + 1; i < end; ++i) {
    if (conflict(own, uses_of(s, s.steps[i]))) return false;
  }
  return true;
}

// The last gemm that makes something the group reads, if all else that it reads is there when
// that runs, or the gemm can wait for it.
std::optional<Panels> panels_of(const Schedule& s, const Group& g, const Machine& machine) {
  const int64_t width = tuning::gemm_panel_columns(machine);
  const std::set<BufferId> sources = sources_of(s.program, g);
  bool later = false;  // something is made behind the gemm
  for (size_t i = s.steps.size(), left = sources.size(); i-- > 0 && left > 0;) {
    const StepUses u = uses_of(s, s.steps[i]);
    if (std::ranges::none_of(u.writes, [&](BufferId b) { return sources.contains(b); })) continue;
    const auto* call = std::get_if<ContractionCall>(&s.steps[i]);
    const std::optional<Expr> columns = call ? columns_of(s, call->step, machine) : std::nullopt;
    if (!columns) {
      later = true;
      --left;
      continue;
    }
    const BufferId matrix = call->step.c();
    const bool has_one =
        std::ranges::any_of(s.kernels, [&](const Kernel& k) { return epilogue_of(k) == matrix; });
    if (has_one || (later && !can_wait(s, i, s.steps.size()))) return std::nullopt;
    return Panels{matrix, *columns, width};
  }
  return std::nullopt;
}

// Whether all elements of the matrix are read at one place: where the iteration is.
bool reads_one_element(const Group& g, BufferId matrix) {
  std::set<Expr> places;
  for (const Inst& i : instructions(g.nests)) {
    if (i.op == LoopOp::Load && i.buffer == matrix) places.insert(i.index[0]);
  }
  return places.size() == 1;
}

// A chain of Parallel loops around one Vector loop, without memory of its own.
bool is_simple(const Kernel& k) {
  if (std::ranges::any_of(k.buffers, &KernelBuffer::is_local)) return false;
  const Block* block = &k.body;
  for (bool inside = false; !inside;) {
    const For* loop = nullptr;
    for (const Stmt& s : *block) {
      const For* f = std::get_if<For>(&s.v);
      if (!f) continue;
      if (loop || is_tiled(*f)) return false;
      loop = f;
    }
    if (!loop || (loop->kind != ForKind::Parallel && loop->kind != ForKind::Vector)) return false;
    inside = loop->kind == ForKind::Vector;
    block = &loop->body;
  }
  return true;
}

// Statements of an iteration that come to the same at all iterations stand in front of all loops.
void hoist_constants(Kernel& k) {
  const std::vector<For*> loops = parallel_loops(k);
  Block constants;
  std::erase_if(loops.empty() ? k.body : loops.back()->body, [&](const Stmt& s) {
    const Compute* c = std::get_if<Compute>(&s.v);
    if (!c || c->op != LoopOp::Const) return false;
    constants.push_back(s);
    return true;
  });
  k.body.insert(k.body.begin(), constants.begin(), constants.end());
}

class Attacher {
 public:
  explicit Attacher(Schedule& s) : s_(s), escaping_(escaping(s.program)) {}

  void run() {
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      const auto* call = std::get_if<KernelCall>(&s_.steps[i]);
      if (!call || !is_epilogue(s_.kernels[call->kernel])) continue;
      const uint32_t kernel = call->kernel;
      std::optional<size_t> at = gemm_before(i);
      if (at && !may_run_there(i, *at) && can_wait(s_, *at, i)) {
        const auto first = s_.steps.begin();
        std::rotate(first + *at, first + *at + 1, first + i);
        at = i - 1;
      }
      if (!at || !may_run_there(i, *at)) {
        s_.kernels[kernel].annotations = {};
        continue;
      }
      std::get<ContractionCall>(s_.steps[*at]).epilogue = kernel;
      s_.steps.erase(s_.steps.begin() + i--);
      share_memory(*at);
    }
  }

 private:
  std::optional<size_t> gemm_before(size_t at) const {
    const BufferId matrix = epilogue_of(s_.kernels[std::get<KernelCall>(s_.steps[at]).kernel]);
    while (at-- > 0) {
      const auto* call = std::get_if<ContractionCall>(&s_.steps[at]);
      if (call && call->step.c() == matrix) return at;
    }
    return std::nullopt;
  }

  // The kernel of step `from` may run while the gemm `to` does.
  bool may_run_there(size_t from, size_t to) const {
    const StepUses own = uses_of(s_, s_.steps[from]), gemm = uses_of(s_, s_.steps[to]);
    const bool seen = std::ranges::any_of(
        own.writes, [&](BufferId b) { return s_.program.buffers[b].kind == Buffer::Kind::Input; });
    for (size_t i = to + 1; i < from; ++i) {
      const StepUses between = uses_of(s_, s_.steps[i]);
      if (conflict(own, between) || (seen && between.raises)) return false;
    }
    return std::ranges::none_of(own.writes, [&](BufferId b) { return reads(gemm, b); });
  }

  void share_memory(size_t at) {
    const auto& call = std::get<ContractionCall>(s_.steps[at]);
    const Kernel& k = s_.kernels[*call.epilogue];
    const BufferId matrix = call.step.c();
    if (s_.program.buffers[matrix].kind != Buffer::Kind::Temp || escaping_.contains(matrix) ||
        is_used_elsewhere(matrix, at))
      return;
    const int32_t read = entry_of(k, matrix);
    for (uint32_t w = 0; w < k.buffers.size(); ++w) {
      const KernelBuffer& b = k.buffers[w];
      if (b.kind != KernelBuffer::Kind::Write || !is_alike(b.buffer, matrix) ||
          !may_overwrite(k, read, w))
        continue;
      s_.program.buffers[matrix].kind = Buffer::Kind::View;
      s_.program.buffers[matrix].base = b.buffer;
      return;
    }
  }

  bool is_used_elsewhere(BufferId matrix, size_t at) const {
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      const StepUses u = uses_of(s_, s_.steps[i]);
      if (i != at && (reads(u, matrix) || writes(u, matrix))) return true;
    }
    return false;
  }

  bool is_alike(BufferId result, BufferId matrix) const {
    const Buffer &a = s_.program.buffers[result], &b = s_.program.buffers[matrix];
    return (a.kind == Buffer::Kind::Temp || a.kind == Buffer::Kind::Output) &&
           a.type.dtype == b.type.dtype && loops::byte_extent(a.type) == loops::byte_extent(b.type);
  }

  Schedule& s_;
  const std::set<BufferId> escaping_;
};

}  // namespace

std::optional<Kernel> epilogue_kernel(Schedule& s, const Group& g, const std::vector<bool>& needed,
                                      const ScheduleOptions& options, const std::string& name) {
  if (!options.epilogues || !is_elementwise(g)) return std::nullopt;
  const std::optional<Panels> panels = panels_of(s, g, options.machine);
  if (!panels || !reads_one_element(g, panels->matrix)) return std::nullopt;
  const auto arranged = arrange_panels(s.program, g, needed, options, *panels);
  if (!arranged) return std::nullopt;
  Kernel k = emit_kernel(s.program, arranged->loops, needed, name);
  if (!is_simple(k)) return std::nullopt;
  k.annotations.set(kEpilogueOf, 1 + panels->matrix.index);
  k.annotations.set(kPanelLoops, arranged->panel_loops);
  hoist_constants(k);
  return k;
}

std::vector<int64_t> read_with_matrix(const Schedule& s, const Kernel& k) {
  const auto matrix = static_cast<uint32_t>(entry_of(k, epilogue_of(k)));
  const auto size = ir::byte_size(s.program.buffers[epilogue_of(k)].type.dtype);
  std::set<Expr> places;
  std::set<int64_t> out;
  walk<Compute>(k.body, [&](const Compute& c) {
    if (c.op == LoopOp::Load && c.buffer == matrix) places.insert(c.index);
  });
  walk<Compute>(k.body, [&](const Compute& c) {
    if (c.op != LoopOp::Load || c.buffer == matrix || !places.contains(c.index)) return;
    if (ir::byte_size(c.dtype) == size) out.insert(c.buffer);
  });
  return {out.begin(), out.end()};
}

void attach_epilogues(Schedule& s) { Attacher(s).run(); }

}  // namespace oxy::schedule
