// Binds a plan once, then runs its steps on the tensors of each call.
#include "torch_bridge/execute.h"

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>

#include "runtime/launch.h"
#include "torch_bridge/backward.h"
#include "torch_bridge/measured_way.h"
#include "torch_bridge/tensor_meta.h"
#include "torch_bridge/view_replay.h"

namespace oxy::bridge {

using runtime::PlanBuffer;
using runtime::PlanOutput;
using runtime::TensorMeta;
using BufferKind = PlanBuffer::Kind;
using OutputKind = PlanOutput::Kind;

namespace {

void check_status(int status, std::string_view kernel) {
  if (status != 0)
    throw InternalError(cat(kRaised, "kernel ", kernel, " stopped with status ", status));
}

// What ran above the recorder has been recorded; the ops run below it.
constexpr c10::DispatchKeySet kRecordedAbove =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

// The address of the first element, as kernels get it.
void* first_element(const at::Tensor& t, bool written) {
  if (t.numel() == 0 || t.is_sparse()) return nullptr;
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  return written ? impl->mutable_data() : const_cast<void*>(static_cast<const void*>(impl->data()));
}

bool same_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// All memory of a tensor's storage in elements of another dtype.
at::Tensor as_dtype(const at::Tensor& base, c10::ScalarType dtype) {
  const auto unit = static_cast<int64_t>(
      std::max<size_t>(base.element_size(), c10::elementSize(dtype)) / base.element_size());
  const auto items = static_cast<int64_t>(base.storage().nbytes() / base.element_size());
  return at::as_strided(base, {items / unit * unit}, {1}, 0).view(dtype);
}

// Complex numbers whose parts lie side by side in a real tensor.
at::Tensor complex_view(const at::Tensor& base, const TensorMeta& m, int64_t shift) {
  c10::DimVector sizes(m.sizes.begin(), m.sizes.end()), strides(m.strides.begin(), m.strides.end());
  for (int64_t& s : strides) s *= 2;
  sizes.push_back(2), strides.push_back(1);
  return at::view_as_complex(view_at(base, {sizes, strides, m.offset * 2 + shift}));
}

// A strided view of a real tensor, as the user's own autograd state would make it.
// `shift`: of the offset that `m` counts with, in elements of the base.
at::Tensor real_view(const at::Tensor& base, const TensorMeta& m, int64_t shift) {
  auto dtype = static_cast<c10::ScalarType>(m.dtype);
  if (base.scalar_type() == dtype) return view_at(base, {m.sizes, m.strides, m.offset + shift});
  const auto in = static_cast<int64_t>(base.element_size()),
             out = static_cast<int64_t>(c10::elementSize(dtype));
  // Of the views as another dtype autograd knows those between complex numbers and their parts.
  if (c10::isComplexType(dtype) && c10::toRealValueType(dtype) == base.scalar_type())
    return complex_view(base, m, shift);
  if (base.is_complex() && c10::toRealValueType(base.scalar_type()) == dtype)
    return view_at(at::view_as_real(base), {m.sizes, m.strides, m.offset + shift * 2});
  return at::as_strided(as_dtype(base, dtype), m.sizes, m.strides, m.offset + shift * in / out);
}

// The same of memory that detach() gave, which is no view for autograd, as that is none.
at::Tensor detached_view(const at::Tensor& memory, const TensorMeta& m, int64_t shift) {
  if (memory.scalar_type() != static_cast<c10::ScalarType>(m.dtype))
    return real_view(memory, m, shift).detach();
  auto made = memory.unsafeGetTensorImpl()->shallow_copy_and_detach(
      torch::autograd::impl::version_counter(memory), /*allow_tensor_metadata_change=*/true);
  made->set_sizes_and_strides(m.sizes, m.strides, m.offset + shift);
  made->set_allow_tensor_metadata_change(false);
  return at::Tensor(std::move(made));
}

at::Tensor marked(at::Tensor t, const PlanOutput& o) {
  const c10::AutoGradMode as_made(c10::GradMode::is_enabled() && !o.no_grad);
  if (o.conj) t = t.conj();
  return o.neg ? at::_neg_view(t) : t;
}

// nullptr where sizes vary.
std::unique_ptr<const runtime::SizedPlan> static_sizes_of(
    const runtime::Plan& plan, const std::vector<runtime::KernelFn>& entries) {
  if (!plan.sizes.is_static()) return nullptr;
  return std::make_unique<const runtime::SizedPlan>(
      runtime::at_sizes(plan, entries, runtime::evaluate(plan.sizes)));
}

// What of a plan is kept where its sizes vary.
template <class T, class... From>
std::optional<T> where_varying(const runtime::Plan& plan, const From&... from) {
  return plan.sizes.is_static() ? std::nullopt : std::optional<T>(std::in_place, from...);
}

// What is asked of inputs and attributes.
std::vector<runtime::Slot> slots_of_layouts(const runtime::Plan& plan) {
  std::vector<runtime::Slot> out;
  auto add = [&](const runtime::TensorSlots& t) {
    out.insert(out.end(), t.sizes.begin(), t.sizes.end());
    out.insert(out.end(), t.strides.begin(), t.strides.end());
    out.push_back(t.offset);
  };
  for (const runtime::TensorSlots& t : plan.inputs) add(t);
  for (const PlanBuffer& b : plan.buffers)
    if (b.kind == BufferKind::Attribute) add(b.meta);
  return out;
}

template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

// The working memory of one call at a time.
struct Executable::Lease {
  const runtime::SizedPlan* sizes = nullptr;
  std::unique_ptr<runtime::SizedPlan> varying;  // where sizes vary: those of the last call
  std::vector<runtime::SizeInput> read;         // of the inputs that these depend on
  runtime::Memory arena;  // shared with the tensors over it, which an op might keep
  int64_t arena_bytes = 0;
  bool kept = false;  // the arena, in a second call
  runtime::Memory scratch;
  int64_t scratch_bytes = 0;
  std::vector<at::Tensor> tensors;  // by buffer
  std::vector<void*> addresses;     // by buffer
  runtime::Arguments arguments;     // of the kernel being launched
  torch::jit::Stack stack;
};

struct Executable::Call {
  std::span<const Input> inputs;
  Lease& lease;
  const runtime::SizedPlan& sizes;
  runtime::DeviceApi::Queue queue;
  Outputs& outputs;
  bool& written;                   // whether something that the caller sees may have been
  std::vector<at::Tensor> writes;  // new values of mutated inputs, by mutation
  std::vector<double>* seconds = nullptr;
  // Tensors and the room for copies of them, to be filled when the steps are over.
  std::vector<std::pair<at::Tensor, at::Tensor>> late = {};
  std::span<at::Tensor* const> given_up = {};         // by input
  runtime::DeviceApi::GeneratorState generator = {};  // in front of the run, if that draws
  const c10::impl::LocalDispatchKeySet outside = c10::impl::tls_local_dispatch_key_set();
  torch::autograd::edge_list histories = {};  // of written inputs
};

Executable::Executable(runtime::Plan plan, runtime::CodeTable code,
                       std::vector<at::Tensor> attributes, std::span<const Input> example,
                       Options options)
    : plan_(std::move(plan)),
      code_(std::move(code)),
      entries_(code_.entries_of(plan_)),
      attributes_(std::move(attributes)),
      options_(options),
      static_sizes_(static_sizes_of(plan_, entries_)),
      evaluator_(where_varying<runtime::SizeEvaluator>(plan_, plan_.sizes)),
      layouts_(where_varying<runtime::SizeEvaluator>(plan_, plan_.sizes, slots_of_layouts(plan_))),
      inputs_read_(plan_.sizes.inputs_read()),
      changes_(where_varying<runtime::SizeChanges>(plan_, plan_)) {
  OXY_CHECK(example.size() == plan_.inputs.size(), "a plan for ", plan_.inputs.size(),
            " inputs got ", example.size());
  check_mutations();
  const size_t own = std::min(options_.own_attributes, attributes_.size());
  if (options_.frozen) {
    frozen_ =
        std::make_unique<FrozenTensors>(example, plan_.frozen, std::span(attributes_).first(own));
    pack_weights(example);
  }
  for (const PlanBuffer& b : plan_.buffers)
    OXY_CHECK(b.kind != BufferKind::Attribute || b.source < attributes_.size(), b.name,
              " is an attribute that was not given");
  if (options_.frozen) forget_unused_attributes(own);
  bind_steps();
  signature_ = std::make_unique<InputSignature>(example, signature_options(example));
  std::vector<Input> attribute_inputs;
  for (size_t i = 0; i < own; i++) attribute_inputs.push_back({&attributes_[i], 0});
  attribute_signature_ =
      std::make_unique<InputSignature>(attribute_inputs, InputSignature::Options{});
}

Executable::Executable(runtime::Plan plan, const runtime::CodeTable& code, const Options& options)
    : plan_(std::move(plan)),
      code_(code),
      entries_(code_.entries_of(plan_)),
      options_(options),
      static_sizes_(static_sizes_of(plan_, entries_)),
      evaluator_(where_varying<runtime::SizeEvaluator>(plan_, plan_.sizes)),
      layouts_(where_varying<runtime::SizeEvaluator>(plan_, plan_.sizes, slots_of_layouts(plan_))),
      inputs_read_(plan_.sizes.inputs_read()),
      changes_(where_varying<runtime::SizeChanges>(plan_, plan_)) {
  OXY_CHECK(plan_.mutations.empty() && plan_.packings.empty(), "a region that is not on its own");
  bind_steps();
}

Executable::~Executable() = default;

// ---- entry ----

bool Executable::accepts(std::span<const Input> inputs) const {
  // A plan of sizes that vary may be for others too.
  auto fits = [&] {
    return !static_sizes_ && signature_->matches_but_sizes(inputs) && has_layouts(inputs);
  };
  if (!signature_->matches(inputs) && !fits()) return false;
  const size_t own = attribute_signature_->size();
  if (own == 0) return true;
  c10::SmallVector<Input, 16> attributes;
  for (size_t i = 0; i < own; i++) attributes.push_back({&attributes_[i], 0});
  return attribute_signature_->matches({attributes.data(), attributes.size()});
}

bool Executable::has_layouts(std::span<const Input> inputs) const {
  if (inputs.size() != plan_.inputs.size()) return false;
  for (size_t i = 0; i < inputs.size(); i++) {
    const runtime::TensorSlots& wanted = plan_.inputs[i];
    const at::Tensor* t = inputs[i].tensor;
    if ((t == nullptr) != (wanted.dtype == DType::None)) return false;
    if (t == nullptr) continue;
    if (why_unsupported(*t) || static_cast<DType>(t->scalar_type()) != wanted.dtype ||
        static_cast<size_t>(t->dim()) != wanted.sizes.size())
      return false;
  }
  std::vector<int64_t> evaluated;
  try {
    if (!static_sizes_) evaluated = slots_of(inputs);
  } catch (const InternalError&) {
    return false;  // sizes beyond what the plan can count
  }
  const std::vector<int64_t>& slots = static_sizes_ ? static_sizes_->slots : evaluated;
  auto same = [&](c10::IntArrayRef have, const std::vector<runtime::Slot>& wanted) {
    return std::ranges::equal(have, wanted, {}, {},
                              [&](runtime::Slot s) { return slots[s.index]; });
  };
  for (size_t i = 0; i < inputs.size(); i++) {
    const runtime::TensorSlots& wanted = plan_.inputs[i];
    const at::Tensor* t = inputs[i].tensor;
    if (t == nullptr ? inputs[i].number != slots[wanted.offset.index]
                     : !same(t->sizes(), wanted.sizes) || !same(t->strides(), wanted.strides))
      return false;
  }
  return std::ranges::all_of(kept_, [&](uint32_t number) {
    const PlanBuffer& b = buffer(number);
    const at::Tensor& t = attributes_.at(b.source);
    if (!t.defined()) return true;  // nobody reads it
    return static_cast<DType>(t.scalar_type()) == b.meta.dtype && same(t.sizes(), b.meta.sizes) &&
           same(t.strides(), b.meta.strides);
  });
}

void Executable::set_measured_way(std::unique_ptr<MeasuredWay> way) {
  measured_way_ = std::move(way);
}

bool Executable::run(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
                     std::vector<double>* seconds, std::span<at::Tensor* const> given_up,
                     std::exception_ptr* thrown) {
  const auto kernels = [&] { return run_plan(inputs, outputs, reason, seconds, given_up, thrown); };
  if (measured_way_ && seconds == nullptr && given_up.empty())
    return measured_way_->run(inputs, outputs, reason, kernels);
  return kernels();
}

bool Executable::run_plan(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
                          std::vector<double>* seconds, std::span<at::Tensor* const> given_up,
                          std::exception_ptr* thrown) {
  std::unique_ptr<Lease> lease = leases_.take();
  bool ok = false;
  runtime::DeviceApi::GeneratorState generator;
  std::exception_ptr interrupt;
  bool written = false;
  try {
    if (random_) generator = device_.generator_state();
    prepare_lease(lease, inputs);
    Call call{inputs, *lease, *lease->sizes, device_.queue(), outputs, written, {}, seconds};
    call.given_up = given_up;
    call.generator = generator;
    execute(call);
    ok = true;
  } catch (const Interrupted&) {
    interrupt = std::current_exception();
  } catch (const c10::Error& e) {
    reason = cat(kRaised, e.what_without_backtrace());
    if (thrown != nullptr) *thrown = std::current_exception();
  } catch (const std::exception& e) {
    reason = e.what();
    if (thrown != nullptr) *thrown = std::current_exception();
  } catch (const abi::__forced_unwind&) {  // the end of a daemon thread
    throw;
  } catch (...) {
    reason = "an unknown exception";
  }
  if (!ok) {
    if (generator) device_.restore_generator(generator);
    outputs.clear();
  }
  if (lease != nullptr) {
    for (uint32_t b : cleared_) lease->tensors[b].reset();
    lease->stack.clear();
    // An op that kept a tensor over the arena keeps the arena; the next call gets another.
    auto has_escaped = [&](uint32_t b) { return lease->tensors[b].use_count() != 1; };
    if (std::ranges::none_of(arena_tensors_, has_escaped)) leases_.give_back(std::move(lease));
  }
  if (interrupt) std::rethrow_exception(interrupt);
  if (!ok && written) throw PartlyWritten(cat(reason, "; inputs have been written before it"));
  return ok;
}

int64_t Executable::number(const at::Tensor& output, const runtime::PlanOutput& o) const {
  return static_sizes_ ? plan_.sizes.constant(*o.number) : output.item<int64_t>();
}

std::vector<std::string> Executable::take_notes() {
  std::lock_guard lock(notes_mutex_);
  has_notes_ = false;
  return std::exchange(notes_, {});
}

void Executable::note(std::string text) {
  std::lock_guard lock(notes_mutex_);
  if (std::ranges::find(noted_, text) != noted_.end()) return;
  noted_.push_back(text);
  notes_.push_back(std::move(text));
  has_notes_ = true;
}

// ---- the steps ----

// One that fits the sizes of the call. Where they vary a lease is laid out again in its place: its
// arena stays as long as it is large enough, so that sizes that alternate, or thousands of them,
// cost no memory.
void Executable::prepare_lease(std::unique_ptr<Lease>& lease, std::span<const Input> inputs) {
  const bool fresh = lease == nullptr;
  if (fresh)
    lease = make_lease();
  else if (!std::exchange(lease->kept, true))
    device_.keep(lease->arena);
  if (static_sizes_) return;
  try {
    for (const uint32_t i : inputs_read_) lease->read[i] = size_input(inputs[i]);
    if (!evaluator_->update(lease->read, lease->varying->slots.data(), fresh)) return;
    resize_lease(*lease, fresh);
  } catch (...) {
    lease = nullptr;  // half of it has been written
    throw;
  }
  brief_.store(can_be_brief(*lease->sizes), std::memory_order_relaxed);
}

std::vector<int64_t> Executable::slots_of(std::span<const Input> inputs) const {
  std::vector<int64_t> slots = layouts_->initial();
  std::vector<runtime::SizeInput> read(inputs.size());
  for (const uint32_t i : inputs_read_) read[i] = size_input(inputs[i]);
  layouts_->update(read, slots.data(), true);
  return slots;
}

std::unique_ptr<Executable::Lease> Executable::make_lease() const {
  c10::InferenceMode plain(false);  // a lease made under inference mode serves other calls too
  auto lease = std::make_unique<Lease>();
  lease->tensors.resize(plan_.buffers.size());
  lease->addresses.resize(plan_.buffers.size(), nullptr);
  for (uint32_t b = 0; b < plan_.buffers.size(); b++)
    if (buffer(b).kind == BufferKind::Attribute)
      lease->tensors[b] = attributes_.at(buffer(b).source);
  lease->sizes = static_sizes_.get();
  if (static_sizes_) {
    place_arena(*lease);
    return lease;
  }
  lease->varying = std::make_unique<runtime::SizedPlan>();
  lease->varying->slots = evaluator_->initial();
  lease->read.resize(plan_.inputs.size());
  lease->sizes = lease->varying.get();
  return lease;
}

void Executable::resize_lease(Lease& lease, bool fresh) const {
  if (fresh)
    *lease.varying = runtime::at_sizes(plan_, entries_, std::move(lease.varying->slots));
  else
    changes_->apply(*lease.varying);
  c10::InferenceMode plain(false);
  place_arena(lease);
}

// The arena, which may have moved, and what lies in it.
void Executable::place_arena(Lease& lease) const {
  const int64_t bytes = lease.sizes->arena_bytes;
  if (lease.arena.owner == nullptr || bytes > lease.arena_bytes) {
    // Sizes that grow a little with every call do not move it each time.
    lease.arena_bytes = lease.arena.owner ? std::max(bytes, lease.arena_bytes / 4 * 5) : bytes;
    for (const uint32_t b : arena_tensors_) lease.tensors[b].reset();
    lease.arena = {};
    lease.arena = device_.allocate(lease.arena_bytes, device_.queue());
    lease.kept = false;
  }
  for (uint32_t b = 0; b < plan_.buffers.size(); b++)
    if (buffer(b).kind == BufferKind::Arena)
      lease.addresses[b] = lease.arena.data + lease.sizes->buffers[b].arena_offset;
  for (const uint32_t b : arena_tensors_) {
    if (buffer(b).kind == BufferKind::View)
      make_view(lease, b);
    else
      add_arena_tensor(lease, b);
  }
}

void Executable::add_arena_tensor(Lease& lease, uint32_t b) const {
  const auto& [meta, offset, bytes] = lease.sizes->buffers[b];
  auto* owner = new std::shared_ptr<void>(lease.arena.owner);
  c10::DataPtr data(
      lease.addresses[b], owner, [](void* o) { delete static_cast<std::shared_ptr<void>*>(o); },
      c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes), std::move(data),
                       nullptr,
                       /*resizable=*/false);
  lease.tensors[b] = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(meta.dtype)));
  lease.tensors[b].unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides,
                                                                meta.offset);
}

