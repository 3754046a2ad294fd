// What an extern call would lay side by side (aten.cat and aten.stack of many pieces) is written
// where it ends up by the kernel that makes most of it, and the call is gone.
#include <algorithm>
#include <numeric>

#include "ops/args.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"
#include "support/check.h"

namespace oxy::schedule {
namespace {

using loops::Program;

// Element f of a piece, in row-major order, lies at (f // width) * stride + start + f % width of
// the whole.
struct Piece {
  BufferId buffer;
  Expr width, start;
};
struct Whole {
  BufferId buffer;
  Expr stride;
  std::vector<Piece> pieces;
};

Expr extent_from(const std::vector<Expr>& sizes, size_t dim) {
  return std::accumulate(sizes.begin() + static_cast<ptrdiff_t>(dim), sizes.end(), Expr(1),
                         [](Expr a, Expr b) { return a * b; });
}

// The pieces of a call, where all that it does is to lay them side by side.
std::optional<Whole> whole_of(const Program& p, const ScheduledUnit& u) {
  const auto* call = u.call.empty() ? nullptr : std::get_if<ExternCall>(&u.call[0]);
  if (!call || !p.graph || !call->step.node.valid()) return std::nullopt;
  const ir::Node& n = p.graph->node(call->step.node);
  const bool stack = n.target == "aten.stack.default";
  if ((!stack && n.target != "aten.cat.default") || !call->step.writes[0].valid())
    return std::nullopt;
  Whole out{.buffer = call->step.writes[0]};
  const Buffer& whole = p.buffers[out.buffer];
  const auto dim = ops::Args(*p.graph, n).dim(1, whole.type.dim(), 0);
  if (!dim || whole.kind != Buffer::Kind::Extern || !whole.type.is_row_major()) return std::nullopt;
  out.stride = extent_from(whole.type.sizes, static_cast<size_t>(*dim));
  Expr start = 0;
  for (BufferId b : call->step.reads) {
    const ir::TensorType& piece = p.buffers[b].type;
    if (piece.dtype != whole.type.dtype || piece.dim() != whole.type.dim() - stack)
      return std::nullopt;
    const Expr width = extent_from(piece.sizes, static_cast<size_t>(*dim));
    out.pieces.push_back({b, width, start});
    start += width;
  }
  return out;
}

// One piece in so many is the kernel's own, at least.
constexpr size_t kOwnPart = 4;

class Placer {
 public:
  explicit Placer(Draft& d)
      : units_(d.units), program_(d.schedule.program), escapes_(escaping(program_)) {}

  void run() {
    for (size_t at = 0; at < units_.size(); ++at) {
      if (const auto whole = whole_of(program_, units_[at])) place(*whole, at);
    }
    std::erase_if(units_, [](const ScheduledUnit& u) { return u.call.empty() && u.group.empty(); });
  }

 private:
  void place(const Whole& whole, size_t call);
  // The unit whose group writes enough of the pieces.
  std::optional<size_t> writer_of(const Whole& whole, size_t call) const;
  ScheduledUnit* copier_of(BufferId b) const;
  Inst element(BufferId b, Expr f) const;
  std::optional<Nest> copy(const Whole& whole, const Piece& piece, const Group& g) const;
  // Whether the group can run where the call stands: nobody between them touches what it writes.
  bool can_move(size_t group, size_t call) const;
  bool is_written_between(const Whole& whole, size_t from, size_t to) const;
  void remove_if_unread(ScheduledUnit* copier, BufferId b);

  template <class F>
  static bool any_access(const ScheduledUnit& u, F&& f) {  // f(buffer, whether it is written)
    for (const Group& g : u.group)
      for (const Inst& i : instructions(g.nests))
        if (i.buffer.valid() && f(i.buffer, i.op != LoopOp::Load)) return true;
    for (const ScheduledStep& s : u.call) {
      const loops::Call* c = call_of(s);
      if (std::ranges::any_of(c->reads, [&](BufferId b) { return f(b, false); }) ||
          std::ranges::any_of(c->writes, [&](BufferId b) { return b.valid() && f(b, true); }))
        return true;
    }
    return false;
  }
  BufferId memory(BufferId b) const { return memory_of(program_, b); }
  bool writes(const ScheduledUnit& u, BufferId b) const {
    return any_access(u, [&](BufferId x, bool write) { return write && memory(x) == memory(b); });
  }

