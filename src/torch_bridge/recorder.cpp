// The recorder: from a dispatched op to a node.
#include "torch_bridge/recorder.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <unordered_set>

#include "ir/specialize.h"
#include "ops/args.h"
#include "support/check.h"
#include "torch_bridge/exact_views.h"
#include "torch_bridge/heard.h"
#include "torch_bridge/interpreter_vtable.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/mutable_ops.h"
#include "torch_bridge/op_facts.h"
#include "torch_bridge/recorded_regions.h"
#include "torch_bridge/recording_end.h"
#include "torch_bridge/runtime_number.h"
#include "torch_bridge/shape_fallback.h"
#include "torch_bridge/sym_node.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

namespace functional = at::functionalization::impl;

thread_local Heard so_far;

// What a call of torch does with its result; see Recorder::expect_write.
enum class Write { None, InPlace, Out };

// A flag of autocast that ThreadLocalState does not keep.
class AutocastCacheFlag {
 public:
  AutocastCacheFlag() : was_(at::autocast::is_autocast_cache_enabled()) {}
  ~AutocastCacheFlag() { at::autocast::set_autocast_cache_enabled(was_); }
  AutocastCacheFlag(const AutocastCacheFlag&) = delete;
  AutocastCacheFlag& operator=(const AutocastCacheFlag&) = delete;

 private:
  const bool was_;
};

// Everything of the thread that a recording changes, put back on destruction.
class ThreadState {
 public:
  ThreadState(const std::shared_ptr<Mode>& mode, bool symbolic, WriteRules& rules)
      : saved_(at::ThreadLocalState()), views_(rules) {
    // An inference graph is the same without inference mode; its fakes are normal tensors.
    if (c10::InferenceMode::is_enabled()) {
      no_inference_.emplace(false);
      c10::GradMode::set_enabled(false);
    }
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, true);
    functional::setFunctionalizationReapplyViewsTLS(true);
    c10::impl::TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode);
    if (symbolic) hear_meta_tensors();
  }

 private:
  VtableGuard vtable_;
  at::ThreadLocalStateGuard saved_;
  ExactViews views_;
  std::optional<c10::InferenceMode> no_inference_;
  AutocastCacheFlag autocast_;
};

}  // namespace

struct Recorder::Impl final : OpListener, WriteRules, Recording {
  explicit Impl(Options o) : options(std::move(o)), casts(options.kept_casts) {
    mode = make_mode(options.mode_object, *this);
    if (!options.symbolic) return;
    shapes.emplace(graph.pool);
    shapes->facts()->set_position([this] { return print_position(); });
  }
  ~Impl() override {
    state.reset();
    if (shapes) shapes->facts()->close();
    silence(*mode);
  }

  Options options;
  std::shared_ptr<Mode> mode;
  std::optional<ThreadState> state;
  std::optional<SymbolicShapes> shapes;  // with Options::symbolic
  size_t facts_applied = 0;
  // Written inputs whose memory in the graph lacks gaps' contents, or begins elsewhere than
  // eager's.
  std::unordered_set<const c10::StorageImpl*> rebuilt;
  std::vector<at::Tensor> attribute_tensors;
  std::unordered_map<const c10::TensorImpl*, ir::ValueId>
      values;  // of fakes; looked up, never walked
  std::unordered_map<const c10::TensorImpl*, size_t> attribute_of;  // of real tensors
  std::unordered_map<c10::OperatorName, OpFacts> facts;
  std::unordered_set<uint32_t> runtime_numbers;  // values
  AutocastCasts casts;
  std::vector<at::Tensor>
      kept;  // every fake lives as long as the recording, so that addresses name them
  ir::StackId stack;
  ir::NodeId parent;
  std::optional<std::string> failure;
  Write expected_write = Write::None;
  std::unordered_map<std::string, std::optional<MutableOpSupport>> mutable_ops;

  // ---- fakes

  void bind(const at::Tensor& fake, ir::ValueId v) {
    values[fake.unsafeGetTensorImpl()] = v;
    kept.push_back(fake);
  }

  at::Tensor new_fake(const ir::TensorType& type, const c10::Storage* storage = nullptr) const {
    return shapes ? shapes->make_fake(type, storage) : make_fake(type, storage);
  }

