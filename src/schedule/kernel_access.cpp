// Compares the index expressions of two buffers, loop by loop.
#include "schedule/kernel_access.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>

namespace oxy::schedule {
namespace {

using Visit = std::function<void(const Compute&, const Path&)>;

void walk_with_path(const Block& block, Path& path, const Visit& f) {
  for (const Stmt& s : block) {
    if (const auto* loop = std::get_if<For>(&s.v)) {
      path.push_back(loop);
      walk_with_path(loop->body, path, f);
      path.pop_back();
    } else if (const auto* c = std::get_if<Compute>(&s.v)) {
      f(*c, path);
    }
  }
}

// One load or store, and how many statements come before it.
struct RowAccess {
  const Compute* statement = nullptr;
  Path path;
  size_t position = 0;
};

// Whether the index is made of nothing but variables of these loops and sizes: then it is the same
// element wherever it occurs.
bool only_variables_of(const Path& path, Expr index) {
  return std::ranges::all_of(symbols_of(index), [&](Expr s) {
    return !loops::is_variable(s) || std::ranges::find(path, s, &For::var) != path.end();
  });
}

// A load that an earlier pass over the same elements makes, in loops of its own beside the store's;
// the elements of an iteration of the common loops are then all loaded before one of them is
// stored.
bool same_row(const RowAccess& load, const RowAccess& store, size_t common) {
  if (load.path.size() != store.path.size()) return false;
  for (size_t k = common; k < load.path.size(); ++k) {
    if (load.path[k]->size != store.path[k]->size) return false;
  }
  Expr index = sym::substitute(load.statement->index, [&](Expr s) {
    const auto own = std::find_if(load.path.begin() + static_cast<std::ptrdiff_t>(common),
                                  load.path.end(), [&](const For* f) { return f->var == s; });
    return own == load.path.end() ? s : store.path[own - load.path.begin()]->var;
  });
  return index == store.statement->index && only_variables_of(store.path, index);
}

bool is_read_first(const RowAccess& load, const RowAccess& store) {
  if (load.position > store.position) return false;
  const auto common =
      static_cast<size_t>(std::ranges::mismatch(load.path, store.path).in1 - load.path.begin());
  if (common < load.path.size()) return same_row(load, store, common);
  return load.statement->index == store.statement->index &&
         only_variables_of(load.path, load.statement->index);
}

// One store, or two side by side for the parts of complex numbers: no element is stored twice.
bool store_apart(const std::vector<RowAccess>& stores) {
  if (stores.size() == 1) return true;
  if (stores.size() != 2 || stores[0].path != stores[1].path) return false;
  const Expr first = stores[0].statement->index;
  return sym::divisible(first, 2) && stores[1].statement->index == first + 1;
}

}  // namespace

// Without those that the kernel binds itself.
std::vector<Expr> free_symbols(const Kernel& k) {
  std::vector<Expr> found;
  std::unordered_set<Expr> bound;
  auto take = [&](Expr e) {
    for (Expr s : symbols_of(e))
      if (!bound.contains(s) && std::ranges::find(found, s) == found.end()) found.push_back(s);
  };
  for (const KernelBuffer& b : k.buffers)
    if (b.is_local()) take(b.elements);
  walk<Stmt>(k.body, [&](const Stmt& s) {
    if (const auto* f = std::get_if<For>(&s.v)) {
      take(f->size);
      bound.insert(f->var);
    } else if (const auto* c = std::get_if<Compute>(&s.v)) {
      if (c->op == LoopOp::Symbol) bound.insert(c->index);
      take(c->index);
    } else if (const auto* a = std::get_if<Accumulate>(&s.v)) {
      take(a->index);
    } else if (const auto* h = std::get_if<Hint>(&s.v)) {
      take(h->index);
    }
  });
  return found;
}

void for_each_compute(const Kernel& k, const Visit& f) {
  Path path;
  walk_with_path(k.body, path, f);
}

std::vector<For*> parallel_loops(Kernel& k) {
  std::vector<For*> out;
  for (Block* block = &k.body; block->size() == 1; block = &out.back()->body) {
    For* f = std::get_if<For>(&block->front().v);
    if (!f || f->kind != ForKind::Parallel) break;
    out.push_back(f);
  }
  return out;
}

bool has_check(const Kernel& k) {
  bool found = false;
  walk<Compute>(k.body, [&](const Compute& c) { found |= c.op == LoopOp::Check; });
  return found;
}

int32_t entry_of(const Kernel& k, BufferId b) {
  const auto at = std::ranges::find(k.buffers, b, &KernelBuffer::buffer);
  return b.valid() && at != k.buffers.end() ? static_cast<int32_t>(at - k.buffers.begin()) : -1;
}

KernelBuffer make_entry(const loops::Program& p, BufferId b, KernelBuffer::Kind kind) {
  const ir::TensorType& type = p.buffers[b].type;
  const DType dtype = part_of(type.dtype);
  const Expr elements = sym::floordiv(loops::byte_extent(type), ir::byte_size(dtype));
  return {p.buffers[b].name, kind, dtype, elements, b};
}

int store_count(const Kernel& k, uint32_t entry) {
  int count = 0;
  walk<Compute>(k.body, [&](const Compute& c) {
    if (c.op == LoopOp::Store && c.buffer == entry) ++count;
    if (c.op == LoopOp::StoreAdd && c.buffer == entry) count += 2;
  });
  return count;
}

std::optional<bool> compared(LoopOp op, int64_t least, int64_t most) {
  const auto when = [](bool holds, bool fails) {
    return holds ? std::optional(true) : fails ? std::optional(false) : std::nullopt;
  };
  const bool zero = least == 0 && most == 0, apart = least > 0 || most < 0;
  switch (op) {
    case LoopOp::Eq:
      return when(zero, apart);
    case LoopOp::Ne:
      return when(apart, zero);
    case LoopOp::Lt:
      return when(most < 0, least >= 0);
    case LoopOp::Le:
      return when(most <= 0, least > 0);
    case LoopOp::Gt:
      return when(least > 0, most <= 0);
    case LoopOp::Ge:
      return when(least >= 0, most < 0);
    default:
      return std::nullopt;
  }
}

std::optional<std::pair<int64_t, Expr>> tile_of(const For& outer, const For& inner) {
  const bool kinds = outer.kind == ForKind::Parallel || outer.kind == ForKind::Serial;
  const bool inner_kinds = inner.kind == ForKind::Serial || inner.kind == ForKind::Vector;
  if (!kinds || !inner_kinds || !outer.size.is_const()) return std::nullopt;
  if (inner.size.is_const())
    return std::pair(inner.size.value(), Expr(inner.size.value() * outer.size.value()));
  if (inner.size.kind() != sym::Kind::Min) return std::nullopt;
  for (const Expr rest : inner.size.operands()) {
    const auto along = sym::linear_in(rest, outer.var);
    if (!along || !along->first.is_const() || along->first.value() >= 0) continue;
    const int64_t tile = -along->first.value();
    if (along->second.is_const() && inner.size == sym::min(tile, rest))
      return std::pair(tile, along->second);
  }
  return std::nullopt;
}

std::optional<Places> places_of(Expr index, const Path& path) {
  Places out;
  for (size_t i = 0; i < path.size(); ++i) {
    const For* f = path[i];
    const auto along = sym::linear_in(index, f->var);
    if (!along || !along->first.is_const()) return std::nullopt;
    index = along->second;
    if (along->first.is_const(0)) continue;
    int64_t step = along->first.value();
    Expr size = f->size;
    // Tiles whose last one is shorter, and what is in them, are one loop.
    for (size_t inner = i + 1; inner < path.size(); ++inner) {
      const auto tile = path[inner]->size.is_const() ? std::nullopt : tile_of(*f, *path[inner]);
      const auto within = tile ? sym::linear_in(index, path[inner]->var) : std::nullopt;
      if (!within || !within->first.is_const() || step != tile->first * within->first.value())
        continue;
      step = within->first.value();
      size = tile->second;
      index = within->second;
      break;
    }
    if (!size.is_const()) return std::nullopt;
    const int64_t count = size.value();
    if (step < 0) out.first += step * (count - 1);
    out.terms.push_back({std::abs(step), count});
  }
  if (!index.is_const()) return std::nullopt;
  out.first += index.value();
  return out;
}

namespace {

int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0

// Whether sums of multiples of strides, so many to so many of each, can be a number. Strides of
// tensors leave one or two multiples of the largest to try, as the smaller ones reach no further.
class Reaches {
 public:
  Reaches(const Places& a, const Places& b) {
    for (const Places::Term& t : a.terms) steps_[t.stride].second += t.count - 1;
    for (const Places::Term& t : b.terms) steps_[t.stride].first -= t.count - 1;
  }