void Executable::execute(Call& c) {
  std::optional<c10::AutoGradMode> grad;
  if (options_.turns_grad_on) grad.emplace(true);
  {
    std::optional<c10::impl::ExcludeDispatchKeyGuard> below;
    if (dispatches_) below.emplace(kRecordedAbove);
    check_writable(c);
    begin(c);
    for (size_t i = 0; i < steps_.size(); i++) {
      const Step& s = steps_[i];
      if (i == first_write_) prepare_results(c, i);
      switch (s.kind) {
        case StepKind::Kernel:
          c.written |= i >= first_write_;
          if (c.seconds == nullptr)
            run_kernel(c, launches_[s.index]);
          else
            c.seconds->push_back(seconds_of_kernel(c, launches_[s.index]));
          break;
        case StepKind::Extern:
          run_extern(c, s.index);
          break;
        case StepKind::Sizes:
          run_sizes(c, sizes_[s.index]);
          break;
        case StepKind::Region:
          run_region(c, *regions_[s.index]);
          break;
        case StepKind::Free:
          c.lease.tensors[s.index].reset();
          break;
        case StepKind::View:
          if (i < first_write_) make_view(c.lease, s.index);
          break;
        case StepKind::Make:
          if (i < first_write_) make_output(c, s.index);
          break;
        case StepKind::Release:
          if (!c.given_up.empty()) {
            c.lease.tensors[s.index].reset();
            c.given_up[buffer(s.index).source]->reset();
          }
          break;
      }
    }
    const int status = device_.finish(c.queue);
    check_status(status, "at the end");
    for (uint32_t b : temporaries_) c.lease.tensors[b].reset();
    if (first_write_ == steps_.size()) prepare_results(c, steps_.size());
    for (const auto& [from, room] : c.late) fill_room(room, from);
  }
  if (plan_.mutations.empty()) return;
  c.written = true;
  commit(c);
  if (!backward_) return;
  backward_->rebase(c.histories, c.inputs);
  keep_histories(c);
  make_views(c, /*late=*/true);
}

