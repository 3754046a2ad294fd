// Finds the tables of places in a kernel, and writes the gathers that use them.
#include <algorithm>
#include <map>

#include "codegen/cpp/kernel_writer.h"

namespace oxy::codegen::cpp {

namespace {

using schedule::KernelBuffer;

class Finder {
 public:
  Finder(const schedule::Kernel& kernel, int lanes) : kernel_(kernel), lanes_(lanes) {}

  TableGathers run() {
    count_stores(kernel_.body);
    block(kernel_.body);
    return std::move(found_);
  }

 private:
  void count_stores(const Block& b) {
    walk(b, [&](const Stmt& s) {
      const Compute* c = std::get_if<Compute>(&s.v);
      if (c && (c->op == LoopOp::Store || c->op == LoopOp::StoreAdd)) ++stores_[c->buffer];
    });
  }

  bool is_table(const Compute& c, const For& loop) const {
    const KernelBuffer& b = kernel_.buffers[c.buffer];
    return b.kind == KernelBuffer::Kind::Local && b.dtype == DType::I32 &&
           b.elements == loop.size && b.elements.is_const() && b.elements.value() >= 2 * lanes_ &&
           c.index == loop.var && stores_.at(c.buffer) == 1;
  }

  // Loops of rows behind the one that fills a table, in the same block.
  void block(const Block& b) {
    std::unordered_set<uint32_t> tables;
    for (const For& f : all<For>(b)) {
      if (f.kind != ForKind::Vector) {
        rows(f.body, tables);
        block(f.body);
      } else if (!is_tiled(f)) {
        for (const Compute& c : all<Compute>(f.body))
          if (c.op == LoopOp::Store && is_table(c, f)) tables.insert(c.buffer);
      }
    }
  }

  void rows(const Block& b, const std::unordered_set<uint32_t>& tables) {
    for (const For& f : all<For>(b)) {
      if (f.kind == ForKind::Vector && !is_tiled(f))
        gathers(f, tables);
      else
        rows(f.body, tables);
    }
  }

  void gathers(const For& loop, const std::unordered_set<uint32_t>& tables) {
    std::map<uint32_t, const Compute*> reads;  // by value: of a table, perhaps widened
    std::map<Expr, const Compute*> symbols;    // of the lanes; null: at no place of a table
    // Memory that no checked index names yet is not read.
    if (std::ranges::any_of(all<Compute>(loop.body),
                            [](const Compute& c) { return c.op == LoopOp::Check; }))
      return;
    for (const Compute& c : all<Compute>(loop.body)) {
      if (c.op == LoopOp::Cast && c.dtype == DType::I64 && reads.contains(c.args[0])) {
        reads[c.value] = reads[c.args[0]];
      } else if (c.op == LoopOp::Symbol) {
        const auto it = reads.find(c.args[0]);
        symbols[c.index] = it == reads.end() ? nullptr : it->second;
      } else if (c.op == LoopOp::Load && c.args.empty() && tables.contains(c.buffer) &&
                 is_table(c, loop)) {
        reads[c.value] = &c;
      } else if (c.op == LoopOp::Load && c.args.empty()) {
        note(c, loop, symbols);
      }
    }
  }

  void note(const Compute& gather, const For& loop, const std::map<Expr, const Compute*>& symbols) {
    std::vector<Expr> used;
    sym::collect_symbols(gather.index, used);
    std::erase_if(used, [&](Expr s) { return s != loop.var && !symbols.contains(s); });
    if (used.size() != 1 || used[0] == loop.var) return;
    const Compute* read = symbols.at(used[0]);
    const auto linear = sym::linear_in(gather.index, used[0]);
    if (!read || !linear || !linear->first.is_const(1)) return;
    if (gather.dtype == DType::B8 || ir::byte_size(gather.dtype) > 4) return;
    found_.places[&gather] = {read->value, linear->second};
    found_.entries.insert(read);
    found_.tables.insert(read->buffer);
    found_.loops[&loop].insert(read->buffer);
  }