  std::string print_position() const {
    std::string out;
    if (!graph.has_stack(stack)) return out;
    for (const ir::Frame& f : graph.stack(stack)) {
      cat_to(out, out.empty() ? "" : "\n", f.file, ":", f.line, " in ", f.function, ": ", f.code);
    }
    return out;
  }

  RecordedSource make_source(const at::Tensor& real, const std::string& name, bool is_input,
                             std::span<const int64_t> dynamic_dims = {}) {
    if (auto why = why_not_recordable(real)) throw Unsupported(*why);
    auto type =
        dynamic_dims.empty() ? type_of(real) : shapes.value().input_type(real, dynamic_dims);
    RecordedSource s;
    s.real = real;
    // Under inference mode functionalisation cannot make views of normal tensors, and both kinds
    // may meet.
    c10::InferenceMode off(false);
    at::Tensor fake = new_fake(type);
    s.value = is_input ? graph.add_input(name, ir::Type::of(type))
                       : graph.add_attribute(name, ir::Type::of(type));
    bind(fake, s.value);
    const bool plain = shapes || (real.storage_offset() == 0 &&
                                  real.strides().equals(c10::contiguous_strides(real.sizes())));
    s.wrapper = is_input && !plain ? keeping_layout(fake) : functional::to_functional_tensor(fake);
    forbid_data(s.wrapper);
    if (real.requires_grad() && !real.is_inference()) s.wrapper.set_requires_grad(true);
    return s;
  }

  const RecordedSource& attribute(const at::Tensor& real, const std::string& name) {
    auto [it, is_new] = attribute_of.try_emplace(real.unsafeGetTensorImpl(), attributes.size());
    if (is_new) {
      attributes.push_back(make_source(real, name, false));
      attribute_tensors.push_back(real);
    }
    return attributes[it->second];
  }