// All that can fail of what follows the steps. Of those from `next` on only kernels are left, which
// write to memory that is there.
void Executable::prepare_results(Call& c, size_t next) const {
  for (size_t i = next; i < steps_.size(); i++) {
    if (steps_[i].kind == StepKind::Make) make_output(c, steps_[i].index);
    if (steps_[i].kind == StepKind::View) make_view(c.lease, steps_[i].index);
  }
  prepare_values(c);
  if (!dispatches_) {
    if (backward_) c.histories = backward_->attach(c.inputs, c.outputs, c.generator);
    return;
  }
  prepare_writes(c);
  const c10::impl::ForceDispatchKeyGuard as_the_user(c.outside);
  if (backward_) {
    make_views_with_gradients(c);
    c.histories = backward_->attach(c.inputs, c.outputs, c.generator);
  }
  bump_versions(c, false);
  make_views(c, /*late=*/false);
}

at::Tensor Executable::late_copy(Call& c, const at::Tensor& t, const runtime::TensorMeta& m) const {
  return c.late.emplace_back(t, room_for(t, m)).second;
}

void Executable::begin(Call& c) const {
  Lease& lease = c.lease;
  for (const Entering& e : entering_) {
    const at::Tensor& t = *c.inputs[e.input].tensor;
    lease.addresses[e.buffer] = first_element(t, e.written);
    if (e.tensor) lease.tensors[e.buffer] = t;
  }
  for (uint32_t b : kept_) lease.addresses[b] = first_element(lease.tensors[b], false);
  make_scratch(c);
}