  const schedule::Kernel& kernel_;
  int lanes_;
  std::unordered_map<uint32_t, int> stores_;  // by buffer
  TableGathers found_;
};

}  // namespace

TableGathers find_table_gathers(const schedule::Kernel& kernel, int lanes) {
  return Finder(kernel, lanes).run();
}

// Whether a statement in a loop over `var`, or outside of one, sets the same value at each
// iteration.
bool KernelWriter::is_same_everywhere(const Compute& c, Expr var,
                                      const std::unordered_set<uint32_t>& known) const {
  if (c.op == LoopOp::Store || c.op == LoopOp::StoreAdd || c.op == LoopOp::Check ||
      c.op == LoopOp::Symbol)
    return false;
  if (c.op == LoopOp::Load && kernel_.buffers[c.buffer].kind != KernelBuffer::Kind::Read)
    return false;
  std::vector<Expr> symbols;
  sym::collect_symbols(c.index, symbols);
  return std::ranges::all_of(symbols, [&](Expr s) { return s == var; }) &&
         std::ranges::all_of(c.args, [&](uint32_t a) { return known.contains(a); });
}

// Whether a loop only fills local buffers that nothing else writes, with the same at each
// iteration.
bool KernelWriter::fills_tables(const For& loop, std::unordered_set<uint32_t> known) const {
  if (loop.kind != ForKind::Vector || is_tiled(loop) || !loop.size.is_const()) return false;
  for (const Stmt& s : loop.body) {
    const Compute* c = std::get_if<Compute>(&s.v);
    if (!c) return false;
    if (is_same_everywhere(*c, loop.var, known)) {
      known.insert(c->value);
      continue;
    }
    int stores = 0;
    walk(kernel_.body, [&](const Stmt& other) {
      const Compute* o = std::get_if<Compute>(&other.v);
      stores +=
          o && (o->op == LoopOp::Store || o->op == LoopOp::StoreAdd) && o->buffer == c->buffer;
    });
    if (c->op != LoopOp::Store || c->index != loop.var || !known.contains(c->args[0]) ||
        stores != 1 || kernel_.buffers[c->buffer].kind != KernelBuffer::Kind::Local)
      return false;
  }
  return true;
}

// Tables that are the same at each iteration are filled once, in front of the iterations, with what
// they need of these.
void KernelWriter::hoist_tables(const Block& iteration) {
  std::unordered_set<uint32_t> known;
  std::vector<const Compute*> values;
  for (const Stmt& s : iteration) {
    const Compute* c = std::get_if<Compute>(&s.v);
    if (c && is_same_everywhere(*c, Expr(0), known)) {
      known.insert(c->value);
      values.push_back(c);
    }
    const For* loop = std::get_if<For>(&s.v);
    if (!loop || !fills_tables(*loop, known)) continue;
    for (const Compute* v : values) {
      if (hoisted_.insert(v).second) write_compute(*v, Scope{});
    }
    write_for(*loop, Scope{});
    write_tables(*loop);
    filled_.insert(loop);
  }
}

// Behind the loop that fills tables: whether their entries are near to each other, and the last
// place at which a whole vector can be read.
void KernelWriter::write_tables(const For& fill) {
  for (const Compute& c : all<Compute>(fill.body)) {
    if (c.op != LoopOp::Store || !table_gathers_.tables.contains(c.buffer)) continue;
    const std::string& table = buffer(c.buffer);
    const int64_t size = fill.size.value();
    out_.line("const b8 ", table, "_near = ", prelude_.fn("are_near", "i32", lanes_), '(', table,
              ", ", size, ");");
    out_.line("const i32 ", table, "_last = ", table, '[', size - 1, "] - ", lanes_ - 1, ';');
  }
}

// Where the memory of a vector's lanes begins, and how far behind it each lies.
void KernelWriter::write_distances(const Compute& c, const Value& entries, const Scope& scope) {
  const std::string first = cat(buffer(c.buffer), '[', index(c.index), ']');
  const std::string last = cat(buffer(c.buffer), "_last"), from = cat(entries.name, "_from");
  out_.line("const i32 ", from, " = ", first, " < ", last, " ? ", first, " : ", last, ';');
  out_.line("const ", value_type_name(DType::I32, scope.lanes), ' ', entries.name,
            "_away = ", entries.name, " - ", prelude_.fn("splat", "i32", scope.lanes), '(', from,
            ");");
}

// A gather at places of a table; empty where it is none.
std::string KernelWriter::table_gathered(const Compute& c, const Scope& scope) {
  const auto place = table_gathers_.places.find(&c);
  if (!near_ || place == table_gathers_.places.end()) return "";
  const std::string& entries = value(place->second.entry).name;
  return cat(prelude_.fn("gather_near", memory_type(c.dtype), scope.lanes), '(', buffer(c.buffer),
             " + ", index(place->second.shared), " + ", entries, "_from, ", entries, "_away)");
}

}  // namespace oxy::codegen::cpp