  ir::Arg arg_of(const at::Tensor& t) {
    if (!t.defined()) return {};
    if (auto* w = wrapper_of(t)) {
      functional::sync(t);
      return arg_of(w->value());
    }
    auto it = values.find(t.unsafeGetTensorImpl());
    if (it != values.end()) return it->second;
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) return number_behind(t);
    return attribute(t, cat("constant", attributes.size())).value;
  }

  ir::Arg number_behind(const at::Tensor& t) const {
    if (shapes && options.symbolic_number) {
      if (auto number = options.symbolic_number(t)) return to_arg(*number);
    }
    return number_of(t);
  }

  ir::ValueId value_of(const at::Tensor& fake) const override {
    auto it = values.find(fake.unsafeGetTensorImpl());
    if (it == values.end()) throw Unsupported("a tensor that the recording did not make");
    return it->second;
  }

  at::Tensor another_fake(ir::ValueId v) override {
    at::Tensor fake = new_fake(graph.tensor_type(v));
    bind(fake, v);
    return fake;
  }

  // Whether all elements are known to be the same.
  bool is_uniform(const at::Tensor& fake) const {
    const ir::Node* n = &graph.def(value_of(fake));
    while (n->kind == ir::NodeKind::CallOp) {
      const std::string_view op = n->target;
      if (op == "aten.fill.Scalar" || op == "aten.zero.default") return true;
      const ops::OpInfo* info = ops::find(*n);
      if (op != "aten.clone.default" && !(info && info->has(ops::View))) return false;
      n = &graph.def(n->args[0].value());
    }
    return false;
  }

  // ---- writes, see WriteRules

  void check_write(const at::Tensor& wrapper) override {
    const auto input = input_with_storage(*this, storage_of(wrapper));
    if (const char* why = input ? why_unwritable(*this, *input) : nullptr) give_up(why);
  }

  void check_copies(const at::Tensor& fake) override {
    if (!is_uniform(fake)) refuse_write();
  }

  size_t recorded() const override { return graph.order().size(); }

  void check_out(const c10::OperatorHandle& op, size_t from, size_t k, const at::Tensor& wrapper,
                 c10::IntArrayRef sizes_before) override {
    const bool view = !wrapper_of(wrapper)->view_metas().empty();
    if (!view && wrapper.storage().use_count() == 1 && !entering(wrapper)) return;
    auto check = [&](bool same) {
      if (!same) give_up("out= of another shape than the result's");
    };
    check(wrapper.sizes() == sizes_before);
    // A view keeps its shape: what the functional op has computed tells.
    const std::string name = target_of({op.operator_name().name, ""});
    const auto prefix = std::string_view(name).substr(0, name.rfind('.') + 1);
    for (size_t i = from; view && i < graph.order().size(); i++) {
      const ir::Node& n = graph.node(graph.order()[i]);
      if (n.target.starts_with(prefix) && k < n.outputs.size())
        check(std::ranges::equal(graph.tensor_type(n.outputs[k]).sizes, sizes_before, {},
                                 [](const sym::Expr& e) { return e.is_const() ? e.value() : -1; }));
    }
  }

  [[noreturn]] void refuse_write() override { give_up("a write to a tensor that overlaps itself"); }

  [[noreturn]] void give_up(const char* why) {
    if (!failure) failure = why;
    throw Unsupported(*failure);
  }

  at::Tensor lay_out(const at::Tensor& before, const at::Tensor& result) override {
    const ir::TensorType wanted = graph.tensor_type(value_of(before));
    if (wanted.may_overlap_itself()) give_up("an input that changes overlaps itself");
    const at::Tensor written = with_marks(result, marks_of(before));
    const ir::ValueId computed = value_of(written), value = laid_out_as(graph, wanted, computed);
    at::Tensor out = written;
    if (value != computed) {
      computed_of[value] = computed;
      out = another_fake(value);
      set_marks(out, marks_of(written));
    }
    if (!wanted.is_dense() || !wanted.offset.is_const(0) || rebuilt.contains(storage_of(before)))
      rebuilt.insert(storage_of(out));
    return out;
  }

  // A leaf that requires gradients is what autocast takes for a weight.
  void hear_cast(const at::Tensor& from, const at::Tensor& to) override {
    if (from.scalar_type() != at::kFloat || !from.requires_grad() || !from.is_leaf() ||
        from.is_view() || to.scalar_type() != at::autocast::get_autocast_dtype(at::kCPU))
      return;
    if (!casts.add(graph.def(value_of(wrapper_of(to)->value())), from.unsafeGetTensorImpl(),
                   entering(from), c10::GradMode::is_enabled()))
      give_up("autocast casts a weight that has changed");
  }

  // The value in front of the graph, of a tensor from outside of it.
  std::optional<ir::ValueId> entering(const at::Tensor& wrapper) const {
    for (const auto* sources : {&inputs, &attributes})
      for (const RecordedSource& s : *sources)
        if (!s.fresh && wrapper.is_same(s.wrapper)) return s.value;
    return std::nullopt;
  }

  // ---- lazy views

  // The same memory under other marks.
  void lazy_view(std::string_view op, torch::jit::Stack& s) {
    const at::Tensor t = s.back().toTensor();
    at::Tensor view = new_fake(type_of(t), &t.storage());
    set_marks(view, marks_after(op, marks_of(t)));
    bind(view, value_of(t));
    s.back() = std::move(view);
  }

  at::Tensor with_marks(at::Tensor t, LazyMarks wanted) override {
    const LazyMarks has = marks_of(t);
    if (has == wanted) return t;
    if (has.conj != wanted.conj) t = computed("aten::conj_physical", t);
    if (has.neg != wanted.neg) t = computed("aten::neg", t);
    if (wanted.any()) {
      at::Tensor marked = new_fake(type_of(t), &t.storage());
      bind(marked, value_of(t));
      set_marks(marked, wanted);
      return marked;
    }
    return t;
  }

  // What the op makes of the memory behind a fake, whatever its marks.
  at::Tensor computed(const char* name, const at::Tensor& t) {
    at::Tensor plain = new_fake(type_of(t), &t.storage());
    bind(plain, value_of(t));
    torch::jit::Stack s{std::move(plain)};
    record(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), s);
    return s.back().toTensor();
  }

  // Ops that are no views read what the marks mean.
  void resolve_marks(torch::jit::Stack& s, size_t base) {
    auto is_marked = [](const at::Tensor& t) { return marks_of(t).any(); };
    for (size_t i = base; i < s.size(); ++i) {
      if (s[i].isTensor() && is_marked(s[i].toTensor())) {
        s[i] = with_marks(s[i].toTensor(), {});
      } else if (s[i].isTensorList()) {
        std::vector<at::Tensor> list = s[i].toTensorVector();
        if (std::ranges::none_of(list, is_marked)) continue;
        for (at::Tensor& t : list) t = with_marks(t, {});
        s[i] = std::move(list);
      }
    }
  }

  // A view has the marks of what it is a view of; torch refuses most views as another dtype.
  static void inherit_marks(const at::Tensor& view, const at::Tensor& from) {
    const LazyMarks marks = marks_of(from);
    if (marks.any() && view.scalar_type() != from.scalar_type())
      throw Unsupported("a view of another dtype of a lazily conjugated or negated tensor");
    if (marks.any()) set_marks(view, marks);
  }

  // ---- ops

  const OpFacts& facts_for(const c10::OperatorHandle& op) {
    auto it = facts.find(op.operator_name());
    if (it == facts.end()) it = facts.emplace(op.operator_name(), facts_of(op)).first;
    return it->second;
  }

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& s) override {
    try {
      record(op, s);
    } catch (const Unsupported& e) {
      if (!failure) failure = e.what();
      throw;
    }
  }

  void on_copy(const c10::TensorImpl& original,
               const c10::intrusive_ptr<c10::TensorImpl>& copy) override {
    auto it = values.find(&original);
    if (it != values.end()) bind(at::Tensor(copy), it->second);
  }

  void record(const c10::OperatorHandle& op, torch::jit::Stack& s) {
    grad_mode_seen |= c10::GradMode::is_enabled();
    // Shape rules and kernels take it for what new tensors of floats are made of.
    if (c10::get_default_dtype() != caffe2::TypeMeta::Make<float>())
      throw Unsupported("the default dtype is not float32");
    simplify_sizes();
    const OpFacts& f = facts_for(op);
    const size_t n = f.args.size(), base = s.size() - n;
    so_far.ops++;
    so_far.draws += f.info && f.info->has(ops::Random) ? 1 : 0;
    if (f.target == "aten.lift_fresh.default") return lift(s);
    if (f.info && f.info->has(ops::MetadataOnly)) return run_on_metadata(op, s);
    if (f.target == "aten._to_copy.default") check_conversion(s, base);
    if (f.target == "aten._local_scalar_dense.default" && read_number(s)) return;
    refuse(f);
    if (f.target.starts_with("aten.as_strided") && rebuilt.contains(storage_of(s[base].toTensor())))
      throw Unsupported(cat(f.target, ": of an input that was written and has gaps or an offset"));
    if (is_lazy_view(f.target)) return lazy_view(f.target, s);
    if (!f.view) resolve_marks(s, base);
    if (f.info && f.info->has(ops::Random)) check_drawing_order(f, s[base]);
    if (writes_running_statistics(f, s, base)) return batch_norm_in_training(s, base);

    std::vector<ir::Arg> args;
    args.reserve(n);
    std::vector<at::Tensor> tensors;  // the tensor arguments, lists flattened
    auto tensor_arg = [&](const at::Tensor& t) {
      tensors.push_back(t);
      return arg_of(t);
    };
    for (size_t i = 0; i < n; ++i) args.push_back(to_arg(s[base + i], f.args[i], tensor_arg));
    while (!args.empty() && args.back().is_none()) args.pop_back();
    check_numbers(f, args);

    std::vector<ir::Type> types;
    if (options.shape_rules && f.info && f.info->shape && f.only_tensor_returns &&
        run_rule(*f.info, args, types)) {
      return finish_by_rule(op, f, s, base, std::move(args), std::move(types), tensors);
    }
    finish_by_meta(op, f, s, base, std::move(args), tensors);
  }

  // The number in a tensor that is one.
  bool read_number(torch::jit::Stack& s) const {
    auto it = values.find(s.back().toTensor().unsafeGetTensorImpl());
    if (it == values.end() || !runtime_numbers.contains(it->second.index)) return false;
    s.back() = runtime_number(it->second, !ir::is_floating(graph.tensor_type(it->second).dtype));
    return true;
  }

  void check_numbers(const OpFacts& f, std::span<const ir::Arg> args) const {
    if (runtime_numbers.empty()) return;
    auto is_tensor_kind = [](ArgKind k) {
      return k == ArgKind::Tensor || k == ArgKind::TensorList || k == ArgKind::OptionalTensorList;
    };
    for (size_t i = 0; i < args.size(); ++i) {
      bool number = false;
      if (!is_tensor_kind(f.args[i]))
        ir::for_each_value(args[i], [&](ir::ValueId) { number = true; });
      const bool taken = f.args[i] == ArgKind::Scalar && f.info && f.info->has(ops::RuntimeNumber);
      if (number && !taken) throw Unsupported(cat(f.target, " of a number that varies"));
    }
  }

  // See expect_write.
  void check_conversion(const torch::jit::Stack& s, size_t base) const {
    const bool known = expected_write == Write::None || !s[base + 1].isInt();
    const bool fine = known || (expected_write == Write::InPlace &&
                                c10::canCast(s[base].toTensor().scalar_type(),
                                             static_cast<at::ScalarType>(s[base + 1].toInt())));
    if (!fine) throw Unsupported("a result of another dtype than what it is written to");
  }

  bool run_rule(const ops::OpInfo& info, std::span<const ir::Arg> list, ops::Types& types) {
    const ops::Args args(graph, list);
    if (!shapes) return info.shape(args, types);
    sym::DecideByHints deciding(*shapes->facts());
    if (!info.shape(args, types)) {
      types.clear();
      return false;
    }
    for (ir::Type& t : types) shapes->simplify(t.tensor);
    return true;
  }

  // torch.tensor(...) inside the computation: a constant that nobody else can change.
  void lift(torch::jit::Stack& s) {
    at::Tensor real = s.back().toTensor();
    if (values.contains(real.unsafeGetTensorImpl())) return;
    bool known = attribute_of.contains(real.unsafeGetTensorImpl());
    attribute(real, cat("constant", attributes.size()));
    auto& source = attributes[attribute_of.at(real.unsafeGetTensorImpl())];
    if (!known) source.fresh = true;
    s.back() = functional::unsafeGetFunctionalWrapper(source.wrapper)->value();
  }

  // As the op that gives the new statistics as results, which then are what the old ones hold.
  void batch_norm_in_training(torch::jit::Stack& s, size_t base) {
    static const c10::OperatorHandle with_results = c10::Dispatcher::singleton().findSchemaOrThrow(
        "aten::_native_batch_norm_legit_functional", "");
    if (!s[base + 4].isTensor() || !s[base + 4].toTensor().defined())
      throw Unsupported("batch norm in training mode without a running variance");
    const at::Tensor mean = s[base + 3].toTensor(), var = s[base + 4].toTensor();
    if (storage_of(mean) == storage_of(var))
      throw Unsupported("running statistics of a batch norm that share memory");
    record(with_results, s);
    write_back(var, torch::jit::pop(s).toTensor());
    write_back(mean, torch::jit::pop(s).toTensor());
  }

  // A write below functionalisation: told to the wrapper of an input; of a tensor made in the
  // recording, no view may be left that would not see it.
  void write_back(const at::Tensor& old, const at::Tensor& now) {
    for (const auto* sources : {&inputs, &attributes}) {
      for (const RecordedSource& s : *sources) {
        auto* w = s.wrapper.defined() ? wrapper_of(s.wrapper) : nullptr;
        if (!w || !w->value().is_same(old)) continue;
        check_write(s.wrapper);
        w->replace_(now);
        w->commit_update();
        w->sync_();
        return;
      }
    }
    auto shares = [&](const at::Tensor& t) { return storage_of(t) == storage_of(old); };
    if (std::ranges::count_if(kept, shares) != 1)
      throw Unsupported("running statistics of a batch norm that share memory");
    bind(old, value_of(now));
  }

  ir::Node& add_node(const OpFacts& f, std::vector<ir::Arg> args, std::vector<ir::Type> types) {
    ir::Node& node =
        graph.add_call(ir::NodeKind::CallOp, f.target, std::move(args), std::move(types));
    node.stack = stack;
    node.parent = parent;
    return node;
  }

  void finish_by_rule(const c10::OperatorHandle& op, const OpFacts& f, torch::jit::Stack& s,
                      size_t base, std::vector<ir::Arg> args, std::vector<ir::Type> types,
                      const std::vector<at::Tensor>& tensors) {
    const auto& returns = op.schema().returns();
    const c10::Storage* storage = nullptr;
    if (f.info->has(ops::View) && !tensors.empty() && tensors[0].defined())
      storage = &tensors[0].storage();
    ir::Node& node = add_node(f, std::move(args), types);
    s.resize(base);
    size_t next = 0;
    auto take = [&]() -> at::Tensor {
      const size_t k = next++;
      if (!types[k].is_tensor()) return {};
      at::Tensor fake = new_fake(types[k].tensor, storage);
      bind(fake, node.outputs[k]);
      if (storage) inherit_marks(fake, tensors[0]);
      return fake;
    };
    bool any_list = false;
    std::vector<int32_t> lengths;
    for (size_t r = 0; r < returns.size(); ++r) {
      if (!is_tensor_list(returns[r].type())) {
        lengths.push_back(-1);
        s.emplace_back(take());
        continue;
      }
      any_list = true;
      OXY_CHECK(types.size() + 1 >= next + returns.size() - r, f.target);
      const size_t length = types.size() - next - (returns.size() - r - 1);
      lengths.push_back(static_cast<int32_t>(length));
      std::vector<at::Tensor> list;
      for (size_t i = 0; i < length; ++i) list.push_back(take());
      s.emplace_back(std::move(list));
    }
    OXY_CHECK(next == types.size(), "the shape rule of ", f.target,
              " gives another number of results");
    if (any_list) node.returns = std::move(lengths);
  }

  void finish_by_meta(const c10::OperatorHandle& op, const OpFacts& f, torch::jit::Stack& s,
                      size_t base, std::vector<ir::Arg> args,
                      const std::vector<at::Tensor>& tensors) {
    auto predicted = predict(op, f, c10::ArrayRef<c10::IValue>(s.data() + base, s.size() - base));
    std::vector<at::Tensor> written;
    for (size_t i : f.written) {
      if (s[base + i].isTensor() && s[base + i].toTensor().defined())
        written.push_back(s[base + i].toTensor());
    }
    if (predicted.empty() && written.empty() && !(f.info && f.info->has(ops::Effect)))
      throw Unsupported(cat(f.target, ": an op that gives nothing back"));
    s.resize(base);
    std::vector<ir::Type> types;
    std::vector<int32_t> lengths;
    bool any_list = !written.empty(), any_tensor = predicted.empty() || !written.empty();
    for (const PredictedReturn& r : predicted) {
      any_list |= r.is_list;
      any_tensor |= r.is_tensor;
      lengths.push_back(r.is_list ? static_cast<int32_t>(r.tensors.size()) : -1);
      for (const PredictedTensor& t : r.tensors)
        types.push_back(t.defined ? ir::Type::of(t.type) : ir::Type::none());
      if (!r.is_tensor) types.push_back(type_of_data(r.data));
    }
    if (!any_tensor) {  // it told something about metadata, which is constant
      for (PredictedReturn& r : predicted) s.push_back(std::move(r.data));
      return;
    }
    for (const at::Tensor& t : written) {
      types.push_back(type_after_write(t));
      lengths.push_back(-1);
    }
    ir::Node& node = add_node(f, std::move(args), std::move(types));
    if (any_list) node.returns = std::move(lengths);
    size_t next = 0;
    for (PredictedReturn& r : predicted) {
      std::vector<at::Tensor> list;
      for (const PredictedTensor& t : r.tensors)
        list.push_back(fake_of(t, node.outputs[next++], tensors));
      if (!r.is_tensor)
        ++next, s.push_back(std::move(r.data));
      else if (r.is_list)
        s.emplace_back(std::move(list));
      else
        s.emplace_back(std::move(list[0]));
    }
    // From here on the written fakes stand for what the op left in them.
    for (const at::Tensor& t : written) bind(t, node.outputs[next++]);
  }

  ir::Type type_after_write(const at::Tensor& fake) const {
    ir::Type type = graph.value(value_of(fake)).type;
    type.tensor.offset = 0;
    type.tensor.requires_grad = false;
    return type;
  }

  ir::Type type_of_data(const c10::IValue& v) const {
    if (v.isInt()) return ir::Type::integer(v.toInt());
    if (v.isDouble()) return ir::Type{ir::Type::Kind::Float, {}, 0};
    if (v.isBool()) return ir::Type{ir::Type::Kind::Bool, {}, 0};
    return ir::Type::none();
  }

  at::Tensor fake_of(const PredictedTensor& t, ir::ValueId v,
                     const std::vector<at::Tensor>& tensors) {
    if (!t.defined) return {};
    const c10::Storage* storage = t.alias_of >= 0 ? &tensors[t.alias_of].storage() : nullptr;
    at::Tensor fake = new_fake(t.type, storage);
    bind(fake, v);
    if (storage) inherit_marks(fake, tensors[t.alias_of]);
    return fake;
  }

  // ---- regions

  // An operand in the layout that the regions were recorded for.
  ir::Arg operand(const at::Tensor& t, const ir::Type& wanted) {
    const ir::Arg a = arg_of(t);
    if (!a.is_value()) throw Unsupported("a branch or loop of a number");
    const ir::TensorType& type = wanted.tensor;
    if (!same_layout(type, graph.tensor_type(a.value())) && type.may_overlap_itself())
      throw Unsupported("a branch or loop of a tensor that overlaps itself");
    return laid_out_as(graph, type, a.value());
  }

  std::vector<at::Tensor> add_regions(const std::string& op, std::vector<at::Tensor> args,
                                      std::vector<RecordedRegion> regions) {
    if (shapes) throw Unsupported("a branch or loop of symbolic sizes");
    for (const at::Tensor& t : lift_attributes(regions))
      args.push_back(attribute(t, cat("constant", attributes.size())).wrapper);
    for (RecordedRegion& r : regions) make_region(r.graph, graph.pool);
    const ir::RegionOp& row = *ir::find_region_op(op);
    const ir::Graph& last = regions.back().graph;
    std::vector<ir::Arg> values;
    for (size_t i = 0; i < args.size(); ++i)
      values.push_back(
          i < row.arguments
              ? arg_of(args[i])
              : operand(args[i], last.value(last.inputs().at(i - row.arguments)).type));
    const std::vector<ir::Type> types = result_types(row, regions);
    ir::Node& n = graph.add_call(ir::NodeKind::Region, op, std::move(values), types);
    n.stack = stack;
    n.parent = parent;
    for (RecordedRegion& r : regions) n.regions.push_back(std::move(r.graph));
    std::vector<at::Tensor> out;
    for (ir::ValueId v : n.outputs) {
      out.push_back(functional::to_functional_tensor(another_fake(v)));
      forbid_data(out.back());
    }
    return out;
  }

  // New facts may say more of sizes recorded before.
  void simplify_sizes() {
    if (!shapes || shapes->facts()->facts().size() == facts_applied) return;
    facts_applied = shapes->facts()->facts().size();
    ir::map_exprs(graph, [this](ir::Expr e) { return shapes->facts()->simplify(e); });
  }
};