void Executable::make_output(Call& c, uint32_t b) const {
  Lease& lease = c.lease;
  lease.tensors[b] = allocate(c.sizes.buffers[b].meta, c.sizes.buffers[b].bytes);
  lease.addresses[b] = first_element(lease.tensors[b], true);
}

void Executable::make_scratch(Call& c) const {
  if (c.sizes.scratch_bytes == 0) return;
  const int64_t scratch = device_.scratch_bytes(c.sizes);
  if (scratch <= c.lease.scratch_bytes) return;
  c.lease.scratch = device_.allocate(scratch, c.queue);
  c.lease.scratch_bytes = scratch;
}

void Executable::run_sizes(Call& c, const BoundSizes& sizes) {
  const int status = sizes.numbers().empty() ? 0 : device_.finish(c.queue);
  check_status(status, "at the end");
  sizes.update(c.lease.tensors, *c.lease.varying);
  for (uint32_t b : sizes.made()) make_output(c, b);
  for (uint32_t b : sizes.views())
    if (std::ranges::find(arena_tensors_, b) != arena_tensors_.end()) make_view(c.lease, b);
  make_scratch(c);
}

int Executable::launch_fenced(const Lease& lease, const runtime::BoundLaunch& l) const {
  const runtime::SizedPlan& sizes = *lease.sizes;
  std::vector<runtime::FencedBuffer> buffers;
  for (uint32_t b : l.memory) {
    const auto& [meta, offset, bytes] = sizes.buffers[b];
    const int64_t before = meta.offset * byte_size(meta.dtype);  // of the first element
    buffers.push_back({lease.addresses[b], std::max<int64_t>(0, bytes - before)});
  }
  return runtime::launch_fenced(sizes.kernels[l.kernel], buffers, options_.fence, torch_host(),
                                l.epilogue ? &sizes.kernels[*l.epilogue] : nullptr, l.own);
}

