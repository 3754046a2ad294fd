// Shapes of element-wise ops. The order of dimensions follows ATen/native/TensorIterator.cpp
// (reorder_dimensions).
#include "ops/shape_elementwise.h"

#include <algorithm>

namespace oxy::ops {
namespace {

using ir::TensorType;

std::optional<bool> is_one(Expr e) { return sym::known_equal(e, 1); }

// How the pair of dimensions (a, b) of one operand should stand, a being the inner one so far: -1
// as they are, 1 swapped, 0 undecided; nothing where it depends on symbols.
std::optional<int> compare_dims(Expr stride_a, Expr stride_b, Expr size_a, Expr size_b) {
  auto zero_a = sym::known_equal(stride_a, 0), zero_b = sym::known_equal(stride_b, 0);
  if (!zero_a || !zero_b) return std::nullopt;
  if (*zero_a || *zero_b) return 0;
  auto less = sym::known_less(stride_a, stride_b), greater = sym::known_less(stride_b, stride_a);
  if (!less || !greater) return std::nullopt;
  if (*less) return -1;
  if (*greater) return 1;
  auto bigger = sym::known_less(size_b, size_a);
  if (!bigger) return std::nullopt;
  return *bigger ? 1 : 0;
}

// Dimensions from innermost to outermost, ordered by insertion sort under the operands' strides in
// turn.
std::optional<std::vector<size_t>> order_dims(const Sizes& sizes,
                                              const std::vector<Sizes>& strides) {
  const size_t rank = sizes.size();
  std::vector<size_t> perm(rank);
  for (size_t i = 0; i < rank; ++i) perm[i] = rank - 1 - i;
  auto compare = [&](size_t a, size_t b) -> std::optional<int> {
    for (const Sizes& s : strides) {
      auto c = compare_dims(s[a], s[b], sizes[a], sizes[b]);
      if (!c || *c != 0) return c;
    }
    return 0;
  };
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      auto c = compare(perm[j], perm[at]);
      if (!c) return std::nullopt;
      if (*c > 0) {
        std::swap(perm[j], perm[at]);
        at = j;
      } else if (*c < 0) {
        break;
      }
    }
  }
  return perm;
}

Sizes strides_in_order(const Sizes& sizes, const std::vector<size_t>& perm) {
  Sizes strides(sizes.size());
  Expr next = 1;
  for (size_t d : perm) {
    strides[d] = next;
    next = next * sizes[d];
  }
  return strides;
}

// Strides of an operand seen in the common shape: 0 where it is broadcast.
std::optional<Sizes> broadcast_strides(const Sizes& sizes, const TensorType& t) {
  Sizes s(sizes.size(), Expr(0));
  const size_t lead = sizes.size() - t.sizes.size();
  for (size_t i = 0; i < t.sizes.size(); ++i) {
    auto one = is_one(t.sizes[i]), out_one = is_one(sizes[lead + i]);
    if (!one || !out_one) return std::nullopt;
    s[lead + i] = *one && !*out_one ? Expr(0) : t.strides[i];
  }
  return s;
}

bool all_dense_with_equal_strides(std::span<const TensorType* const> operands) {
  return std::all_of(operands.begin(), operands.end(), [&](const TensorType* t) {
    return t->is_dense() && t->strides == operands[0]->strides;
  });
}

// The permuted strides become row-major ones where the permutation is the identity (a size of 0
// counts as 1 there).
Sizes output_strides(const Sizes& sizes, const std::vector<size_t>& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != perm.size() - 1 - i) return strides_in_order(sizes, perm);
  }
  return ir::contiguous_strides(sizes);
}

DType to_floating(DType d) { return ir::is_floating(d) ? d : DType::F32; }

// The one device of the operands; a CPU tensor without dimensions goes with any.
std::optional<ir::Device> common_device(std::span<const TensorType* const> operands) {
  std::optional<ir::Device> device;
  for (const auto* t : operands) {
    if (device && *device == t->device) continue;
    if (!device || (device->is_cpu() && operands[0]->sizes.empty())) {
      device = t->device;
    } else if (!(t->sizes.empty() && t->device.is_cpu())) {
      return std::nullopt;
    }
  }
  return device;
}

}  // namespace

