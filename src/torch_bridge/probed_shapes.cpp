// Sizes to ask at, and the expressions that fit the answers.
#include "torch_bridge/probed_shapes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

using sym::Expr;

constexpr size_t kProbes = 4;         // at first, the hints among them
using Values = std::vector<int64_t>;  // at each place
// Values of symbols, by symbol index; of one that is not there, its hint.
using Point = std::map<uint32_t, int64_t>;
using Prediction = std::vector<PredictedReturn>;

int64_t value_at(const Point& p, Expr e) {
  return sym::evaluate(e, [&](Expr s) {
    const auto at = p.find(s.symbol_index());
    return at == p.end() ? sym::hint(s) : at->second;
  });
}

// A bound of its absolute value, up to the factor of a Scale.
double magnitude_at(const Point& p, Expr e) {
  if (e.is_const() || e.kind() == sym::Kind::Symbol)
    return std::abs(static_cast<double>(value_at(p, e)));
  double out = magnitude_at(p, e.operands()[0]);
  for (Expr x : e.operands().subspan(1)) {
    if (e.kind() == sym::Kind::Add) out += magnitude_at(p, x);
    if (e.kind() == sym::Kind::Mul) out *= magnitude_at(p, x);
    if (e.kind() == sym::Kind::Min || e.kind() == sym::Kind::Max)
      out = std::max(out, magnitude_at(p, x));
  }
  return out;
}

// The expressions in the arguments, and the sizes of data. `fixed`: symbols that are numbers.
class Sizes {
 public:
  Sizes(const ProbedCall& call, std::span<const Expr> fixed) {
    for (const c10::IValue& v : call.args) {
      map_tensors(v, [&](const at::Tensor& t) {
        if (t.defined()) add(t);
        return t;
      });
      with_values(v, [&](Expr e) {
        add(e);
        return sym::hint(e);
      });
    }
    for (Expr e : call.of_data) add(e);
    std::erase_if(symbols_, [&](Expr s) { return std::ranges::find(fixed, s) != fixed.end(); });
  }

  const std::vector<Expr>& all() const { return all_; }
  const std::vector<Expr>& symbols() const { return symbols_; }

 private:
  void add(const at::Tensor& t) {
    const ir::TensorType type = type_of(t);
    for (Expr e : type.sizes) add(e);
    for (Expr e : type.strides) sym::collect_symbols(e, symbols_);
    sym::collect_symbols(type.offset, symbols_);
    add(type.numel());
  }
  void add(Expr e) {
    sym::collect_symbols(e, symbols_);
    if (std::ranges::find(all_, e) == all_.end()) all_.push_back(e);
  }

  std::vector<Expr> all_, symbols_;
};

// How much a size differs from its value at the hints, at most; 0 where it is the same at two
// places.
int64_t spread(Expr e, std::span<const Point> points) {
  int64_t out = 0;
  for (size_t k = 0; k < points.size(); ++k) {
    for (size_t j = 0; j < k; ++j)
      if (value_at(points[j], e) == value_at(points[k], e)) return 0;
    out = std::max(out, std::abs(value_at(points[k], e) - value_at(points[0], e)));
  }
  return out;
}

bool is_same(Expr e, std::span<const Point> points) {
  return std::ranges::all_of(
      points, [&](const Point& p) { return value_at(p, e) == value_at(points[0], e); });
}