double Executable::seconds_of_kernel(Call& c, const runtime::BoundLaunch& l) const {
  const double seconds = seconds_of([&] { run_kernel(c, l); });
  return c.sizes.kernels[l.kernel].range <= 0 ? 0 : seconds;
}

void Executable::run_kernel(Call& c, const runtime::BoundLaunch& l) const {
  Lease& lease = c.lease;
  if (c.sizes.kernels[l.kernel].range <= 0) return;
  int status = 0;
  if (options_.fence == runtime::Fence::Off) {
    lease.arguments.fill(l, c.sizes, lease.addresses.data());
    status = device_.launch(c.sizes.kernels[l.kernel], lease.arguments.data(), lease.scratch.data,
                            c.queue);
  } else {
    status = launch_fenced(lease, l);
  }
  check_status(status, plan_.kernels[l.kernel].name);
}

void Executable::run_extern(Call& c, uint32_t number) {
  const BoundCall& call = calls_[number];
  Lease& lease = c.lease;
  call.call(lease.tensors, c.sizes.slots, lease.stack);
  if (const int32_t sizes = sizes_of_call_[number]; sizes >= 0) {
    const BoundSizes& bound = sizes_[static_cast<size_t>(sizes)];
    for (const BoundCall::Result& r : call.results())
      if (std::ranges::find(bound.sizes(), r.buffer) != bound.sizes().end())
        lease.tensors[r.buffer] = call.look_at(lease.stack, r);
    run_sizes(c, bound);
  }
  for (const BoundCall::Result& r : call.results()) {
    lease.tensors[r.buffer] = checked(c, call, call.take(lease.stack, r), r.buffer);
    lease.addresses[r.buffer] = first_element(lease.tensors[r.buffer], false);
  }
  lease.stack.clear();
}