  std::vector<ScheduledUnit>& units_;
  Program& program_;
  const std::set<BufferId> escapes_;
};

std::optional<size_t> Placer::writer_of(const Whole& whole, size_t call) const {
  for (size_t u = call; u-- > 0;) {
    if (units_[u].group.empty()) continue;
    const Group& g = units_[u].group[0];
    const auto own = std::ranges::count_if(
        whole.pieces, [&](const Piece& piece) { return writes(units_[u], piece.buffer); });
    if (kOwnPart * static_cast<size_t>(own) < whole.pieces.size()) continue;
    const bool elementwise = std::ranges::all_of(g.nests, [&](const Nest& n) {
      return n.axes.size() == g.parallel.size() && !find_inst(n, LoopOp::StoreAdd) &&
             !find_inst(n, LoopOp::Scan);
    });
    return elementwise ? std::optional(u) : std::nullopt;
  }
  return std::nullopt;
}

bool Placer::can_move(size_t group, size_t call) const {
  for (size_t u = group + 1; u < call; ++u) {
    const bool touched =
        any_access(units_[u], [&](BufferId b, bool) { return writes(units_[group], b); });
    if (touched) return false;
  }
  return true;
}

bool Placer::is_written_between(const Whole& whole, size_t from, size_t to) const {
  for (size_t u = from + 1; u < to; ++u)
    for (const Piece& piece : whole.pieces)
      if (writes(units_[u], piece.buffer)) return true;
  return false;
}

// The unit that fills a buffer with a constant, or copies into it; none where it is no such.
ScheduledUnit* Placer::copier_of(BufferId b) const {
  for (ScheduledUnit& u : units_) {
    if (u.group.empty() || !writes(u, b)) continue;
    const std::vector<Nest>& nests = u.group[0].nests;
    const bool one = nests.size() == 1 && nests[0].body.size() == 2;
    return one && is_any(nests[0].body[0].op, LoopOp::Const, LoopOp::Load) ? &u : nullptr;
  }
  return nullptr;
}

// Element f of a piece, in row-major order: what was copied into it, where that is all.
Inst Placer::element(BufferId b, Expr f) const {
  const Buffer& from = program_.buffers[b];
  Expr at = from.kind == Buffer::Kind::View ? from.type.offset : Expr(0);
  for (size_t d = 0; d < from.type.sizes.size(); ++d)
    at += sym::mod(sym::floordiv(f, extent_from(from.type.sizes, d + 1)), from.type.sizes[d]) *
          from.type.strides[d];
  if (const ScheduledUnit* copier = copier_of(b)) {
    const Nest& n = copier->group[0].nests[0];
    Substitution where;
    for (const Axis& a : n.axes) {
      const auto stride = coefficient(n.body[1].index[0], a.var);
      if (stride) where.emplace_back(a.var, sym::mod(sym::floordiv(at, *stride), a.size));
    }
    Inst out = n.body[0];
    for (Expr& e : out.index) e = replace(e, where);
    if (where.size() == n.axes.size()) return out;
  }
  return {.op = LoopOp::Load, .dtype = from.type.dtype, .buffer = memory(b), .index = {at}};
}

// A nest that reads a piece at the group's iterations and writes it where it ends up: where the
// group writes one of its sizes, at places that are linear in the axes.
std::optional<Nest> Placer::copy(const Whole& whole, const Piece& piece, const Group& g) const {
  const Buffer& from = program_.buffers[piece.buffer];
  const Buffer& to = program_.buffers[whole.buffer];
  for (const Nest& n : g.nests) {
    const Inst* store = find_inst(n, LoopOp::Store);
    if (!store || program_.buffers[store->buffer].type.sizes != from.type.sizes ||
        !program_.buffers[store->buffer].type.is_row_major())
      continue;
    const Expr f = store->index[0];
    const Expr place =
        sym::floordiv(f, piece.width) * whole.stride + piece.start + sym::mod(f, piece.width);
    Inst value = element(piece.buffer, f);
    const auto is_linear = [&](const Axis& a) {
      return coefficient(place, a.var) &&
             (value.index.empty() || coefficient(value.index[0], a.var));
    };
    if (!std::ranges::all_of(n.axes, is_linear)) return std::nullopt;
    Inst write{.op = LoopOp::Store,
               .dtype = to.type.dtype,
               .args = {0},
               .buffer = whole.buffer,
               .index = {place}};
    return Nest{.name = cat("place_", from.name),
                .axes = g.parallel,
                .body = {std::move(value), std::move(write)},
                .origins = n.origins,
                .partial = {}};
  }
  return std::nullopt;
}

void Placer::place(const Whole& whole, size_t call) {
  const auto writer = writer_of(whole, call);
  if (!writer) return;
  const bool move = can_move(*writer, call);
  if (!move && is_written_between(whole, *writer, call)) return;
  Group g = units_[*writer].group[0];
  for (const Piece& piece : whole.pieces) {
    auto n = copy(whole, piece, g);
    if (!n) return;
    g.nests.push_back(std::move(*n));
  }
  bool kept = escapes_.contains(whole.buffer);  // by the caller, or a call that reads it
  for (size_t u = call + 1; u < units_.size(); ++u)
    kept |= !units_[u].call.empty() &&
            any_access(units_[u], [&](BufferId b, bool) { return memory(b) == whole.buffer; });
  program_.buffers[whole.buffer].kind = kept ? Buffer::Kind::Output : Buffer::Kind::Temp;
  const ir::NodeId node = call_of(units_[call].call[0])->node;
  std::erase_if(program_.steps, [&](const loops::Step& s) {
    const loops::Call* c = call_of(s);
    return c && c->node == node;
  });
  units_[call].call.clear();
  units_[*writer].group.clear();
  units_[move ? call : *writer].group = {std::move(g)};
  for (const Piece& piece : whole.pieces) remove_if_unread(copier_of(piece.buffer), piece.buffer);
}

void Placer::remove_if_unread(ScheduledUnit* copier, BufferId b) {
  if (!copier || program_.buffers[memory(b)].kind != Buffer::Kind::Temp ||
      escapes_.contains(memory(b)))
    return;
  const auto reads = [&](const ScheduledUnit& u) {
    return any_access(u, [&](BufferId x, bool write) { return !write && memory(x) == memory(b); });
  };
  if (std::ranges::none_of(units_, reads)) copier->group.clear();
}

}  // namespace

void place_pieces(Draft& d) { Placer(d).run(); }

}  // namespace oxy::schedule