// The hints, and other places where the facts hold, each symbol having another value everywhere.
// So has each size of the arguments, and one place is far away: else what depends on a size would
// look like a number (an eighth of it, rounded down). Where there are no such places, some at least
// at which no size is always the same.
std::optional<std::vector<Point>> places(const Sizes& sizes, const sym::ShapeFacts& facts) {
  constexpr int kMostTries = 400, kSpreadTries = 280, kDistinctTries = 340;
  constexpr int64_t kFar = 64;
  constexpr double kLargest = 1e15;  // elements of a tensor: values that expressions can hold
  std::vector<Point> out(1);
  for (Expr s : sizes.symbols()) out[0][s.symbol_index()] = sym::hint(s);
  std::vector<Expr> varying;
  for (Expr e : sizes.all()) {
    std::vector<Expr> in;
    sym::collect_symbols(e, in);
    if (std::ranges::find_first_of(in, sizes.symbols()) != in.end()) varying.push_back(e);
  }
  uint32_t random = 12345;
  for (int i = 0; i < kMostTries && out.size() < kProbes; ++i) {
    Point p;
    const bool last = out.size() + 1 == kProbes;
    for (Expr s : sizes.symbols()) {
      random = random * 1664525 + 1013904223;
      // Further and further away, where the facts have room for it; below the hints, where an op
      // may refuse a size, only as a last resort.
      const int64_t scale = int64_t{1} << (2 * (i % kSpreadTries / 40));
      const int64_t reach = scale * (i % 4 == 3 ? 6 : last && i % 4 == 0 ? 300 : 30);
      const int64_t below = i % kSpreadTries < kSpreadTries / 2 ? -1 : reach;
      const int64_t least = std::max<int64_t>(2, sym::hint(s) - below);
      p[s.symbol_index()] = least + random / 256 % static_cast<uint32_t>(reach + below + 1);
    }
    auto value = [&](Expr s) { return value_at(p, facts.replace_symbols(s)); };
    auto another = [&](const Point& q) {
      return std::ranges::all_of(p, [&](const auto& e) { return q.at(e.first) != e.second; });
    };
    if (!std::ranges::all_of(out, another)) continue;
    if (std::ranges::any_of(varying, [&](Expr e) { return magnitude_at(p, e) > kLargest; }))
      continue;
    if (!facts.holds(value)) continue;
    out.push_back(std::move(p));
    const bool good = std::ranges::all_of(varying, [&](Expr e) {
      if (i >= kDistinctTries) return !last || !is_same(e, out);
      return spread(e, out) >= (last && i < kSpreadTries ? kFar : 1);
    });
    if (!good) out.pop_back();
  }
  return out.size() == kProbes ? std::optional(std::move(out)) : std::nullopt;
}

// Expressions of the arguments' sizes by their values.
class Fits {
 public:
  Fits(const std::vector<Point>& points, std::span<const Expr> likely,
       const std::vector<Expr>& sizes)
      : points_(points) {
    for (Expr e : likely) add(e);
    likely_ = known_.size();
    for (Expr e : sizes) add(e);
    for (Expr e : sizes)
      if (e.is_const() && e.value() > 1) numbers_.push_back(e);
  }

  void add(Expr e) {
    if (!e.is_const()) known_.push_back({e, values(e)});
  }

  std::optional<Expr> find(const Values& v) const {
    for (const auto& [e, w] : std::span(known_).first(likely_))
      if (v == w) return e;
    if (std::ranges::count(v, v[0]) == std::ssize(v)) return Expr(v[0]);
    for (const auto& [e, w] : known_)
      if (v == w) return e;
    for (const auto& [e, w] : known_)
      if (auto line = linear(e, w, v)) return line;
    for (const auto& [e, w] : known_)
      if (auto line = linear(sym::floordiv(e, 2), values(sym::floordiv(e, 2)), v)) return line;
    for (const auto& [e, w] : known_)
      for (const Expr n : numbers_)
        if (const auto limited = combined(e, w, n, Values(w.size(), n.value()), v)) return limited;
    for (const auto& [a, x] : known_)
      for (const auto& [b, y] : known_)
        if (const auto both = combined(a, x, b, y, v)) return both;
    return std::nullopt;
  }

  Values values(Expr e) const {
    Values out;
    for (const Point& p : points_) out.push_back(value_at(p, e));
    return out;
  }

 private:
  // A whole multiple of e and a constant.
  static std::optional<Expr> linear(Expr e, const Values& w, const Values& v) {
    const auto other = std::ranges::find_if(w, [&](int64_t x) { return x != w[0]; });
    if (other == w.end()) return std::nullopt;
    const int64_t run = *other - w[0], rise = v[static_cast<size_t>(other - w.begin())] - v[0];
    if (rise % run != 0) return std::nullopt;
    const int64_t factor = rise / run, constant = v[0] - factor * w[0];
    for (size_t k = 0; k < v.size(); ++k)
      if (factor * w[k] + constant != v[k]) return std::nullopt;
    return Expr(factor) * e + Expr(constant);
  }

