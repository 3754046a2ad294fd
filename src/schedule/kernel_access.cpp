// Compares the index expressions of two buffers, loop by loop.
#include "schedule/kernel_access.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace oxy::schedule {
namespace {

using Visit = std::function<void(const Compute&, const Path&)>;

void walk(const Block& block, Path& path, const Visit& f) {
  for (const Stmt& s : block) {
    if (const auto* loop = std::get_if<For>(&s.v)) {
      path.push_back(loop);
      walk(loop->body, path, f);
      path.pop_back();
    } else if (const auto* c = std::get_if<Compute>(&s.v)) {
      f(*c, path);
    }
  }
}

// One load or store, and how many statements come before it.
struct Access {
  const Compute* statement = nullptr;
  Path path;
  size_t position = 0;
};

// Whether the index is made of nothing but variables of these loops and sizes: then it is the same
// element wherever it occurs.
bool only_variables_of(const Path& path, Expr index) {
  std::vector<Expr> symbols;
  sym::collect_symbols(index, symbols);
  return std::all_of(symbols.begin(), symbols.end(), [&](Expr s) {
    return !loops::is_variable(s) ||
           std::any_of(path.begin(), path.end(), [&](const For* f) { return f->var == s; });
  });
}

// A load that an earlier pass over the same elements makes, in loops of its own beside the store's;
// the elements of an iteration of the common loops are then all loaded before one of them is
// stored.
bool same_row(const Access& load, const Access& store, size_t common) {
  if (load.path.size() != store.path.size()) return false;
  std::vector<std::pair<Expr, Expr>> renamed;
  for (size_t k = common; k < load.path.size(); ++k) {
    if (!(load.path[k]->size == store.path[k]->size)) return false;
    renamed.emplace_back(load.path[k]->var, store.path[k]->var);
  }
  Expr index = sym::substitute(load.statement->index, [&](Expr s) {
    for (auto [from, to] : renamed) {
      if (from == s) return to;
    }
    return s;
  });
  return index == store.statement->index && only_variables_of(store.path, index);
}

bool is_read_first(const Access& load, const Access& store) {
  if (load.position > store.position) return false;
  size_t common = 0, end = std::min(load.path.size(), store.path.size());
  while (common < end && load.path[common] == store.path[common]) ++common;
  if (common < load.path.size()) return same_row(load, store, common);
  return load.statement->index == store.statement->index &&
         only_variables_of(load.path, load.statement->index);
}

void redirect(Block& block, uint32_t from, uint32_t to) {
  for (Stmt& s : block) {
    if (auto* loop = std::get_if<For>(&s.v)) redirect(loop->body, from, to);
    auto* c = std::get_if<Compute>(&s.v);
    bool memory =
        c && (c->op == LoopOp::Load || c->op == LoopOp::Store || c->op == LoopOp::StoreAdd);
    if (!memory) continue;
    if (c->buffer == from) {
      c->buffer = to;
      c->annotations = {};  // what was said of memory that is only written
    }
    if (c->buffer > from) --c->buffer;
  }
}

// Symbols in the order in which a kernel meets them, without those that it binds itself.
class FreeSymbols {
 public:
  explicit FreeSymbols(const Kernel& k) {
    for (const KernelBuffer& b : k.buffers)
      if (b.kind == KernelBuffer::Kind::Local) take(b.elements);
    visit(k.body);
  }

  std::vector<Expr> found;

 private:
  void visit(const Block& block) {
    for (const Stmt& s : block) {
      if (const auto* f = std::get_if<For>(&s.v)) {
        take(f->size);
        bound_.insert(f->var);
        visit(f->body);
      } else if (const auto* c = std::get_if<Compute>(&s.v)) {
        if (c->op == LoopOp::Symbol) bound_.insert(c->index);
        take(c->index);
      } else if (const auto* a = std::get_if<Accumulate>(&s.v)) {
        take(a->index);
      } else if (const auto* h = std::get_if<Hint>(&s.v)) {
        take(h->index);
      }
    }
  }

  void take(Expr e) {
    std::vector<Expr> symbols;
    sym::collect_symbols(e, symbols);
    for (Expr s : symbols)
      if (!bound_.contains(s) && std::ranges::find(found, s) == found.end()) found.push_back(s);
  }

  std::unordered_set<Expr> bound_;
};

}  // namespace

std::vector<Expr> free_symbols(const Kernel& k) { return FreeSymbols(k).found; }

void for_each_compute(const Kernel& k, const Visit& f) {
  Path path;
  walk(k.body, path, f);
}

bool has_check(const Kernel& k) {
  bool found = false;
  for_each_compute(k, [&](const Compute& c, const Path&) { found |= c.op == LoopOp::Check; });
  return found;
}

int32_t entry_of(const Kernel& k, loops::BufferId b) {
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    if (k.buffers[i].buffer.valid() && k.buffers[i].buffer == b) return static_cast<int32_t>(i);
  }
  return -1;
}

int store_count(const Kernel& k, uint32_t entry) {
  int count = 0;
  for_each_compute(k, [&](const Compute& c, const Path&) {
    if (c.op == LoopOp::Store && c.buffer == entry) ++count;
    if (c.op == LoopOp::StoreAdd && c.buffer == entry) count += 2;
  });
  return count;
}

bool may_overwrite(const Kernel& k, int32_t read, uint32_t written) {
  if (store_count(k, written) != 1) return false;
  Access store;
  std::vector<Access> loads;
  size_t position = 0;
  bool plain = true;
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    ++position;
    if (c.op == LoopOp::Store && c.buffer == written) store = {&c, path, position};
    if (read < 0 || c.buffer != static_cast<uint32_t>(read)) return;
    if (c.op == LoopOp::Load) loads.push_back({&c, path, position});
    plain = plain && c.op != LoopOp::Store && c.op != LoopOp::StoreAdd;
  });
  const bool reordered = !store.path.empty() && !store.path.back()->annotations.empty();
  if (!loads.empty() && reordered) return false;
  return plain && std::all_of(loads.begin(), loads.end(),
                              [&](const Access& l) { return is_read_first(l, store); });
}

void merge_entries(Kernel& k, int32_t read, uint32_t written, loops::BufferId b,
                   const std::string& name) {
  if (read < 0) {
    k.buffers[written].buffer = b;
    k.buffers[written].name = name;
    return;
  }
  auto to = static_cast<uint32_t>(read);
  redirect(k.body, written, to);
  k.buffers[to].kind = KernelBuffer::Kind::ReadWrite;
  k.buffers.erase(k.buffers.begin() + written);
}

}  // namespace oxy::schedule
