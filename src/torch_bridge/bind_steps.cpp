// What a plan's steps are bound to, once: which tensors each wants, what lives how long, weights
// that are packed.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "runtime/launch.h"
#include "runtime/pack.h"
#include "torch_bridge/execute.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::bridge {

using runtime::PlanBuffer;
using runtime::PlanOutput;
using BufferKind = PlanBuffer::Kind;

namespace {

constexpr int64_t kBriefBytes = 1 << 18;

}  // namespace

void Executable::check_mutations() const {
  for (const runtime::PlanMutation& m : plan_.mutations) {
    // out= tensors are resized where they do not fit.
    const auto& sizes = m.layout && !m.same_data ? m.layout->sizes : plan_.inputs[m.input].sizes;
    if (buffer(m.buffer).meta.sizes != sizes)
      throw Unsupported("an input whose shape changes in place");
  }
}

// Packed weights of different plans are different tensors; within one plan each is made once.
void Executable::pack_weights(std::span<const Input> example) {
  for (const runtime::PlanPacking& p : plan_.packings) {
    if (buffer(p.to).source < attributes_.size()) continue;  // by whoever saved the plan
    const PlanBuffer& from = buffer(root(p.from));
    const at::Tensor t =  // a copy: the attributes grow
        from.kind == BufferKind::Input ? *example[from.source].tensor : attributes_.at(from.source);
    const size_t there = t.storage().nbytes() / sizeof(float);
    const auto read = static_cast<size_t>(runtime::read_elements(p) + t.storage_offset());
    OXY_CHECK(t.scalar_type() == c10::kFloat && read <= there, from.name, " cannot be packed");
    OXY_CHECK(buffer(p.to).source == attributes_.size(), buffer(p.to).name, " is not the next one");
    c10::InferenceMode plain(false);
    const runtime::TensorMeta packed{DType::F32, {}, {runtime::packed_elements(p)}, {1}, 0};
    attributes_.push_back(allocate(packed, runtime::span_bytes(packed)));
    runtime::pack(p, static_cast<const float*>(t.const_data_ptr()),
                  static_cast<float*>(attributes_.back().mutable_data_ptr()), torch_host());
  }
}

// Constants from which packed weights were made.
void Executable::forget_unused_attributes(size_t first) {
  std::vector<bool> read(plan_.buffers.size(), false);
  for (const runtime::PlanStep& step : plan_.steps)
    for (uint32_t b : runtime::buffers_of(step)) read[root(b)] = true;
  for (const PlanOutput& o : plan_.outputs)
    if (o.buffer >= 0) read[root(static_cast<uint32_t>(o.buffer))] = true;
  for (const runtime::PlanMutation& m : plan_.mutations) read[root(m.buffer)] = true;
  for (uint32_t b = 0; b < plan_.buffers.size(); b++) {
    const PlanBuffer& p = buffer(b);
    if (p.kind == BufferKind::Attribute && p.source >= first && !read[b])
      attributes_[p.source] = at::empty({0}, attributes_[p.source].options());
  }
}

bool Executable::is_reused(uint32_t b) const {
  const PlanBuffer& r = buffer(root(b));
  if (r.kind == BufferKind::Arena || r.kind == BufferKind::Output) return true;
  if (r.kind != BufferKind::Input) return false;
  return std::ranges::any_of(plan_.mutations, [&](const runtime::PlanMutation& m) {
    return m.in_place && m.input == r.source;
  });
}

InputSignature::Options Executable::signature_options(std::span<const Input> example) const {
  InputSignature::Options o;
  // Inputs in one storage were found apart from each other: elsewhere in it they might meet.
  o.sharing = !plan_.mutations.empty();
  for (const runtime::PlanMutation& m : plan_.mutations)
    o.written.push_back(storage_of(*example[m.input].tensor->unsafeGetTensorImpl()));
  o.offsets = options_.offsets;
  o.requires_grad = !options_.requires_grad.empty();
  // A view as a wider dtype must not begin inside of one of its elements.
  for (const PlanOutput& out : plan_.outputs) {
    if (out.kind == PlanOutput::Kind::ViewOfInput &&
        out.meta->dtype != plan_.inputs[out.index].dtype)
      o.offsets = true;
  }
  return o;
}