Heard heard() { return so_far; }

Recorder::Recorder(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Recorder::~Recorder() = default;

at::Tensor Recorder::add_input(const at::Tensor& real, const std::string& name,
                               std::span<const int64_t> dynamic_dims) {
  for (const RecordedSource& s : impl_->inputs)
    if (s.wrapper.defined() && wrapper_of(s.wrapper)->has_data_mutation() &&
        may_overlap(s.real, real))
      throw Unsupported("an input that shares memory with one that has changed");
  impl_->inputs.push_back(impl_->make_source(real, name, true, dynamic_dims));
  return impl_->inputs.back().wrapper;
}

at::Tensor Recorder::add_runtime_number(const at::Tensor& real, const std::string& name) {
  at::Tensor out = add_input(real, name);
  impl_->runtime_numbers.insert(impl_->inputs.back().value.index);
  return out;
}

c10::SymInt Recorder::add_symbolic_number(int64_t hint, const std::string& name) {
  RecordedSource s;
  const ir::Expr e = impl_->shapes.value().symbol_for(hint);
  s.value = impl_->graph.add_input(name, ir::Type::integer(e));
  impl_->inputs.push_back(std::move(s));
  return to_sym_int(e, impl_->shapes->facts());
}

void Recorder::add_number(int64_t value, const std::string& name) {
  RecordedSource s;
  s.value = impl_->graph.add_input(name, ir::Type::integer(value));
  impl_->inputs.push_back(std::move(s));
}

at::Tensor Recorder::add_attribute(const at::Tensor& real, const std::string& name) {
  return impl_->attribute(real, name).wrapper;
}

std::vector<at::Tensor> Recorder::add_regions(const std::string& op,
                                              const std::vector<at::Tensor>& args,
                                              std::vector<RecordedRegion> regions) {
  OXY_CHECK(impl_->state, "regions are added while a recording is entered");
  // Views of written memory may be taken anew; autograd has nothing to add there.
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  return impl_->add_regions(op, args, std::move(regions));
}

void Recorder::enter() {
  OXY_CHECK(!impl_->state, "a recording is entered twice");
  impl_->state.emplace(impl_->mode, impl_->shapes.has_value(), *impl_);
}

void Recorder::expect_op(const std::string& name) {
  auto [it, is_new] = impl_->mutable_ops.try_emplace(name);
  if (is_new) it->second.emplace(name);
}

void Recorder::expect_write(std::string_view function, bool out) {
  const bool in_place = function.ends_with("_") && !function.ends_with("__");
  impl_->expected_write = out ? Write::Out : in_place ? Write::InPlace : Write::None;
}

void Recorder::leave() { impl_->state.reset(); }

void Recorder::clear_casts() { impl_->casts.clear(impl_->graph); }

void Recorder::end_autocasts() {
  if (kept_casts_now() != KeptCasts::All && casts_in_regions() == KeptCasts::None) clear_casts();
}

bool Recorder::has_casts() const { return impl_->casts.any(); }

KeptCasts Recorder::casts_in_regions() const { return impl_->casts.in_regions(); }

void Recorder::set_position(std::vector<ir::Frame> stack, ir::NodeId torch_node) {
  set_position(impl_->graph.add_stack(std::move(stack)), torch_node);
}

void Recorder::set_position(ir::StackId stack, ir::NodeId torch_node) {
  impl_->stack = stack;
  impl_->parent = torch_node;
}

ir::StackId Recorder::add_frame(ir::StackId caller, ir::Frame innermost) {
  return impl_->graph.add_frame(caller, std::move(innermost));
}

bool Recorder::owns(const at::Tensor& t) const {
  if (!t.defined()) return true;
  auto* w = wrapper_of(t);
  return w && impl_->values.contains(w->value().unsafeGetTensorImpl());
}

const std::optional<std::string>& Recorder::failure() const { return impl_->failure; }

ir::Graph Recorder::finish(const std::vector<at::Tensor>& results) {
  if (!impl_->state) enter();
  impl_->parent = {};
  impl_->stack = {};
  {
    // Rebuilding views runs ops on fakes; autograd has nothing to add there.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    impl_->simplify_sizes();
    add_mutations(*impl_);
    add_outputs(*impl_, results);
    impl_->simplify_sizes();
    impl_->casts.finish(impl_->graph);
  }
  leave();
  return std::move(impl_->graph);
}

const std::vector<at::Tensor>& Recorder::attributes() const { return impl_->attribute_tensors; }

std::vector<at::Tensor> Recorder::sources() const {
  std::vector<at::Tensor> out;
  for (const auto* sources : {&impl_->inputs, &impl_->attributes})
    for (const RecordedSource& s : *sources)
      if (s.wrapper.defined()) out.push_back(s.wrapper);
  return out;
}

std::shared_ptr<const sym::ShapeFacts> Recorder::facts() const {
  return impl_->shapes ? impl_->shapes->facts() : nullptr;
}

const std::shared_ptr<sym::ExprPool>& Recorder::pool() const { return impl_->graph.pool; }

}  // namespace oxy::bridge