void Executable::run_region(Call& c, BoundRegion& region) {
  std::vector<at::Tensor> made = region.run(c.lease.tensors, c.sizes.slots);
  for (size_t i = 0; i < made.size(); i++) {
    if (region.results()[i] < 0) continue;
    const auto b = static_cast<uint32_t>(region.results()[i]);
    const TensorMeta& predicted = c.sizes.buffers[b].meta;
    OXY_CHECK(same_layout(made[i], predicted), "a region gave ", print(meta_of(made[i])),
              ", predicted was ", print(predicted));
    c.lease.tensors[b] = std::move(made[i]);
    c.lease.addresses[b] = first_element(c.lease.tensors[b], false);
  }
  for (std::string& text : region.take_notes()) note(std::move(text));
}

// The result as the rest of the plan expects it: laid out as predicted, and not in memory that is
// used again.
at::Tensor Executable::checked(const Call& c, const BoundCall& call, at::Tensor t, uint32_t b) {
  const TensorMeta& predicted = c.sizes.buffers[b].meta;
  OXY_CHECK(t.defined(), call.name(), " returned an undefined tensor");
  if (t.is_sparse()) return checked_sparse(c, call, std::move(t), predicted);
  // Some ops give lazily conjugated results, which only torch can read (linalg.lu_solve).
  if ((t.is_conj() || t.is_neg()) && is_read_by_kernels(b)) t = t.resolve_conj().resolve_neg();
  // Ops have many ways to choose strides where a size is 0 or 1, and nobody steps by those.
  if (!same_places(t, predicted)) [[unlikely]] {
    std::string text =
        cat(call.name(), " returned ", print(meta_of(t)), ", predicted was ", print(predicted));
    if (options_.strict || t.sizes() != c10::IntArrayRef(predicted.sizes)) OXY_FAIL(text);
    note(std::move(text));
    return copy_as(t, predicted);
  }
  if (t.storage().use_count() == 1) return t;
  for (uint32_t r : call.reads())
    if (is_reused(r) && same_storage(t, c.lease.tensors[r])) return copy_as(t, predicted);
  return t;
}

bool Executable::is_read_by_kernels(uint32_t b) const {
  for (uint32_t v = 0; v < plan_.buffers.size(); v++)
    if (v != b && root(v) == b) return true;  // by a view
  return std::ranges::any_of(launches_, [&](const runtime::BoundLaunch& l) {
    return std::ranges::find(l.memory, b) != l.memory.end();
  });
}

// A gradient, which only leaves the plan.
at::Tensor Executable::checked_sparse(const Call& c, const BoundCall& call, at::Tensor t,
                                      const runtime::TensorMeta& predicted) {
  OXY_CHECK(t.sizes() == c10::IntArrayRef(predicted.sizes), call.name(), " returned another size");
  for (uint32_t r : call.reads())
    for (const at::Tensor& part : {t._indices(), t._values()})
      if (is_reused(r) && same_storage(part, c.lease.tensors[r])) return t.clone();
  return t;
}

void Executable::make_view(Lease& lease, uint32_t b) const {
  const uint32_t r = root(b);
  const at::Tensor& base = lease.tensors[r];
  const TensorMeta &from = lease.sizes->buffers[r].meta, &to = lease.sizes->buffers[b].meta;
  const int64_t shift = base.storage_offset() - from.offset;
  lease.tensors[b] =
      alias_of(base, to, to.offset + shift * byte_size(from.dtype) / byte_size(to.dtype));
}

// ---- results ----

void Executable::prepare_values(Call& c) const {
  c.outputs.resize(plan_.outputs.size());
  for (size_t i = 0; i < plan_.outputs.size(); i++) {
    const PlanOutput& o = plan_.outputs[i];
    if (o.number && !static_sizes_) {
      const int64_t number = c.sizes.slots[o.number->index];
      c.outputs[i] = at::scalar_tensor(number, at::TensorOptions(c10::kLong));
    }
    if (o.buffer < 0) continue;
    const auto b = static_cast<uint32_t>(o.buffer);
    c.outputs[i] = moved_[i] ? std::move(c.lease.tensors[b]) : own_value(c, b);
  }
}