BoundSizes::BoundSizes(const runtime::Plan& plan, const runtime::SizeStep& step, uint32_t number)
    : program_(plan.sizes), step_(step), changes_(plan, number) {
  const std::vector<uint32_t> known = runtime::known_from(plan);
  for (uint32_t i = 0; i < known.size(); i++)
    if (known[i] == number && runtime::reads_slots(program_.instructions[i].op))
      computed_.push_back(i);
  auto add = [](std::vector<uint32_t>& list, uint32_t b) {
    if (std::ranges::find(list, b) == list.end()) list.push_back(b);
  };
  for (const runtime::Slot s : step.reads) {
    const runtime::SizeInstruction& i = program_.instructions[s.index];
    add(i.op == runtime::SizeOp::BufferNumber ? numbers_ : read_, static_cast<uint32_t>(i.a));
  }
  for (uint32_t b = 0; b < plan.buffers.size(); b++) {
    if (runtime::known_from(plan, known, b) != number) continue;
    if (plan.buffers[b].kind == BufferKind::Output) made_.push_back(b);
    if (plan.buffers[b].kind == BufferKind::View) views_.push_back(b);
  }
}

void BoundSizes::update(const std::vector<at::Tensor>& tensors, runtime::SizedPlan& sized) const {
  for (const runtime::Slot s : step_.reads) {
    const runtime::SizeInstruction& i = program_.instructions[s.index];
    const at::Tensor& t = tensors[static_cast<size_t>(i.a)];
    sized.slots[s.index] =
        i.op == runtime::SizeOp::BufferNumber ? t.item<int64_t>() : t.sizes().at(i.b);
  }
  runtime::evaluate(program_, computed_, sized.slots.data());
  for (const runtime::PlanCheck& check : step_.checks)
    if (sized.slots[check.holds.index] == 0) throw InternalError(cat(kReliedOn, check.what));
  changes_.apply(sized);
}

void Executable::bind_sizes(const runtime::SizeStep& step, std::vector<bool>& has_tensor) {
  BoundSizes sizes(plan_, step, static_cast<uint32_t>(sizes_.size() + 1));
  for (uint32_t b : sizes.numbers()) need_tensor(b, has_tensor);
  const bool of_call = !sizes.sizes().empty();
  OXY_CHECK(!of_call || (!steps_.empty() && steps_.back().kind == StepKind::Extern),
            "sizes of what no call has made");
  if (of_call)
    sizes_of_call_[steps_.back().index] = static_cast<int32_t>(sizes_.size());
  else
    steps_.push_back({StepKind::Sizes, static_cast<uint32_t>(sizes_.size())});
  sizes_.push_back(std::move(sizes));
}

void Executable::bind_steps() {
  std::vector<bool> has_tensor(plan_.buffers.size(), false), has_memory;
  const std::vector<uint32_t> known = runtime::known_from(plan_);
  for (uint32_t b = 0; b < plan_.buffers.size(); b++)  // size steps make the rest
    has_memory.push_back(buffer(b).kind != BufferKind::Output ||
                         runtime::known_from(plan_, known, b) != 0);
  for (const runtime::PlanStep& step : plan_.steps) {
    for (uint32_t b : runtime::buffers_of(step)) need_memory(b, has_memory);
    if (auto launch = runtime::bind_launch(plan_, step)) {
      steps_.push_back({StepKind::Kernel, static_cast<uint32_t>(launches_.size())});
      launches_.push_back(std::move(*launch));
    } else if (auto* e = std::get_if<runtime::ExternStep>(&step)) {
      bind_call(*e, has_tensor);
    } else if (auto* f = std::get_if<runtime::FreeStep>(&step)) {
      steps_.push_back({StepKind::Free, f->buffer});
    } else if (auto* s = std::get_if<runtime::SizeStep>(&step)) {
      bind_sizes(*s, has_tensor);
    } else {
      bind_region(std::get<runtime::RegionStep>(step), has_tensor);
    }
  }
  for (uint32_t b = 0; b < plan_.buffers.size(); b++) need_memory(b, has_memory);
  bind_results(has_tensor);
  if (options_.releases) add_releases();
  bind_moves();
  first_write_ = find_first_write();
  forget_unused_results();
  if (static_sizes_) brief_ = can_be_brief(*static_sizes_);
}

bool Executable::can_be_brief(const runtime::SizedPlan& sizes) const {
  if (!calls_.empty() || !regions_.empty() || !sizes_.empty()) return false;
  int64_t bytes = 0;
  for (uint32_t b = 0; b < plan_.buffers.size() && bytes <= kBriefBytes; b++)
    bytes += buffer(b).kind == BufferKind::View ? 0 : sizes.buffers[b].bytes;
  return bytes <= kBriefBytes;
}

