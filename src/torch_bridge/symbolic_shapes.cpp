// Chooses symbols for dimensions, and makes fakes that have them.
#include "torch_bridge/symbolic_shapes.h"

#include <ATen/core/functional.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/ivalue_convert.h"

namespace oxy::bridge {
namespace {

using sym::Expr;

class SymbolicFake final : public c10::TensorImpl {
 public:
  using TensorImpl::TensorImpl;

  c10::IntArrayRef sizes_custom() const override { return pinned(sym_sizes(), sizes_); }
  c10::IntArrayRef strides_custom() const override { return pinned(sym_strides(), strides_); }
  int64_t numel_custom() const override { return sym_numel().guard_int(__FILE__, __LINE__); }
  int64_t storage_offset_custom() const override {
    return sym_storage_offset().guard_int(__FILE__, __LINE__);
  }

  // Where the strides are those of its rows, torch need not ask which sizes are 1.
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat format) const override {
    if (format == at::MemoryFormat::Contiguous && is_row_major()) return true;
    return TensorImpl::sym_is_contiguous_custom(format);
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override {
    if (auto copy = detached_by_mode()) {
      copy->set_version_counter(version);
      copy->set_allow_tensor_metadata_change(allow_change);
      return copy;
    }
    auto copy = c10::make_intrusive<SymbolicFake>(c10::Storage(storage()), key_set(), dtype());
    copy_tensor_metadata(this, copy.get(), version, allow_change);
    return copy;
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override {
    return shallow_copy_and_detach(static_cast<const c10::VariableVersion&>(version), allow_change);
  }

 private:
  // As torch's own tensors ask the mode on top.
  c10::intrusive_ptr<TensorImpl> detached_by_mode() const {
    using Modes = c10::impl::TorchDispatchModeTLS;
    const int64_t depth = Modes::stack_len();
    if (depth == 0 || c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) return {};
    return Modes::get_stack_at(depth - 1)->pyinterpreter()->detach(this);
  }

  // The sizes as numbers, kept here because the caller gets a reference.
  static c10::IntArrayRef pinned(c10::SymIntArrayRef from, std::vector<int64_t>& to) {
    std::vector<int64_t> values =
        c10::fmap(from, [](const c10::SymInt& s) { return s.guard_int(__FILE__, __LINE__); });
    if (values != to) to = std::move(values);
    return to;
  }

  bool is_row_major() const {
    std::vector<Expr> sizes;
    for (const c10::SymInt& s : sym_sizes()) sizes.push_back(expr_of(s));
    const std::vector<Expr> by_rows = ir::contiguous_strides(sizes);
    for (size_t d = 0; d < sizes.size(); ++d) {
      const c10::SymInt& stride = sym_strides()[d];
      const bool same = expr_of(stride) == by_rows[d] ||
                        (stride.is_symbolic() &&
                         facts_of(stride)->known(sym::equal(expr_of(stride), by_rows[d])) == true);
      if (!same) return false;
    }
    return true;
  }

  mutable std::vector<int64_t> sizes_, strides_;
};

// Bytes from the start of the storage to its last element, whatever the sizes.
Expr span_bytes(const ir::TensorType& t) {
  Expr last = t.offset;
  for (size_t i = 0; i < t.sizes.size(); ++i) last += (t.sizes[i] - Expr(1)) * t.strides[i];
  return (last + Expr(1)) * Expr(ir::byte_size(t.dtype));
}

// Calls `f` on every symbolic number in an argument and puts what it gives in its place.
template <class F>
c10::IValue map_numbers(const c10::IValue& v, F f) {
  if (v.isSymInt()) return f(v.toSymInt());
  if (!v.isList() || v.isIntList() || v.isTensorList()) return v;
  auto items = v.toListRef();
  // A list of symbolic numbers may have none; kernels want one of plain numbers.
  auto is_number = [](const c10::IValue& x) { return x.isSymInt() || x.isInt(); };
  if (items.empty() || !std::ranges::all_of(items, is_number)) return v;
  std::vector<int64_t> out;
  for (const c10::IValue& x : items) out.push_back(x.isSymInt() ? f(x.toSymInt()) : x.toInt());
  return out;
}

at::Tensor on_hints(const at::Tensor& t) {
  if (!is_symbolic(t)) return t;
  return at::empty_strided(c10::fmap(t.sym_sizes(), hint_of), c10::fmap(t.sym_strides(), hint_of),
                           t.options());
}

}  // namespace

bool is_symbolic(const ir::TensorType& t) {
  auto symbolic = [](Expr e) { return !e.is_const(); };
  return std::ranges::any_of(t.sizes, symbolic) || std::ranges::any_of(t.strides, symbolic) ||
         symbolic(t.offset);
}

void read_symbolic_sizes(const at::Tensor& t, ir::TensorType& type) {
  for (const c10::SymInt& s : t.sym_sizes()) type.sizes.push_back(expr_of(s));
  for (const c10::SymInt& s : t.sym_strides()) type.strides.push_back(expr_of(s));
  type.offset = expr_of(t.sym_storage_offset());
}

Expr SymbolicShapes::symbol_for(int64_t hint, const std::string& group) {
  if (hint < 2) return hint;
  auto [it, is_new] = symbols_.try_emplace({group, hint});
  if (is_new) it->second = facts_->pool().symbol(cat("s", made_++), {2, INT64_MAX}, hint);
  return it->second;
}

Expr SymbolicShapes::symbol_of_number(int64_t hint) {
  return facts_->pool().symbol(cat("s", made_++), {}, hint);
}

Expr SymbolicShapes::size_of_data(int64_t guess) {
  return facts_->pool().symbol(cat("u", unbacked_++), {0, INT64_MAX}, std::max<int64_t>(guess, 2),
                               sym::Origin::Data);
}

Expr SymbolicShapes::number_of_data() {
  return facts_->pool().symbol(cat("u", unbacked_++), {}, 2, sym::Origin::Data);
}

ir::TensorType SymbolicShapes::input_type(const at::Tensor& real,
                                          std::span<const DynamicDim> dims) {
  using Kind = DynamicDim::Kind;
  ir::TensorType type = type_of(real);
  const int64_t rank = real.dim();
  std::vector<bool> strides(type.sizes.size());
  for (const DynamicDim& chosen : dims) {
    if (chosen.dim < -rank || chosen.dim >= rank)
      throw UserError(cat("an input of ", rank, " dimensions has no dimension ", chosen.dim));
    const auto d = static_cast<size_t>(chosen.dim < 0 ? chosen.dim + rank : chosen.dim);
    const int64_t size = real.size(static_cast<int64_t>(d));
    if (chosen.kind == Kind::Stride)
      strides[d] = true;
    else if (chosen.kind == Kind::Size)
      type.sizes[d] = symbol_for(size, chosen.group);
    else
      type.sizes[d] = facts_->pool().symbol(cat("u", unbacked_++), {0, INT64_MAX},
                                            std::max<int64_t>(size, 2), sym::Origin::Unbacked);
  }
  // A stride that is where another dimension ends is that product.
  std::vector<size_t> order(type.sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  auto stride = [&](size_t d) { return real.stride(static_cast<int64_t>(d)); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return stride(a) < stride(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t d = order[i];
    std::optional<size_t> inner;
    for (size_t j = i; j-- > 0 && !inner && stride(d) != 0;)
      if (stride(order[j]) * real.size(static_cast<int64_t>(order[j])) == stride(d))
        inner = order[j];
    if (inner)
      type.strides[d] = type.strides[*inner] * type.sizes[*inner];
    else if (strides[d] && stride(d) > 1)
      type.strides[d] = facts_->pool().symbol(cat("s", made_++), {2, INT64_MAX}, stride(d));
  }
  return type;
}

at::Tensor SymbolicShapes::make_fake(const ir::TensorType& type,
                                     const c10::Storage* storage) const {
  if (!is_symbolic(type)) return bridge::make_fake(type, storage);
  // The keys, the device and a storage of its own as those of any fake.
  ir::TensorType plain = type;
  plain.sizes = plain.strides = {};
  plain.offset = 0;
  at::Tensor model = bridge::make_fake(plain);
  c10::Storage own = storage ? *storage : model.storage();
  if (!storage) own.unsafeGetStorageImpl()->set_nbytes(to_sym_int(span_bytes(type), facts_));
  auto t = at::detail::make_tensor<SymbolicFake>(std::move(own), model.key_set(), model.dtype());
  // Kernels that ask for data look at the plain count of elements: for 0, as which it begins,
  // wrappers of this fake would give them null.
  t.unsafeGetTensorImpl()->set_sizes_contiguous({});
  auto sym_int = [&](Expr e) { return to_sym_int(e, facts_); };
  t.unsafeGetTensorImpl()->set_sizes_and_strides(
      c10::fmap(type.sizes, sym_int), c10::fmap(type.strides, sym_int), sym_int(type.offset));
  return t;
}

void SymbolicShapes::simplify(ir::TensorType& type) const {
  for (Expr& e : type.sizes) e = facts_->simplify(e);
  for (Expr& e : type.strides) e = facts_->simplify(e);
  type.offset = facts_->simplify(type.offset);
}

bool has_symbolic_sizes(const torch::jit::Stack& stack, size_t arguments) {
  bool found = false;
  auto on_tensor = [&](const at::Tensor& t) {
    found |= is_symbolic(t);
    return t;
  };
  auto on_number = [&](const c10::SymInt& s) {
    found |= !s.maybe_as_int();
    return int64_t{0};
  };
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i)
    map_numbers(map_tensors(stack[i], on_tensor), on_number);
  return found;
}

void run_on_hints(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size(), base = stack.size() - n;
  torch::jit::Stack original(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  for (size_t i = base; i < stack.size(); ++i)
    stack[i] = map_numbers(map_tensors(stack[i], on_hints), hint_of);
  {
    c10::impl::DisablePythonDispatcher off;
    op.callBoxed(&stack);
  }
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    const auto* alias = schema.returns()[r].alias_info();
    if (!alias || !alias->isWrite()) continue;
    for (size_t i = 0; i < n; ++i) {
      const auto* from = schema.arguments()[i].alias_info();
      if (from && from->beforeSets() == alias->beforeSets()) stack[base + r] = original[i];
    }
  }
}

c10::IValue with_values(const c10::IValue& v, const std::function<int64_t(Expr)>& f) {
  return map_numbers(v, [&](const c10::SymInt& s) {
    const auto number = s.maybe_as_int();
    return number ? *number : f(expr_of(s));
  });
}

c10::IValue with_numbers(const c10::IValue& v) {
  return map_numbers(v, [](const c10::SymInt& s) { return s.guard_int(__FILE__, __LINE__); });
}

}  // namespace oxy::bridge