// A result that shares no memory with an input or with another result. An attribute that is
// returned is itself.
at::Tensor Executable::own_value(Call& c, uint32_t b) const {
  at::Tensor& t = c.lease.tensors[b];
  const BufferKind kind = buffer(b).kind;
  if (kind == BufferKind::Attribute || kind == BufferKind::Output) return t;
  const TensorMeta& meta = c.sizes.buffers[b].meta;
  BufferKind memory = buffer(root(b)).kind;
  if (memory == BufferKind::Arena) return late_copy(c, t, meta);
  if (t.is_sparse() || t.storage().use_count() == 1) return t;
  auto shares = [&](const at::Tensor& other) {
    return other.defined() && !other.is_sparse() && !other.is_same(t) && same_storage(t, other);
  };
  bool shared = memory == BufferKind::Input || std::ranges::any_of(c.outputs, shares) ||
                std::ranges::any_of(attributes_, shares);
  for (const Input& in : c.inputs)
    shared =
        shared || (in.tensor != nullptr && in.tensor->defined() && same_storage(t, *in.tensor));
  if (shared)
    t = late_copy(c, t, meta);  // kept, so that the same value returned twice is the same tensor
  return t;
}

// Before the first step: a kernel may write in place.
void Executable::check_writable(const Call& c) const {
  if (backward_) backward_->check_inputs(c.inputs);
  for (const runtime::PlanMutation& m : plan_.mutations) {
    const at::Tensor& input = *c.inputs[m.input].tensor;
    OXY_CHECK(!input.is_inference() || c10::InferenceMode::is_enabled(),
              "an inference tensor is written");
  }
}

void Executable::prepare_writes(Call& c) const {
  for (const runtime::PlanMutation& m : plan_.mutations) {
    if (m.in_place || m.same_data) {
      c.writes.emplace_back();
      continue;
    }
    at::Tensor value = c.lease.tensors[m.buffer];
    // The old value of an input that is itself written in this commit.
    for (const runtime::PlanMutation& other : plan_.mutations) {
      if (!same_storage(value, *c.inputs[other.input].tensor)) continue;
      value = late_copy(c, value, c.sizes.buffers[m.buffer].meta);
      break;
    }
    c.writes.push_back(std::move(value));
  }
}

// Of what a result is a view, and the offset that its place counts with.
std::pair<at::Tensor, int64_t> Executable::base_of(const Call& c, const PlanOutput& o) const {
  if (o.kind == OutputKind::ViewOfInput)
    return {*c.inputs[o.index].tensor, c.sizes.inputs[o.index].offset};
  const auto b = static_cast<size_t>(plan_.outputs[o.index].buffer);
  return {c.outputs[o.index], c.sizes.buffers[b].meta.offset};
}

// The results that are pieces of what result `first` is a piece of.
void Executable::make_pieces(Call& c, size_t first) const {
  const PlanOutput& one = plan_.outputs[first];
  const auto [base, offset] = base_of(c, one);
  if (!c10::GradMode::is_enabled()) return;
  std::vector<size_t> at;
  std::vector<ViewPlace> places;
  for (size_t i = first; i < plan_.outputs.size(); i++) {
    const PlanOutput& o = plan_.outputs[i];
    const TensorMeta& m = c.sizes.outputs[i];
    if (c.outputs[i].defined() || !o.piece || o.no_grad || o.kind != one.kind ||
        o.index != one.index || is_detached(i, base) ||
        static_cast<c10::ScalarType>(m.dtype) != base.scalar_type())
      continue;
    at.push_back(i);
    places.push_back({m.sizes, m.strides, m.offset + base.storage_offset() - offset});
  }
  const auto pieces = pieces_at(base, places);
  for (size_t i = 0; i < at.size(); i++) c.outputs[at[i]] = pieces[i];
}

// Whether a view of `base` has no gradients although that has, or is one of its memory alone. Of
// any other base eager's views take part in autograd: what is written to them later may require
// gradients.
bool Executable::is_detached(size_t output, const at::Tensor& base) const {
  return plan_.outputs[output].detached ||
         (base.requires_grad() && !plan_.outputs[output].no_grad &&
          output < options_.requires_grad.size() && !options_.requires_grad[output]);
}

// Views to which the backward hands gradients, and not what they are views of.
void Executable::make_views_with_gradients(Call& c) const {
  for (const uint32_t i : backward_->rooted()) {
    const OutputKind kind = plan_.outputs[i].kind;
    if (kind != OutputKind::ViewOfInput && kind != OutputKind::ViewOfOutput) continue;
    if (backward_->is_plain_view(i)) {
      make_view_of_base(c, i);
      continue;
    }
    const auto [base, offset] = base_of(c, plan_.outputs[i]);
    at::Tensor& t = c.outputs[i];
    t = real_view(plan_.outputs[i].unseen ? base.variable_data() : base.detach(),
                  c.sizes.outputs[i], base.storage_offset() - offset);
    // Autograd would ask a view for its history anew where its memory is written.
    if (plan_.outputs[i].itself) t = t.detach();
  }
}