  bool run(int64_t number) { return run(number, steps_.rbegin()); }

 private:
  using Steps = std::map<int64_t, std::pair<int64_t, int64_t>>;  // by stride: the fewest, the most

  // Also true where there is too much to try.
  bool run(int64_t number, Steps::const_reverse_iterator from) {
    if (from == steps_.rend()) return number == 0;
    int64_t least = 0, most = 0, divisor = from->first;
    for (auto it = std::next(from); it != steps_.rend(); ++it) {
      least += it->first * it->second.first;
      most += it->first * it->second.second;
      divisor = std::gcd(divisor, it->first);
    }
    if (number % divisor != 0) return false;
    const auto [stride, range] = *from;
    int64_t first = std::max(range.first, floor_of(number - most + stride - 1, stride));
    const int64_t last = std::min(range.second, floor_of(number - least, stride));
    for (; first <= last; ++first)
      if (++tried_ > kMostTried || run(number - first * stride, std::next(from))) return true;
    return false;
  }

  static constexpr int kMostTried = 256;
  Steps steps_;
  int tried_ = 0;
};

}  // namespace

bool never_meet(const std::optional<Places>& a, const std::optional<Places>& b) {
  return a && b && !Reaches(*a, *b).run(b->first - a->first);
}

bool may_overwrite(const Kernel& k, int32_t read, uint32_t written) {
  std::vector<RowAccess> stores, loads;
  size_t position = 0;
  bool plain = true, reordered = false;
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    ++position;
    if (c.op == LoopOp::Store && c.buffer == written) {
      stores.push_back({&c, path, position});
      reordered |= !path.empty() && !path.back()->annotations.empty();
    }
    plain &= c.op != LoopOp::StoreAdd || c.buffer != written;
    if (read < 0 || c.buffer != static_cast<uint32_t>(read)) return;
    if (c.op == LoopOp::Load) loads.push_back({&c, path, position});
    plain &= c.op != LoopOp::Store && c.op != LoopOp::StoreAdd;
  });
  if (!plain || !store_apart(stores) || (!loads.empty() && reordered)) return false;
  return std::ranges::all_of(loads, [&](const RowAccess& load) {
    const auto places = places_of(load.statement->index, load.path);
    const auto elsewhere = [&](const RowAccess& store) {
      return never_meet(places, places_of(store.statement->index, store.path));
    };
    const auto first = [&](const RowAccess& store) { return is_read_first(load, store); };
    return std::ranges::any_of(stores, first) || std::ranges::all_of(stores, elsewhere);
  });
}

void merge_entries(Kernel& k, int32_t read, uint32_t written, BufferId b, const std::string& name) {
  if (read < 0) {
    k.buffers[written].buffer = b;
    k.buffers[written].name = name;
    return;
  }
  const auto to = static_cast<uint32_t>(read);
  walk<Compute>(k.body, [&](Compute& c) {
    if (!touches_memory(c.op)) return;
    if (c.buffer == written) {
      c.buffer = to;
      c.annotations = {};  // what was said of memory that is only written
    }
    if (c.buffer > written) --c.buffer;
  });
  k.buffers[to].kind = KernelBuffer::Kind::ReadWrite;
  k.buffers.erase(k.buffers.begin() + written);
}

}  // namespace oxy::schedule