  // What is computed of two. A product may be larger than what expressions hold.
  static std::optional<Expr> combined(Expr a, const Values& x, Expr b, const Values& y,
                                      const Values& v) {
    const auto fits = [&](auto&& compute) {
      for (size_t k = 0; k < v.size(); ++k)
        if (compute(x[k], y[k]) != v[k]) return false;
      return true;
    };
    const auto product = [](int64_t i, int64_t j) {
      int64_t out;
      return __builtin_mul_overflow(i, j, &out) ? INT64_MAX : out;
    };
    if (fits(product)) return a * b;
    if (fits(std::plus<>())) return a + b;
    if (fits(std::minus<>())) return a - b;
    if (fits([](int64_t i, int64_t j) { return std::min(i, j); })) return sym::min(a, b);
    if (fits([](int64_t i, int64_t j) { return std::max(i, j); })) return sym::max(a, b);
    return std::nullopt;
  }

  struct Known {
    Expr e;
    Values values;
  };
  const std::vector<Point>& points_;
  std::vector<Known> known_;
  std::vector<Expr> numbers_;  // sizes that do not vary
  size_t likely_ = 0;          // of these, the first so many
};

using Answers = std::vector<PredictedTensor>;

// Fits the numbers that `of` takes from each answer.
template <class F>
bool fit(const Fits& fits, const Answers& answers, F of, Expr& out) {
  Values v;
  for (const PredictedTensor& t : answers) v.push_back(of(t.type).value());
  const auto e = fits.find(v);
  if (e) out = *e;
  return e.has_value();
}

std::optional<PredictedTensor> fitted(const Fits& arguments, const Answers& answers) {
  PredictedTensor out = answers[0];
  for (const PredictedTensor& t : answers) {
    if (t.defined != out.defined || t.alias_of != out.alias_of) return std::nullopt;
    if (!t.defined) continue;
    if (t.type.dtype != out.type.dtype || t.type.dim() != out.type.dim()) return std::nullopt;
  }
  if (!out.defined) return out;
  const size_t rank = out.type.sizes.size();
  for (size_t d = 0; d < rank; ++d) {
    auto size = [d](const ir::TensorType& t) { return t.sizes[d]; };
    if (!fit(arguments, answers, size, out.type.sizes[d])) return std::nullopt;
  }
  if (!fit(arguments, answers, [](const ir::TensorType& t) { return t.offset; }, out.type.offset))
    return std::nullopt;
  // From the innermost dimension: strides are mostly products of the sizes inside.
  std::vector<size_t> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  const std::vector<Expr> strides = answers[0].type.strides;
  std::ranges::stable_sort(order, {}, [&](size_t d) { return strides[d].value(); });
  Fits fits = arguments;
  Expr next = 1;
  for (size_t d : order) {
    fits.add(next);
    auto stride = [d](const ir::TensorType& t) { return t.strides[d]; };
    if (!fit(fits, answers, stride, out.type.strides[d])) return std::nullopt;
    next = out.type.strides[d] * out.type.sizes[d];
  }
  return out;
}