// Of those that are of what was written since, which autograd would ask anew.
void Executable::keep_histories(const Call& c) const {
  for (const uint32_t i : backward_->rooted())
    if (backward_->is_plain_view(i) && plan_.outputs[i].kind == OutputKind::ViewOfInput)
      torch::autograd::impl::get_view_autograd_meta(c.outputs[i])
          ->set_attr_version(static_cast<uint32_t>(c.outputs[i]._version()));
}

void Executable::make_real_view(Call& c, size_t output) const {
  const PlanOutput& o = plan_.outputs[output];
  if (o.detached) return make_detached(c, output);
  const auto [base, offset] = base_of(c, o);
  const TensorMeta& m = c.sizes.outputs[output];
  const int64_t shift = base.storage_offset() - offset;
  at::Tensor& t = c.outputs[output];
  {
    const c10::AutoGradMode as_made(!o.no_grad);
    t = real_view(is_detached(output, base) ? base.detach() : base, m, shift);
  }
  if (o.derived) t = t.view(t.sizes());
}

// A piece with the others that are pieces of the same.
void Executable::make_view_of_base(Call& c, size_t output) const {
  const PlanOutput& o = plan_.outputs[output];
  if (o.piece && !o.no_grad && !c.outputs[output].defined()) make_pieces(c, output);
  if (!c.outputs[output].defined()) make_real_view(c, output);
}

// And those that are, for autograd, views of the same tensor.
void Executable::make_detached(Call& c, size_t first) const {
  const PlanOutput& one = plan_.outputs[first];
  const auto [base, offset] = base_of(c, one);
  const int64_t shift = base.storage_offset() - offset;
  std::vector<size_t> views;
  // What Tensor.data gives has a version of its own.
  const at::Tensor memory = one.unseen ? base.variable_data() : base.detach();
  at::Tensor alias = memory;
  for (size_t i = first; i < plan_.outputs.size(); i = next_detached_[i]) {
    const PlanOutput& o = plan_.outputs[i];
    const TensorMeta& m = c.sizes.outputs[i];
    if (!o.itself) {
      views.push_back(i);
      continue;
    }
    const bool is_whole = same_places(alias, m) && m.offset == offset &&
                          static_cast<c10::ScalarType>(m.dtype) == alias.scalar_type();
    if (!is_whole) alias = detached_view(alias, m, shift);
    c.outputs[i] = alias;
  }
  for (const size_t i : views) {
    const bool is_of_alias = alias.scalar_type() == base.scalar_type();
    c.outputs[i] = real_view(is_of_alias ? alias : memory, c.sizes.outputs[i], shift);
  }
}

// A view of an input whose new value requires gradients is made when autograd knows that value.
bool Executable::is_late(const PlanOutput& o) const {
  if (o.kind != OutputKind::ViewOfInput || !backward_ || !backward_->gives_history(o.index))
    return false;
  return std::ranges::none_of(plan_.mutations, [&](const runtime::PlanMutation& m) {
    return m.input == o.index && m.layout;
  });
}

void Executable::make_views(Call& c, bool late) const {
  for (size_t i = 0; i < plan_.outputs.size(); i++) {
    const PlanOutput& o = plan_.outputs[i];
    if (is_late(o) != late) continue;
    if (o.kind == OutputKind::Input) {
      if (c.inputs[o.index].tensor != nullptr) c.outputs[i] = *c.inputs[o.index].tensor;
    } else if (o.kind == OutputKind::ViewOfInput || o.kind == OutputKind::ViewOfOutput) {
      make_view_of_base(c, i);
    }
  }
  for (size_t i = 0; i < plan_.outputs.size(); i++) {
    const PlanOutput& o = plan_.outputs[i];
    if (is_late(o) != late) continue;
    if (o.conj || o.neg) c.outputs[i] = marked(std::move(c.outputs[i]), o);
  }
}

// Nothing here raises: shapes are equal, and autograd has been asked before.
void Executable::commit(Call& c) const {
  c10::impl::ExcludeDispatchKeyGuard below(kRecordedAbove);
  for (size_t i = 0; i < plan_.mutations.size(); i++) {
    const runtime::PlanMutation& m = plan_.mutations[i];
    const at::Tensor& input = *c.inputs[m.input].tensor;
    if (m.layout) {
      const TensorMeta& layout = c.sizes.layouts[i];
      const int64_t shift = input.storage_offset() - c.sizes.inputs[m.input].offset;
      input.as_strided_(layout.sizes, layout.strides, layout.offset + shift);
    }
    if (c.writes[i].defined()) write_values(input, c.writes[i]);
  }
  bump_versions(c, true);
}

// Autograd asks a view for its history anew where its memory was written since: that of an input
// whose new value has one, and of no other.
void Executable::bump_versions(const Call& c, bool with_history) const {
  for (const runtime::PlanMutation& m : plan_.mutations)
    if (!m.unseen && (backward_ && backward_->gives_history(m.input)) == with_history)
      c.inputs[m.input].tensor->unsafeGetTensorImpl()->bump_version();
}

}  // namespace oxy::bridge