std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes out = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Expr x = shorter[i], y = out[lead + i];
    if (x == y) continue;
    auto one_x = is_one(x), one_y = is_one(y);
    if (one_x && *one_x) continue;
    if (one_y && *one_y) {
      out[lead + i] = x;
    } else if (auto same = sym::known_equal(x, y); !same || !*same) {
      return std::nullopt;
    }
  }
  return out;
}

bool known_same(const Sizes& a, const Sizes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](Expr x, Expr y) {
    return x == y || sym::known_equal(x, y).value_or(false);
  });
}

Sizes channels_last_strides(const Sizes& s) {
  return {s[1] * s[2] * s[3], Expr(1), s[1] * s[3], s[1]};
}

Sizes channels_last_3d_strides(const Sizes& s) {
  return {s[1] * s[2] * s[3] * s[4], Expr(1), s[1] * s[3] * s[4], s[1] * s[4], s[1]};
}

bool is_channels_last(const TensorType& t) {
  if (t.sizes.size() != 4) return false;
  Expr expected = 1;
  for (size_t d : {1, 3, 2, 0}) {
    if (t.sizes[d].is_const(1)) continue;
    if (t.strides[d] != expected) return false;
    expected = expected * t.sizes[d];
  }
  return true;
}

std::optional<bool> suggests_channels_last(const TensorType& t) {
  const size_t rank = t.sizes.size();
  if (rank != 4 && rank != 5) return false;
  for (size_t d = 0; d < rank; ++d) {
    if (!t.sizes[d].is_const() || !t.strides[d].is_const()) return std::nullopt;
  }
  if (t.strides[1].is_const(0)) return false;
  std::vector<size_t> order{1};  // from the fastest dimension, if it is channels-last
  for (size_t d = rank; d-- > 2;) order.push_back(d);
  order.push_back(0);
  int64_t least = 0;
  for (size_t d : order) {
    const int64_t size = t.sizes[d].value(), stride = t.strides[d].value();
    if (size == 0 || stride < least) return false;
    if (d == 0 && least == t.strides[1].value()) return false;  // either format: the usual one
    least = size > 1 ? stride * size : stride;
  }
  return true;
}

std::optional<Sizes> dense_strides_like(const Sizes& sizes, const Sizes& strides) {
  auto perm = order_dims(sizes, {strides});
  if (!perm) return std::nullopt;
  return strides_in_order(sizes, *perm);
}

std::optional<Sizes> preserved_strides(const TensorType& t) {
  if (t.is_dense()) return t.strides;
  return dense_strides_like(t.sizes, t.strides);
}

std::optional<TensorType> empty_like(const TensorType& t) {
  auto strides = preserved_strides(t);
  if (!strides) return std::nullopt;
  TensorType r = row_major(t.dtype, t.device, t.sizes);
  r.strides = std::move(*strides);
  return r;
}

std::optional<Sizes> elementwise_strides(const Sizes& sizes,
                                         std::span<const TensorType* const> operands,
                                         bool has_number) {
  const bool same_shape = !(has_number && !sizes.empty()) &&
                          std::all_of(operands.begin(), operands.end(), [&](const TensorType* t) {
                            return known_same(t->sizes, sizes);
                          });
  if (same_shape && !operands.empty()) {
    auto all = [&](auto&& holds) {
      return std::all_of(operands.begin(), operands.end(),
                         [&](const TensorType* t) { return holds(*t); });
    };
    if (all([](const TensorType& t) { return t.is_contiguous(); })) {
      return ir::contiguous_strides(sizes);
    }
    if (all([](const TensorType& t) { return is_channels_last(t); })) {
      return channels_last_strides(sizes);
    }
    if (all_dense_with_equal_strides(operands)) return operands[0]->strides;
  }
  std::vector<Sizes> strides;
  for (const TensorType* t : operands) {
    auto s = broadcast_strides(sizes, *t);
    if (!s) return std::nullopt;
    strides.push_back(std::move(*s));
  }
  auto perm = order_dims(sizes, strides);
  if (!perm) return std::nullopt;
  return output_strides(sizes, *perm);
}

