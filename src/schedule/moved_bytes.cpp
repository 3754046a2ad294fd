// Counts distinct elements of loads and stores from their index expressions.
#include "schedule/moved_bytes.h"

#include <algorithm>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {
namespace {

// How many elements one statement comes to: the iterations of the loops that its index depends on,
// or of all of them where the index was loaded.
int64_t touched(const Compute& c, const Path& path) {
  std::vector<Expr> symbols;
  sym::collect_symbols(c.index, symbols);
  std::erase_if(symbols, [](Expr s) { return !loops::is_variable(s); });
  auto among = [&](Expr var) {
    return std::find(symbols.begin(), symbols.end(), var) != symbols.end();
  };
  size_t found = 0;
  int64_t some = 1, all = 1;
  for (const For* f : path) {
    const int64_t size = count_of(f->size);
    all *= size;
    if (!among(f->var)) continue;
    some *= size;
    ++found;
  }
  std::sort(symbols.begin(), symbols.end());
  const size_t distinct =
      static_cast<size_t>(std::unique(symbols.begin(), symbols.end()) - symbols.begin());
  return found == distinct ? some : all;
}

}  // namespace

int64_t moved_bytes(const Kernel& k) {
  struct Counts {
    int64_t loads = 0, stores = 0;
  };
  std::vector<Counts> counts(k.buffers.size());
  for_each_compute(k, [&](const Compute& c, const Path& path) {
    if (c.op != LoopOp::Load && c.op != LoopOp::Store && c.op != LoopOp::StoreAdd) return;
    Counts& of = counts[c.buffer];
    if (c.op != LoopOp::Store) of.loads += touched(c, path);
    if (c.op != LoopOp::Load) of.stores += touched(c, path);
  });
  int64_t bytes = 0;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const KernelBuffer& b = k.buffers[i];
    if (b.kind == KernelBuffer::Kind::Local) continue;
    const int64_t elements = count_of(b.elements);
    bytes += (std::min(counts[i].loads, elements) + std::min(counts[i].stores, elements)) *
             ir::byte_size(b.dtype);
  }
  return bytes;
}

}  // namespace oxy::schedule
