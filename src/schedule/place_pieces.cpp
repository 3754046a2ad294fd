// What an extern call would lay side by side (aten.cat and aten.stack of many pieces) is written
// where it ends up by the kernel that makes most of it, and the call is gone.
#include <algorithm>
#include <numeric>

#include "ops/args.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"

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
  void note_writers();
  void place(const Whole& whole, size_t call);
  // The unit whose group writes most of the pieces, and enough.
  std::optional<size_t> writer_of(const Whole& whole, size_t call) const;
  const ScheduledUnit* copier_of(BufferId b) const;
  Inst element(BufferId b, Expr f) const;
  std::optional<Nest> copy(const Whole& whole, const Piece& piece, const Group& g) const;
  // Whether the group can run where the call stands: nobody between them touches what it writes.
  bool can_move(size_t group, size_t call) const;
  bool is_written_between(const Whole& whole, size_t from, size_t to) const;
  void remove_copy_if_unread(BufferId b);

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
  // The last unit that writes it; none of what was there before.
  std::optional<size_t> writer(BufferId b) const {
    const auto it = writers_.find(memory(b));
    return it == writers_.end() ? std::nullopt : std::optional(it->second);
  }

  std::vector<ScheduledUnit>& units_;
  Program& program_;
  const std::set<BufferId> escapes_;
  std::unordered_map<BufferId, size_t> writers_;  // by memory
};

void Placer::note_writers() {
  writers_.clear();
  for (size_t u = 0; u < units_.size(); ++u)
    any_access(units_[u], [&](BufferId b, bool write) {
      if (write) writers_[memory(b)] = u;
      return false;
    });
}

std::optional<size_t> Placer::writer_of(const Whole& whole, size_t call) const {
  std::map<size_t, size_t> own;
  for (const Piece& piece : whole.pieces)
    if (const auto u = writer(piece.buffer); u && *u < call && !units_[*u].group.empty()) ++own[*u];
  const auto most =
      std::ranges::max_element(own, {}, [](const auto& entry) { return entry.second; });
  if (most == own.end() || kOwnPart * most->second < whole.pieces.size()) return std::nullopt;
  const Group& g = units_[most->first].group[0];
  const bool elementwise = std::ranges::all_of(g.nests, [&](const Nest& n) {
    return n.axes.size() == g.parallel.size() && !find_inst(n, LoopOp::StoreAdd) &&
           !find_inst(n, LoopOp::Scan);
  });
  return elementwise ? std::optional(most->first) : std::nullopt;
}

bool Placer::can_move(size_t group, size_t call) const {
  for (size_t u = group + 1; u < call; ++u)
    if (any_access(units_[u], [&](BufferId b, bool) { return writer(b) == group; })) return false;
  return true;
}

bool Placer::is_written_between(const Whole& whole, size_t from, size_t to) const {
  return std::ranges::any_of(whole.pieces, [&](const Piece& piece) {
    const auto u = writer(piece.buffer);
    return u && from < *u && *u < to;
  });
}

// The unit that fills a buffer with a constant, or copies into it; none where it is no such.
const ScheduledUnit* Placer::copier_of(BufferId b) const {
  const auto u = writer(b);
  if (!u || units_[*u].group.empty()) return nullptr;
  const std::vector<Nest>& nests = units_[*u].group[0].nests;
  const bool one = nests.size() == 1 && nests[0].body.size() == 2;
  return one && is_any(nests[0].body[0].op, LoopOp::Const, LoopOp::Load) ? &units_[*u] : nullptr;
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
  note_writers();
  const auto from = writer_of(whole, call);
  if (!from) return;
  const bool move = can_move(*from, call);
  if (!move && is_written_between(whole, *from, call)) return;
  Group g = units_[*from].group[0];
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
  units_[*from].group.clear();
  units_[move ? call : *from].group = {std::move(g)};
  for (const Piece& piece : whole.pieces) remove_copy_if_unread(piece.buffer);
}

void Placer::remove_copy_if_unread(BufferId b) {
  if (!copier_of(b) || program_.buffers[memory(b)].kind != Buffer::Kind::Temp ||
      escapes_.contains(memory(b)))
    return;
  const auto reads = [&](const ScheduledUnit& u) {
    return any_access(u, [&](BufferId x, bool write) { return !write && memory(x) == memory(b); });
  };
  if (std::ranges::none_of(units_, reads)) units_[*writer(b)].group.clear();
}

}  // namespace

void place_pieces(Draft& d) { Placer(d).run(); }

}  // namespace oxy::schedule
