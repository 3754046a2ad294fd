// Looks for the store that a mutation copies, and lets it write to the input.
#include <algorithm>
#include <map>
#include <memory>

#include "schedule/cost.h"
#include "schedule/kernel_access.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"

namespace oxy::schedule {

namespace {

// Elements have places of their own, at all sizes: each stride steps over all that the smaller ones
// reach.
bool is_injective(const ir::TensorType& t) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (!t.sizes[d].is_const() || t.sizes[d].value() > 1) dims.push_back(d);
  std::ranges::stable_sort(dims, {}, [&](size_t d) { return hinted(t.strides[d]).value_or(0); });
  Expr reach = 0;
  for (size_t d : dims) {
    if (sym::known_less(reach, t.strides[d]) != true) return false;
    reach += t.strides[d] * (t.sizes[d] - 1);
  }
  return true;
}

bool lies_alike(const ir::TensorType& a, const ir::TensorType& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (!a.sizes[d].is_const(1) && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

class InPlace {
 public:
  explicit InPlace(Schedule& s) : s_(s), graph_(*s.program.graph) {
    for (const ir::OutputSpec& o : graph_.outputs)
      if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) note(handed_out_, o.value);
    for (const ir::Mutation& m : graph_.mutations) note(copied_, m.value);
    for (auto* homes : {&s.program.buffer_of, &s.program.copy_of})
      for (auto& [v, b] : *homes) named_[b].push_back(&b);
    for (Buffer& b : s.program.buffers)
      if (b.kind == Buffer::Kind::View) named_[b.base].push_back(&b.base);
  }

  void run() {
    for (const auto& [step, m] : last_written_first()) {
      std::optional<BufferId> input = home(graph_.inputs()[m.input]), value = home(m.value);
      if (m.metadata || !input || !value) continue;
      if (!lies_alike(buffer(*input).type, buffer(*value).type)) continue;
      value = whole(*value);
      if (!is_candidate(*input, *value)) continue;
      const std::vector<ScheduledStep> steps = s_.steps;
      const size_t kernels = s_.kernels.size();
      if (!write(*input, *value)) {
        s_.steps = steps;
        s_.kernels.resize(kernels);
        known_uses_.resize(kernels);
        continue;
      }
      become(*value, *input);
      s_.in_place.emplace_back(m.input, *input);
    }
    drop_unused_kernels();
  }

 private:
  // What is written later stands in the way of what is written earlier as long as it may raise.
  std::vector<std::pair<size_t, ir::Mutation>> last_written_first() {
    std::vector<std::pair<size_t, ir::Mutation>> out;
    for (const ir::Mutation& m : graph_.mutations) {
      const std::optional<BufferId> value = home(m.value);
      const std::vector<size_t> at = value ? writers_of(whole(*value)) : std::vector<size_t>();
      out.emplace_back(at.size() == 1 ? at[0] : 0, m);
    }
    std::ranges::stable_sort(out, std::greater<>(), [](const auto& x) { return x.first; });
    return out;
  }

  std::optional<BufferId> home(ir::ValueId v) const {
    const BufferId* b = result_of(s_.program, v);
    return b ? std::optional(*b) : std::nullopt;
  }
  const Buffer& buffer(BufferId b) const { return s_.program.buffers[b]; }
  // Complex numbers that were computed are a view of their parts, and what was written as a line
  // may be a view of it.
  BufferId whole(BufferId b) const {
    const ir::TensorType& view = buffer(b).type;
    if (buffer(b).kind != Buffer::Kind::View) return b;
    const ir::TensorType& base = buffer(buffer(b).base).type;
    const bool same = view.offset.is_const(0) &&
                      loops::byte_extent(view) == loops::byte_extent(base) &&
                      (ir::is_complex(view.dtype) || (view.is_row_major() && base.is_row_major()));
    return same ? buffer(b).base : b;
  }
  void note(std::map<BufferId, int>& memories, ir::ValueId v) const {
    if (const auto b = home(v)) ++memories[memory_of(s_.program, *b)];
  }

  bool is_candidate(BufferId input, BufferId value) const {
    Buffer::Kind kind = buffer(value).kind;
    if (buffer(input).kind != Buffer::Kind::Input) return false;
    if (kind != Buffer::Kind::Temp && kind != Buffer::Kind::Extern) return false;
    if (!is_injective(buffer(input).type)) return false;
    // The old value goes to the caller, or into another input.
    return !handed_out_.contains(input) && !copied_.contains(input) && copied_.at(value) == 1;
  }

  // Has a kernel write the input, as a part of its own where that pays. False: what was done to
  // steps and kernels is to be taken back.
  bool write(BufferId input, BufferId value) {
    hoist_checks(value);
    const std::vector<size_t> at = writers_of(value);
    if (at.size() == 2) return write_scatter(input, value, at[0], at[1]);
    const auto* call = at.size() == 1 ? std::get_if<KernelCall>(&s_.steps[at[0]]) : nullptr;
    if (!call) return false;
    Kernel& k = s_.kernels[call->kernel];
    int32_t old = entry_of(k, input), written = entry_of(k, value);
    if (k.buffers[static_cast<size_t>(written)].kind == KernelBuffer::Kind::Write)
      store_last(k.body, static_cast<uint32_t>(written));
    if (old >= 0) {
      auto cut = changed_part(k, *s_.program.variables, static_cast<uint32_t>(old),
                              static_cast<uint32_t>(written));
      if (cut && (cut->parts.size() == 1 || is_last(at[0], input)))
        if (auto kernels = in_order(*std::move(cut), input, value))
          return divide(at[0], *std::move(kernels), input);
    }
    if (has_check(k) || !may_overwrite(k, old, static_cast<uint32_t>(written))) return false;
    return sink(at[0], input);
  }

  // The kernels of a change in the order in which they run. A part that reads what others, or other
  // iterations of its own, have written computes its values in front of them all. Nothing where no
  // one knows how.
  std::optional<std::vector<Kernel>> in_order(ChangedPart cut, BufferId input, BufferId value) {
    std::vector<Kernel> first, then;
    if (cut.rest) first.push_back(*std::move(cut.rest));
    for (size_t i = 0; i < cut.parts.size(); ++i) {
      Kernel& part = cut.parts[i];
      const auto written = static_cast<uint32_t>(entry_of(part, value));
      if (!cut.reads_written[i] && may_overwrite(part, entry_of(part, input), written)) {
        then.push_back(std::move(part));
        continue;
      }
      auto two = staged(part, written);
      if (!two) return std::nullopt;
      first.push_back(std::move(two->first));
      then.push_back(std::move(two->second));
    }
    std::ranges::move(then, std::back_inserter(first));
    return first;
  }

  // A kernel that stores to a buffer of its own, and one that copies from there.
  std::optional<std::pair<Kernel, Kernel>> staged(const Kernel& part, uint32_t written) {
    const auto extent = extent_of_store(part, written);
    if (!extent) return std::nullopt;
    Buffer made{.name = cat("staged", s_.program.buffers.size())};
    made.type.dtype = part.buffers[written].dtype;
    made.type.device = buffer(part.buffers[written].buffer).type.device;
    made.type.sizes = {*extent};
    made.type.strides = {1};
    const BufferId b = s_.program.buffers.add(std::move(made));
    return stage(part, written, make_entry(s_.program, b, KernelBuffer::Kind::Read));
  }

  // Kernels that read the value and may raise: what they check, which is not the value, is checked
  // in front of it.
  void hoist_checks(BufferId value) {
    const std::vector<size_t> writers = writers_of(value);
    if (writers.empty()) return;
    for (size_t i = writers.back() + 1; i < s_.steps.size(); ++i) {
      const auto* call = std::get_if<KernelCall>(&s_.steps[i]);
      if (!call || !has_check(s_.kernels[call->kernel])) continue;
      Kernel rest = s_.kernels[call->kernel];
      std::optional<Kernel> checks = checks_of(rest);
      if (entry_of(rest, value) < 0 || !checks || entry_of(*checks, value) >= 0) continue;
      checks->annotations = {};
      const ScheduledStep check = KernelCall{static_cast<uint32_t>(s_.kernels.size())};
      s_.kernels.push_back(*std::move(checks));
      const size_t place = earliest(check, i);
      if (place > writers.front()) {
        s_.kernels.pop_back();
        continue;
      }
      drop_checks(rest);
      s_.steps[i] = KernelCall{static_cast<uint32_t>(s_.kernels.size())};
      s_.kernels.push_back(std::move(rest));
      s_.steps.insert(s_.steps.begin() + static_cast<std::ptrdiff_t>(place), check);
      ++i;
    }
  }

  // In a block without loops, stores to what the kernel does not read come behind all else.
  static void store_last(Block& block, uint32_t written) {
    bool innermost = true;
    for (Stmt& s : block)
      if (auto* f = std::get_if<For>(&s.v)) innermost = false, store_last(f->body, written);
    if (!innermost) return;
    std::ranges::stable_partition(block, [&](const Stmt& s) {
      const auto* c = std::get_if<Compute>(&s.v);
      return !c || c->op != LoopOp::Store || c->buffer != written;
    });
  }

  // A kernel that copies the input, then one that folds into the copy: this one may fold into the
  // input itself, once all places have been checked.
  bool write_scatter(BufferId input, BufferId value, size_t copying, size_t folding) {
    const auto* first = std::get_if<KernelCall>(&s_.steps[copying]);
    const auto* second = std::get_if<KernelCall>(&s_.steps[folding]);
    if (!first || !second || !copies(s_.kernels[first->kernel], input, value)) return false;
    Kernel scatter = s_.kernels[second->kernel];
    if (entry_of(scatter, input) >= 0) return false;
    const Kernel& copy = s_.kernels[first->kernel];
    auto rest = without_stores(copy, static_cast<uint32_t>(entry_of(copy, value)));
    std::vector<Kernel> parts;
    if (auto checks = checks_of(scatter)) parts.push_back(std::move(*checks));
    drop_checks(scatter);
    parts.push_back(std::move(scatter));
    if (rest) {
      s_.steps[copying] = KernelCall{static_cast<uint32_t>(s_.kernels.size())};
      s_.kernels.push_back(std::move(*rest));
    } else {
      s_.steps.erase(s_.steps.begin() + copying);
      --folding;
    }
    return divide(folding, std::move(parts), input);
  }

  // What the kernel stores to the value is the input's element at the same place.
  bool copies(const Kernel& k, BufferId input, BufferId value) const {
    const int32_t from = entry_of(k, input), to = entry_of(k, value);
    if (from < 0 || to < 0 || has_check(k)) return false;
    const auto read = static_cast<uint32_t>(from), written = static_cast<uint32_t>(to);
    if (store_count(k, written) != 1 || k.buffers[written].kind != KernelBuffer::Kind::Write)
      return false;
    std::map<uint32_t, const Compute*> loads;
    bool same = false;
    walk<Compute>(k.body, [&](const Compute& c) {
      if (c.op == LoopOp::Load && c.buffer == read && c.args.empty()) loads[c.value] = &c;
      if (c.op != LoopOp::Store || c.buffer != written) return;
      auto it = loads.find(c.args[0]);
      same = it != loads.end() && it->second->index == c.index;
    });
    return same;
  }

  // The steps that write the buffer.
  std::vector<size_t> writers_of(BufferId b) {
    std::vector<size_t> at;
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      if (writes(*uses_at(i), b)) at.push_back(i);
    }
    return at;
  }

  // What the step at this place uses. Each mutation asks for all of them: a kernel is walked once.
  std::shared_ptr<const StepUses> uses_at(size_t step) {
    const auto find = [&] { return std::make_shared<const StepUses>(uses_of(s_, s_.steps[step])); };
    const auto* call = std::get_if<KernelCall>(&s_.steps[step]);
    if (!call) return find();
    known_uses_.resize(s_.kernels.size());
    std::shared_ptr<const StepUses>& uses = known_uses_[call->kernel];
    if (!uses) uses = find();
    return uses;
  }

  // These kernels in a step's place, if the last of them may write the input.
  bool divide(size_t at, std::vector<Kernel> kernels, BufferId input) {
    s_.steps.erase(s_.steps.begin() + at);
    for (size_t i = 0; i < kernels.size(); ++i) {
      kernels[i].annotations = {};  // of the whole, not of a part
      const ScheduledStep call = KernelCall{static_cast<uint32_t>(s_.kernels.size())};
      s_.kernels.push_back(std::move(kernels[i]));
      const size_t place = i + 1 < kernels.size() ? earliest(call, at + i) : at + i;
      s_.steps.insert(s_.steps.begin() + place, call);
    }
    return sink(at + kernels.size() - 1, input);
  }

  // Where a step that may raise can stand at the earliest; another step stays in front of `at`.
  size_t earliest(const ScheduledStep& step, size_t at) {
    const StepUses own = uses_of(s_, step);
    while (own.raises && at > 0 && !conflict(own, *uses_at(at - 1))) --at;
    return at;
  }

  // Nothing behind the step may raise or reads the old value: it can stay where it is.
  bool is_last(size_t at, BufferId input) {
    for (size_t i = at + 1; i < s_.steps.size(); ++i) {
      const auto uses = uses_at(i);
      if (uses->raises || reads(*uses, input)) return false;
    }
    return true;
  }

  // Moves a step, and those that need it, behind the last step that may raise or reads the old
  // value.
  bool sink(size_t at, BufferId input) {
    std::vector<std::shared_ptr<const StepUses>> uses;
    size_t last = at;
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      uses.push_back(uses_at(i));
      if (i > at && (uses[i]->raises || reads(*uses[i], input))) last = i;
    }
    std::vector<bool> moves(s_.steps.size(), false);
    moves[at] = true;
    for (size_t i = at + 1; i <= last; ++i) {
      for (size_t j = at; j < i && !moves[i]; ++j)
        moves[i] = moves[j] && conflict(*uses[i], *uses[j]);
      if (moves[i] && (uses[i]->raises || reads(*uses[i], input))) return false;
    }
    std::vector<ScheduledStep> moved;
    size_t kept = at;
    for (size_t i = at; i <= last; ++i) {
      if (moves[i])
        moved.push_back(std::move(s_.steps[i]));
      else
        s_.steps[kept++] = std::move(s_.steps[i]);
    }
    std::ranges::move(moved, s_.steps.begin() + kept);
    return true;
  }