void Executable::bind_call(const runtime::ExternStep& step, std::vector<bool>& has_tensor) {
  BoundCall call(step, plan_.sizes);
  for (uint32_t b : call.reads()) need_tensor(b, has_tensor);
  for (const BoundCall::Result& r : call.results()) {
    OXY_CHECK(buffer(r.buffer).kind == BufferKind::Extern, call.name(), " makes ",
              buffer(r.buffer).name);
    has_tensor[r.buffer] = true;
    temporaries_.push_back(r.buffer);
  }
  random_ |= call.random();
  steps_.push_back({StepKind::Extern, static_cast<uint32_t>(calls_.size())});
  calls_.push_back(std::move(call));
  sizes_of_call_.push_back(-1);
}

// Schedules write in place behind all extern calls, regions and checks (schedule/in_place.cpp).
size_t Executable::find_first_write() const {
  auto written = [&](uint32_t b) { return buffer(b).kind == BufferKind::Input && is_reused(b); };
  auto may_raise = [](StepKind k) {
    return k == StepKind::Extern || k == StepKind::Region || k == StepKind::Sizes;
  };
  size_t first = steps_.size();
  for (size_t i = steps_.size(); i > 0 && !may_raise(steps_[i - 1].kind); i--)
    if (const auto& step = steps_[i - 1];
        step.kind == StepKind::Kernel && std::ranges::any_of(launches_[step.index].memory, written))
      first = i - 1;
  return first;
}

void Executable::bind_region(const runtime::RegionStep& step, std::vector<bool>& has_tensor) {
  for (uint32_t b : step.operands) need_tensor(b, has_tensor);
  for (int64_t b : step.results) {
    if (b < 0) continue;
    const auto made = static_cast<uint32_t>(b);
    OXY_CHECK(buffer(made).kind == BufferKind::Extern, "a region makes ", buffer(made).name);
    has_tensor[made] = true;
    temporaries_.push_back(made);
  }
  Options options = options_;
  options.frozen = false;
  steps_.push_back({StepKind::Region, static_cast<uint32_t>(regions_.size())});
  regions_.push_back(std::make_unique<BoundRegion>(plan_, step, code_, options));
  random_ |= regions_.back()->is_random();
}

// The tensors that begin() or an earlier step makes are there; an arena buffer's is made with the
// lease, a view's by a step before its first reader.
void Executable::need_tensor(uint32_t b, std::vector<bool>& has_tensor) {
  if (has_tensor[b]) return;
  const PlanBuffer& p = buffer(b);
  if (p.kind == BufferKind::View) need_tensor(root(b), has_tensor);
  has_tensor[b] = true;
  if (buffer(root(b)).kind == BufferKind::Arena) {
    arena_tensors_.push_back(b);
  } else if (p.kind == BufferKind::View) {
    steps_.push_back({StepKind::View, b});
    temporaries_.push_back(b);
  }
}

// A result's memory is taken where the first step touches it: until then inputs that are given up
// may free as much.
void Executable::need_memory(uint32_t b, std::vector<bool>& has_memory) {
  if (has_memory[root(b)]) return;
  has_memory[root(b)] = true;
  steps_.push_back({StepKind::Make, root(b)});
}

std::vector<uint32_t> Executable::read_by(const Step& step) const {
  switch (step.kind) {
    case StepKind::Kernel:
      return launches_[step.index].memory;
    case StepKind::Extern:
      return calls_[step.index].reads();
    case StepKind::Region:
      return regions_[step.index]->operands();
    case StepKind::Sizes:
      return sizes_[step.index].numbers();
    case StepKind::View:
      return {step.index};
    case StepKind::Free:
    case StepKind::Make:
    case StepKind::Release:
      break;
  }
  return {};
}

