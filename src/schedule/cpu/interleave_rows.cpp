// Checks that a Serial loop is short and walks memory that its Vector loop steps over, then writes
// the vector's statements once for each of its iterations.
#include <bit>

#include "schedule/cost.h"
#include "schedule/cpu/annotations.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::schedule {
namespace {

class RowInterleaver {
 public:
  explicit RowInterleaver(Kernel& k) : kernel_(k) {}

  void run() { block(kernel_.body); }

 private:
  void block(Block& b) {
    for (Stmt& s : b) {
      For* loop = std::get_if<For>(&s.v);
      if (!loop) continue;
      if (const For* vector = steps_over(*loop))
        s = Stmt{interleaved(*loop, *vector)};
      else
        block(loop->body);
    }
  }

  // The Vector loop that a short loop ends with, where it stores what lies along the short loop.
  static const For* steps_over(const For& loop) {
    if (loop.kind != ForKind::Serial || !loop.size.is_const() || loop.body.empty()) return nullptr;
    const For* vector = std::get_if<For>(&loop.body.back().v);
    if (!vector || vector->kind != ForKind::Vector || sym::contains(vector->size, loop.var))
      return nullptr;
    const int64_t n = loop.size.value();
    const size_t statements = loop.body.size() - 1 + vector->body.size();
    if (n < 2 || n > tuning::most_neighbours || statements * n > 2 * tuning::unrolled_body)
      return nullptr;
    bool along = false;
    for (const Block* body : {&loop.body, &vector->body}) {
      for (const Stmt& s : *body) {
        const Compute* c = std::get_if<Compute>(&s.v);
        if (!c && &s == &loop.body.back()) continue;
        if (!c || is_any(c->op, LoopOp::StoreAdd, LoopOp::Check, LoopOp::Symbol)) return nullptr;
        if (c->op != LoopOp::Store) continue;
        if (body == &loop.body) return nullptr;
        const auto by_short = sym::linear_in(c->index, loop.var),
                   by_lane = sym::linear_in(c->index, vector->var);
        if (!by_short || !by_lane || by_lane->first.is_const(0)) return nullptr;
        along |= by_short->first.is_const(1) && !by_lane->first.is_const(1);
      }
    }
    return along ? vector : nullptr;
  }

  For interleaved(const For& loop, const For& vector) {
    For out{ForKind::Vector, vector.var, vector.size, vector.annotations, {}};
    for (int64_t k = 0; k < loop.size.value(); ++k) {
      std::unordered_map<uint32_t, uint32_t> values;
      for (const Block* body : {&loop.body, &vector.body}) {
        for (const Stmt& s : *body) {
          const Compute* c = std::get_if<Compute>(&s.v);
          if (!c) continue;
          Compute made = *c;
          made.index = replace(c->index, {{loop.var, k}});
          for (uint32_t& a : made.args)
            if (const auto known = values.find(a); known != values.end()) a = known->second;
          if (sets_value(c->op)) {
            const Compute* same = equal_in(out.body, made);
            made.value = values[c->value] = same ? same->value : kernel_.value_count++;
            if (same) continue;
          }
          out.body.push_back(Stmt{std::move(made)});
        }
      }
    }
    return out;
  }

  // A statement that gives the same value; of loads, while nothing has been stored to the buffer.
  static const Compute* equal_in(const Block& body, const Compute& made) {
    const Compute* found = nullptr;
    for (const Stmt& s : body) {
      const Compute& c = std::get<Compute>(s.v);
      if (c.op == LoopOp::Store) {
        if (made.op == LoopOp::Load && c.buffer == made.buffer) return nullptr;
      } else if (c.op == made.op && c.dtype == made.dtype && c.args == made.args &&
                 c.buffer == made.buffer && c.index == made.index &&
                 std::bit_cast<uint64_t>(c.number) == std::bit_cast<uint64_t>(made.number) &&
                 c.integer == made.integer) {
        found = &c;
      }
    }
    return found;
  }

  Kernel& kernel_;
};

}  // namespace

void interleave_rows(Kernel& k) { RowInterleaver(k).run(); }

}  // namespace oxy::schedule