  // Kernels that have been divided are called no more; the others are numbered in the order of
  // their calls.
  void drop_unused_kernels() {
    std::vector<Kernel> kernels;
    for (ScheduledStep& step : s_.steps) {
      auto* call = std::get_if<KernelCall>(&step);
      if (!call) continue;
      kernels.push_back(std::move(s_.kernels[call->kernel]));
      call->kernel = static_cast<uint32_t>(kernels.size() - 1);
    }
    s_.kernels = std::move(kernels);
  }

  // From now on the value is what the input's memory holds.
  void become(BufferId value, BufferId input) {
    const std::string name = buffer(input).name;
    for (Kernel& k : s_.kernels) {
      int32_t entry = entry_of(k, value);
      if (entry >= 0)
        merge_entries(k, entry_of(k, input), static_cast<uint32_t>(entry), input, name);
    }
    for (auto& uses : known_uses_)
      if (uses && (reads(*uses, value) || writes(*uses, value))) uses = nullptr;
    for (ScheduledStep& step : s_.steps) {
      if (loops::Call* call = call_of(step)) std::ranges::replace(call->reads, value, input);
    }
    if (const auto moved = named_.extract(value)) {
      std::vector<BufferId*>& places = named_[input];
      for (BufferId* place : moved.mapped()) {
        *place = input;
        places.push_back(place);
      }
    }
    for (auto* memories : {&handed_out_, &copied_})
      if (const auto moved = memories->extract(value)) (*memories)[input] += moved.mapped();
  }

  Schedule& s_;
  const ir::Graph& graph_;
  // By memory: how many outputs it holds, and new values of inputs.
  std::map<BufferId, int> handed_out_, copied_;
  // Where the program names a buffer as the home of a value or the base of a view: a step of an
  // optimizer has thousands of values, and hundreds of them move.
  std::map<BufferId, std::vector<BufferId*>> named_;
  std::vector<std::shared_ptr<const StepUses>> known_uses_;  // by kernel; null: not looked at yet
};

}  // namespace

void write_in_place(Schedule& s) {
  if (s.program.graph && !s.program.graph->mutations.empty()) InPlace(s).run();
}

}  // namespace oxy::schedule