bool lay_out_like(const TensorType* t, TensorType& result) {
  if (!t || !known_same(t->sizes, result.sizes)) return false;
  auto strides = preserved_strides(*t);
  if (strides) result.strides = std::move(*strides);
  return strides.has_value();
}

bool give(Types& out, std::optional<TensorType> result) {
  if (result) out.push_back(ir::Type::of(std::move(*result)));
  return result.has_value();
}

TensorType row_major(DType dtype, ir::Device device, Sizes sizes) {
  TensorType t;
  t.dtype = dtype;
  t.device = device;
  t.strides = ir::contiguous_strides(sizes);
  t.sizes = std::move(sizes);
  return t;
}

std::optional<DType> common_dtype(const Args& args, std::span<const size_t> operands,
                                  bool to_float) {
  ResultType r;
  for (size_t i : operands) {
    if (!r.add(args, i)) return std::nullopt;
  }
  auto d = r.result();
  return d && to_float ? std::optional(to_floating(*d)) : d;
}

bool meets(Needs needs, const Args& args, std::span<const size_t> operands, DType common) {
  auto every_tensor = [&](auto&& holds) {
    return std::all_of(operands.begin(), operands.end(), [&](size_t i) {
      const TensorType* t = args.tensor(i);
      return !t || holds(t->dtype);
    });
  };
  auto floating = [](DType d) { return ir::is_floating(d); };
  const TensorType* first = args.tensor(operands[0]);
  auto like_first = [&](DType d) { return first && d == first->dtype; };
  switch (needs) {
    case Needs::Anything:
      return true;
    case Needs::NotBool:
      return common != DType::B8;
    case Needs::Floating:
      return floating(common);
    case Needs::Integers:
      return ir::is_integral(common, true);
    case Needs::NumberIntegers:
      return ir::is_integral(common, false);
    case Needs::NoBool:
      return every_tensor([](DType d) { return d != DType::B8; });
    case Needs::AllFloating:
      return every_tensor(floating);
    case Needs::NoHalf:
      return !ir::is_reduced_float(common);
    case Needs::SameDType:
      return every_tensor(like_first);
    case Needs::SameFloating:
      return floating(common) && every_tensor(like_first);
  }
  return false;
}

std::optional<TensorType> elementwise_type(const Args& args, std::span<const size_t> operands,
                                           ResultDType rule) {
  auto dtype = common_dtype(args, operands, rule == ResultDType::Float);
  if (!dtype) return std::nullopt;
  std::vector<const TensorType*> tensors;
  std::vector<TensorType> cast;  // TensorIterator converts operands before it looks at strides
  cast.reserve(operands.size());
  for (size_t i : operands) {
    const TensorType* t = args.tensor(i);
    if (!t) continue;
    if (t->dtype != *dtype && rule != ResultDType::First) {
      auto converted = empty_like(*t);
      if (!converted) return std::nullopt;
      t = &cast.emplace_back(std::move(*converted));
    }
    tensors.push_back(t);
  }
  if (tensors.empty()) return std::nullopt;
  std::optional<Sizes> sizes = Sizes{};
  for (const TensorType* t : tensors) {
    sizes = broadcast(*sizes, t->sizes);
    if (!sizes) return std::nullopt;
  }
  auto strides = elementwise_strides(*sizes, tensors, tensors.size() < operands.size());
  auto device = common_device(tensors);
  if (!strides || !device) return std::nullopt;
  TensorType out;
  out.dtype = rule == ResultDType::Bool ? DType::B8 : *dtype;
  if (rule == ResultDType::First) {
    if (!args.tensor(operands[0])) return std::nullopt;
    out.dtype = args.tensor(operands[0])->dtype;
  }
  out.device = *device;
  out.sizes = std::move(*sizes);
  out.strides = std::move(*strides);
  return out;
}

}  // namespace oxy::ops