// What the op gives at a place; nothing where it refuses the sizes.
std::optional<Prediction> answer(const ProbedCall& call, const Point& p) {
  auto value = [&](Expr e) { return value_at(p, e); };
  auto tensor = [&](const at::Tensor& t) {
    if (!t.defined() || !is_symbolic(t)) return t;
    ir::TensorType type = type_of(t);
    for (Expr& e : type.sizes) e = value(e);
    for (Expr& e : type.strides) e = value(e);
    type.offset = value(type.offset);
    return make_fake(type);
  };
  try {
    std::vector<c10::IValue> concrete;
    for (const c10::IValue& v : call.args)
      concrete.push_back(with_values(map_tensors(v, tensor), value));
    std::vector<int64_t> of_data;
    for (Expr e : call.of_data) of_data.push_back(value(e));
    return predict_on_meta(call.op, concrete, of_data);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Pins the sizes of which this holds, which are `fixed` from now on; false where there are none.
template <class F>
bool pin_if(const ProbedCall& call, const Sizes& sizes, sym::ShapeFacts& facts,
            std::vector<Expr>& fixed, F holds) {
  const size_t before = fixed.size();
  for (Expr s : sizes.symbols()) {
    if (std::ranges::find(call.of_data, s) != call.of_data.end() || !holds(s)) continue;
    facts.pin(s);
    fixed.push_back(s);
  }
  return fixed.size() > before;
}

bool same_data(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isBool() && b.isBool()) return a.toBool() == b.toBool();
  return a.isNone() && b.isNone();
}

std::optional<Prediction> fit_all(const Fits& fits, const std::vector<Prediction>& answers) {
  Prediction out = answers[0];
  for (size_t r = 0; r < out.size(); ++r) {
    for (const auto& other : answers) {
      if (other.size() != out.size() || other[r].tensors.size() != out[r].tensors.size())
        return std::nullopt;
      if (!out[r].is_tensor && !same_data(out[r].data, other[r].data)) return std::nullopt;
    }
    for (size_t i = 0; i < out[r].tensors.size(); ++i) {
      Answers of_one;
      for (const Prediction& a : answers) of_one.push_back(a[r].tensors[i]);
      auto t = fitted(fits, of_one);
      if (!t) return std::nullopt;
      out[r].tensors[i] = std::move(*t);
    }
  }
  return out;
}

// Whether the sizes of an answer are those that were fitted.
bool agrees(const Prediction& fitted, const Prediction& found, const Point& p) {
  for (size_t r = 0; r < fitted.size(); ++r) {
    if (fitted[r].tensors.size() != found[r].tensors.size()) return false;
    for (size_t i = 0; i < fitted[r].tensors.size(); ++i) {
      const PredictedTensor &a = fitted[r].tensors[i], &b = found[r].tensors[i];
      if (a.defined && !std::ranges::equal(a.type.sizes, b.type.sizes, [&](Expr e, Expr n) {
            return value_at(p, e) == n.value();
          }))
        return false;
    }
  }
  return true;
}

// Where another rule may hold than at the places above the hints (the smaller of two sizes): each
// symbol small or large by itself, and all of them small.
std::vector<Point> far_places(const Point& hints, const sym::ShapeFacts& facts) {
  std::vector<Point> out;
  auto consider = [&](const Point& p) {
    if (facts.holds([&](Expr s) { return value_at(p, facts.replace_symbols(s)); }))
      out.push_back(p);
  };
  for (const auto& [symbol, hint] : hints)
    for (const int64_t value : {int64_t{2}, hint / 2, hint - 1, 3 * hint}) {
      Point p = hints;
      p[symbol] = value;
      if (value > 1 && value != hint) consider(p);
    }
  Point small = hints;
  for (auto& [symbol, value] : small) value = 2;
  consider(small);
  return out;
}

// What is fitted holds wherever the op was asked.
std::optional<Prediction> fit_everywhere(const ProbedCall& call, const Sizes& sizes,
                                         std::span<const Expr> likely, std::vector<Point> points,
                                         std::vector<Prediction> answers,
                                         const sym::ShapeFacts& facts) {
  auto fit = [&] { return fit_all(Fits(points, likely, sizes.all()), answers); };
  std::optional<Prediction> out = fit();
  for (const Point& p : far_places(points[0], facts)) {
    if (!out) return out;
    auto found = answer(call, p);
    if (!found || agrees(*out, *found, p)) continue;
    points.push_back(p);
    answers.push_back(std::move(*found));
    out = fit();
  }
  return out;
}

}  // namespace

std::optional<Prediction> predict_by_probes(const ProbedCall& call, std::span<const Expr> likely,
                                            sym::ShapeFacts& facts) {
  std::vector<Expr> fixed;
  for (bool pinned = true; pinned;) {
    pinned = false;
    const Sizes sizes(call, fixed);
    if (sizes.symbols().empty()) return answer(call, {});  // facts have made them numbers
    const auto points = places(sizes, facts);
    if (!points) {  // perhaps since a size has fewer values than there are probes
      pinned = pin_if(call, sizes, facts, fixed, [&](Expr s) {
        return facts.known(sym::less(s, Expr(int64_t{kProbes} + 2))) == true;
      });
      continue;
    }
    std::vector<Prediction> answers;
    for (const Point& p : *points) {
      auto a = answer(call, p);
      if (!a) break;
      answers.push_back(std::move(*a));
    }
    if (answers.size() == kProbes)
      return fit_everywhere(call, sizes, likely, *points, std::move(answers), facts);
    // Those that the op refuses to see changed alone. Where it fails at the hints, whoever asks
    // next hears of it.
    if (answers.empty()) continue;
    pinned = pin_if(call, sizes, facts, fixed, [&](Expr s) {
      Point p = points->front();
      p[s.symbol_index()] = (*points)[1].at(s.symbol_index());
      return !answer(call, p);
    });
  }
  return std::nullopt;
}

}  // namespace oxy::bridge