// Behind its last reader, each input that neither a result nor a mutation names.
void Executable::add_releases() {
  if (!plan_.mutations.empty()) return;
  std::vector<bool> seen(plan_.buffers.size(), true);
  for (uint32_t b = 0; b < plan_.buffers.size(); b++) seen[b] = buffer(b).kind != BufferKind::Input;
  for (const PlanOutput& o : plan_.outputs) {
    if (o.buffer >= 0) seen[root(static_cast<uint32_t>(o.buffer))] = true;
    if (o.kind != PlanOutput::Kind::Input && o.kind != PlanOutput::Kind::ViewOfInput) continue;
    for (uint32_t b = 0; b < plan_.buffers.size(); b++)
      if (buffer(b).kind == BufferKind::Input && buffer(b).source == o.index) seen[b] = true;
  }
  std::vector<Step> reversed;
  for (size_t i = steps_.size(); i-- > 0;) {
    for (uint32_t b : read_by(steps_[i])) {
      if (seen[root(b)]) continue;
      seen[root(b)] = true;
      reversed.push_back({StepKind::Release, root(b)});
    }
    reversed.push_back(steps_[i]);
  }
  steps_.assign(reversed.rbegin(), reversed.rend());
}

void Executable::bind_results(std::vector<bool>& has_tensor) {
  auto keep = [&](uint32_t b) {
    need_tensor(b, has_tensor);
    if (std::ranges::find(results_, b) == results_.end()) results_.push_back(b);
  };
  for (const PlanOutput& o : plan_.outputs)
    if (o.buffer >= 0) keep(static_cast<uint32_t>(o.buffer));
  for (const runtime::PlanMutation& m : plan_.mutations)
    if (!m.in_place && !m.same_data) keep(m.buffer);
  for (uint32_t b = 0; b < plan_.buffers.size(); b++) {
    const BufferKind kind = buffer(b).kind;
    if (kind == BufferKind::Input)
      entering_.push_back({b, buffer(b).source, is_reused(b), has_tensor[b]});
    if (kind == BufferKind::Attribute) kept_.push_back(b);
    if (kind == BufferKind::Input || kind == BufferKind::Output) temporaries_.push_back(b);
  }
  std::erase_if(temporaries_,
                [&](uint32_t b) { return std::ranges::find(results_, b) != results_.end(); });
}

// Tensors that go to the caller and nowhere else, and those that a call leaves nothing in.
void Executable::bind_moves() {
  for (const PlanOutput& o : plan_.outputs) {
    auto same = [&](const auto& x) { return x.buffer == o.buffer; };
    const bool own =
        o.buffer >= 0 && buffer(static_cast<uint32_t>(o.buffer)).kind == BufferKind::Output;
    moved_.push_back(own && std::ranges::count_if(plan_.outputs, same) == 1 &&
                     std::ranges::none_of(plan_.mutations, same));
  }
  std::map<std::tuple<PlanOutput::Kind, uint32_t, uint32_t>, uint32_t> later;
  next_detached_.assign(plan_.outputs.size(), static_cast<uint32_t>(plan_.outputs.size()));
  for (auto i = static_cast<uint32_t>(plan_.outputs.size()); i-- > 0;) {
    const PlanOutput& o = plan_.outputs[i];
    if (!o.detached) continue;
    const auto [at, is_last] = later.try_emplace({o.kind, o.index, o.alias}, i);
    if (!is_last) next_detached_[i] = std::exchange(at->second, i);
  }
  cleared_ = temporaries_;
  for (uint32_t b : results_)
    if (buffer(root(b)).kind != BufferKind::Arena) cleared_.push_back(b);
  auto is_new = [&](const PlanOutput& o) { return !o.conj && !o.neg; };
  dispatches_ =
      !calls_.empty() || !regions_.empty() || !sizes_.empty() || !plan_.mutations.empty() ||
      std::ranges::count(steps_, StepKind::View, &Step::kind) > 0 ||
      std::ranges::count(moved_, false) > 0 || !std::ranges::all_of(plan_.outputs, is_new);
}

void Executable::forget_unused_results() {
  std::vector<bool> read(plan_.buffers.size(), false);
  for (uint32_t b : results_) read[root(b)] = read[b] = true;
  for (const runtime::BoundLaunch& l : launches_)
    for (uint32_t b : l.memory) read[b] = true;
  for (const BoundCall& call : calls_)
    for (uint32_t b : call.reads()) read[root(b)] = read[b] = true;
  for (const auto& region : regions_)
    for (uint32_t b : region->operands()) read[root(b)] = read[b] = true;
  for (const BoundSizes& sizes : sizes_) {
    for (uint32_t b : sizes.sizes()) read[b] = true;
    for (uint32_t b : sizes.numbers()) read[root(b)] = read[b] = true;
  }
  for (BoundCall& call : calls_) call.keep_results(read);
}

}  // namespace oxy::bridge
