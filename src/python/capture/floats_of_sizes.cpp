// Floats that Python computes of sizes, or of floats that vary: what is made of them, and how far
// expressions of the sizes say what they are rounded to and how they compare.
#include <cmath>

#include "python/capture/capture.h"
#include "python/capture/size_float.h"
#include "python/guards/guard_walk.h"

namespace oxy::python {

namespace {

// Functions whose result is a float for all numbers that they take, where it is one for some: of
// the modules `operator`, in place as well, `math` and `builtins`.
bool gives_floats(std::string_view name) {
  static constexpr std::string_view kFunctions =
      "add sub mul truediv iadd isub imul itruediv floordiv ifloordiv mod imod abs float round"
      " sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh"
      " asinh acosh atanh erf erfc gamma lgamma degrees radians fabs atan2 hypot fmod remainder"
      " copysign sum";
  return has_word(kFunctions, name);
}

}  // namespace

std::optional<py::object> Numbers::float_of_sizes(std::string_view name, const py::object& function,
                                                  const Arguments& args) {
  auto of_sizes = [this](const py::object& a) { return is_of_sizes(a); };
  auto of_data = [this](const py::object& a) { return is_of_data(a); };
  if (std::ranges::any_of(args, of_data)) return float_of_data(function, args);
  if (std::ranges::none_of(args, of_sizes) || steps_with(args) > kMostSteps) return std::nullopt;
  Arguments reals;
  bool floats = true;
  for (const py::object& a : args) {
    if (a && is_symbolic_int(a) && !has_hint(a)) return std::nullopt;
    reals.push_back(typed(a));
    if (!a || !is_number(reals.back().ptr())) return std::nullopt;
    floats = floats && PyFloat_CheckExact(reals.back().ptr());
  }
  const bool extreme = name == "min" || name == "max", power = name == "pow" || name == "ipow";
  if (extreme ? !floats : !power && !gives_floats(name)) return std::nullopt;
  PyObject* made = PyObject_CallObject(function.ptr(), tuple_of(reals).ptr());
  if (made == nullptr) PyErr_Clear();
  const py::object real = owned(made);
  if (!real || !PyFloat_CheckExact(real.ptr()) ||
      (power && module_of(function) == "_operator" && !is_float_power(args[0], args[1])))
    return std::nullopt;
  floats_of_sizes_ = true;
  // Whether or not it is used, other calls raise where Python does.
  if (!never_raises(name, args))
    asked_.push_back({function, args, {}, stack_text(frames().user_stack())});
  return defer(real, {}, function, args);
}

// Of numbers for which the function gives a float: whether it does for all that this capture is
// for. What that takes is decided.
bool Numbers::never_raises(std::string_view name, const Arguments& args) {
  static constexpr std::string_view kTotal =
      "add sub mul iadd isub imul neg abs float fabs min max copysign atan atan2 tanh erf erfc"
      " degrees radians asinh sum";
  if (has_word(kTotal, name)) return true;
  const auto facts = graphs().recorder().facts();
  const auto first = whole(args[0]), last = whole(args.back());
  auto at_least = [&](sym::Expr e, int64_t least) { return facts->decide(sym::at_most(least, e)); };
  if (name.find("div") != std::string_view::npos || name == "mod" || name == "imod") {
    if (last) return facts->decide(sym::not_equal(*last, 0));
    if (PyFloat_CheckExact(args[1].ptr())) return true;
    const py::object answer = compared(args[1], py::float_(0.0), Py_NE);
    return answer && answer.ptr() == Py_True;
  }
  constexpr double kMostExponent = 16;  // a size is below 2^63
  if (name == "sin" || name == "cos" || name == "tan") return first.has_value();
  if (name == "sqrt") return first && at_least(*first, 0);
  if (name == "log1p") return first && at_least(*first, 0);
  if (name == "log" || name == "log2" || name == "log10") {
    const bool base = args.size() == 1 || (last && last->is_const() && last->value() > 1);
    return first && base && at_least(*first, 1);
  }
  if (name != "pow" && name != "ipow") return false;
  const auto exponent =
      PyFloat_CheckExact(args[1].ptr()) ? std::optional(PyFloat_AS_DOUBLE(args[1].ptr()))
      : last && last->is_const()        ? std::optional(static_cast<double>(last->value()))
                                        : std::nullopt;
  if (first && exponent && std::abs(*exponent) <= kMostExponent)
    return at_least(*first, *exponent < 0 ? 1 : 0);
  if (!last || !PyFloat_CheckExact(args[0].ptr())) return false;
  const double base = PyFloat_AS_DOUBLE(args[0].ptr());
  return base > 0 && base <= 1 && at_least(*last, 0);
}

// Whether it is a float at other sizes as well, where it is one in this call: of ints it depends on
// the exponent's sign, and of a negative number it may be complex.
bool Numbers::is_float_power(const py::object& base, const py::object& exponent) {
  const auto b = whole(base), e = whole(exponent);
  const auto facts = graphs().recorder().facts();
  if (b && e && PyLong_CheckExact(real_of(exponent).ptr()))
    return e->is_const() || facts->decide(sym::less(*e, 0));
  if (e) return true;
  if (PyFloat_CheckExact(exponent.ptr())) {
    const double number = PyFloat_AS_DOUBLE(exponent.ptr());
    if (number == std::rint(number)) return true;
  }
  if (b) return facts->decide(sym::at_most(0, *b));
  if (PyFloat_CheckExact(base.ptr())) return PyFloat_AS_DOUBLE(base.ptr()) >= 0;
  const py::object answer = compared(base, py::int_(0), Py_GE);
  return answer && answer.ptr() == Py_True;
}

bool Numbers::is_of_sizes(const py::object& o) const {
  if (o && is_symbolic_int(o)) return has_hint(o);
  const Deferred* found = deferred_.empty() ? nullptr : find(o);
  if (found && found->source.valid())
    return is_symbolic_float(o) || sizes().varies(found->real, found->source);
  return found && std::ranges::any_of(found->parts,
                                      [this](const py::object& part) { return is_of_sizes(part); });
}

// The int, or float(int), that it is.
std::optional<sym::Expr> Numbers::whole(const py::object& o) {
  if (!o) return std::nullopt;
  if (is_symbolic_int(o) || PyLong_CheckExact(o.ptr())) return integer_expr(o);
  if (!find(o)) return std::nullopt;
  const Deferred found = *find(o);
  if (sizes().varies(found.real, found.source)) return integer_expr(read(o));
  if (!found.function) return std::nullopt;
  const auto name = text(found.function.attr("__name__"));
  if (found.parts.size() == 1) return name == "float" ? whole(found.parts[0]) : std::nullopt;
  if (found.parts.size() != 2 || !PyLong_CheckExact(found.real.ptr())) return std::nullopt;
  const auto a = whole(found.parts[0]), b = whole(found.parts[1]);
  if (!a || !b) return std::nullopt;
  if (name == "add" || name == "iadd") return *a + *b;
  if (name == "sub" || name == "isub") return *a - *b;
  return name == "mul" || name == "imul" ? std::optional(*a * *b) : std::nullopt;
}

std::optional<SizeFloat> Numbers::size_float(const py::object& o) {
  if (!find(o) || !is_of_sizes(o) || is_of_data(o)) return std::nullopt;
  const Deferred found = *find(o);
  if (found.parts.empty() || found.parts.size() > 2) return std::nullopt;
  const auto facts = graphs().recorder().facts();
  auto name = text(found.function.attr("__name__"));
  const py::object &a = found.parts[0], &b = found.parts.back();
  const auto x = whole(a), y = whole(b);
  if (found.parts.size() == 1) {
    if (name == "sqrt" && x) return SizeFloat::square_root(*x, facts);
    if (name == "float" && x) return SizeFloat::quotient(*x, 1, facts);
    const auto inner = name == "neg" ? size_float(a) : std::nullopt;
    return inner ? inner->negated() : std::nullopt;
  }
  if (name.starts_with('i')) name.erase(0, 1);  // in place
  auto number = [](const py::object& part) -> std::optional<double> {
    if (!PyFloat_CheckExact(part.ptr())) return std::nullopt;
    return PyFloat_AS_DOUBLE(part.ptr());
  };
  const auto c = number(a), d = number(b);
  if (name == "pow") return x && d == 0.5 ? SizeFloat::square_root(*x, facts) : std::nullopt;
  if (name == "mul") {
    if (x && y) return SizeFloat::quotient(*x * *y, 1, facts);
    if (x && d) return SizeFloat::product(*x, *d, facts);
    if (c && y) return SizeFloat::product(*y, *c, facts);
    const auto factor = x && x->is_const()   ? static_cast<double>(x->value())
                        : y && y->is_const() ? static_cast<double>(y->value())
                        : c                  ? *c
                                             : d.value_or(0);
    const auto inner = size_float(is_symbolic_float(a) ? a : b);
    return inner && factor != 0 ? inner->times(factor) : std::nullopt;
  }
  if (name == "truediv") {
    if (x && y) return SizeFloat::quotient(*x, *y, facts);
    if (x && d) return SizeFloat::quotient_by_float(*x, *d, facts);
    if (c && y) return SizeFloat::product_of_float(*c, *y, facts);
    const double divisor = d ? *d : y && y->is_const() ? static_cast<double>(y->value()) : 0;
    int exponent = 0;
    const auto inner = std::frexp(divisor, &exponent) == 0.5 ? size_float(a) : std::nullopt;
    return inner ? inner->times(1 / divisor) : std::nullopt;
  }
  if (name == "floordiv") {  // of the exact quotient, which `/` may round
    std::optional<SizeFloat> exact;
    if (x && d) exact = SizeFloat::quotient_by_float(*x, *d, facts);
    if (c && y) exact = SizeFloat::product_of_float(*c, *y, facts);
    if (exact && !exact->is_ratio()) return std::nullopt;
    if (!x && y == sym::Expr(1)) exact = size_float(a);
    const auto e = exact ? exact->rounded(Rounding::Down) : std::nullopt;
    return e ? SizeFloat::quotient(*e, 1, facts) : std::nullopt;
  }
  if (name != "add" && name != "sub") return std::nullopt;
  const int sign = name == "sub" ? -1 : 1;
  if (const auto left = size_float(a)) {
    if (y) return left->plus(*y * sign);
    return d ? left->plus(*d * sign) : std::nullopt;
  }
  auto right = size_float(b);
  if (right && sign < 0) right = right->negated();
  if (!right) return std::nullopt;
  if (x) return right->plus(*x);
  return c ? right->plus(*c) : std::nullopt;
}

// math.log2 of an int, which it tells from the powers of 2 next to it, rounded.
std::optional<py::object> Numbers::rounded_logarithm(const py::object& o, Rounding how) {
  constexpr int64_t kMostApart = int64_t{1} << 40;
  if (how == Rounding::ToEven || !is_symbolic_float(o) || !find(o)) return std::nullopt;
  const Deferred found = *find(o);
  if (!found.function || !found.function.is(member_of<"math", "log2">())) return std::nullopt;
  const auto x = is_of_sizes(o) ? whole(found.parts[0]) : std::nullopt;
  const auto facts = graphs().recorder().facts();
  if (!x || !facts->decide(sym::at_most(1, *x)) || !facts->decide(sym::at_most(*x, kMostApart)))
    return std::nullopt;
  return symbolic_int(how == Rounding::Up ? sym::bit_length(*x - 1) : sym::bit_length(*x) - 1,
                      facts);
}

// What a function makes of a float that each call computes, as an int that each call computes.
py::object Numbers::computed_int(const py::object& function, const py::object& o) {
  if (is_of_data(o) || !is_runtime_number(o)) return {};
  std::vector<sym::Expr> of_sizes;
  NumberTree number{.function = function};
  number.parts.push_back(number_tree(o, &of_sizes));
  const py::object value = owned(PyObject_CallOneArg(function.ptr(), typed(o).ptr()));
  if (!value) return PyErr_Clear(), py::object();
  return sizes().computed_number(std::move(number), std::move(of_sizes), o, value);
}

std::optional<py::object> Numbers::rounded(const py::object& function, const py::object& o,
                                           Rounding how) {
  try {
    if (auto logarithm = rounded_logarithm(o, how)) return logarithm;
    const auto number = size_float(o);
    const auto e = number ? number->rounded(how) : std::nullopt;
    if (e) return symbolic_int(*e, number->facts());
  } catch (const InternalError&) {  // numbers that no expression holds
  }
  if (!is_symbolic_float(o)) return std::nullopt;
  if (auto number = computed_int(function, o)) return number;
  const py::object answer = guarded_answer(function, {o});
  return answer ? std::optional(answer) : std::nullopt;
}

py::object Numbers::guarded_answer(const py::object& function, const Arguments& parts) {
  Arguments reals;
  for (const py::object& part : parts) {
    draws().note_look(first_source(part));
    if (is_of_data(part) || (is_symbolic_int(part) && !has_hint(part))) return {};
    reals.push_back(typed(part));
    if (!is_number(reals.back().ptr())) return {};
  }
  const py::object answer = owned(PyObject_CallObject(function.ptr(), tuple_of(reals).ptr()));
  if (!answer) return PyErr_Clear(), py::object();
  asked_.push_back({function, parts, answer, stack_text(frames().user_stack())});
  return answer;
}

namespace {

// "gt(sqrt(s0), 1.3)", with the numbers of this call.
std::string text_of_question(const NumberTree& tree, const std::vector<std::string>& sizes) {
  if (tree.constant) return py::repr(tree.constant).cast<std::string>();
  if (!tree.function) return tree.size ? sizes[tree.fetched] : "a number";
  std::string out = cat(text(tree.function.attr("__name__")), "(");
  for (const NumberTree& part : tree.parts)
    cat_to(out, &part == tree.parts.data() ? "" : ", ", text_of_question(part, sizes));
  return out + ")";
}

}  // namespace

void Numbers::make_guards() {
  for (const Asked& a : asked_) {
    NumberTree question{.function = a.function};
    for (const py::object& part : a.parts) question.parts.push_back(number_tree(part));
    const std::string what =
        cat(text_of_question(question, sizes().wanted_texts()),
            a.answer ? cat(" == ", py::repr(a.answer).cast<std::string>()) : " is a float");
    guards.push_back({std::move(question), a.answer, what, a.where});
  }
}

void Numbers::read_asked() {
  for (const Asked& a : std::exchange(asked_, {}))
    for (const py::object& part : a.parts) with_numbers(read(part));
}

// A float of sizes against a number.
std::optional<py::object> Numbers::compare_sizes(const py::object& a, const py::object& b,
                                                 int operation) {
  if (!have_runtime_numbers() || !a || !b || (!is_symbolic_float(a) && !is_symbolic_float(b)))
    return std::nullopt;
  if (is_of_data(a) || is_of_data(b) || (!is_of_sizes(a) && !is_of_sizes(b))) return std::nullopt;
  const bool left = is_symbolic_float(a);
  const py::object& other = left ? b : a;
  static constexpr int swapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  const int seen = left ? operation : swapped[operation];
  try {
    if (const auto number = size_float(left ? a : b)) {
      const auto e = whole(other);
      const auto answer = e ? number->compared(*e, seen)
                          : PyFloat_CheckExact(other.ptr())
                              ? number->compared(PyFloat_AS_DOUBLE(other.ptr()), seen)
                              : std::nullopt;
      if (answer) return symbolic_bool(*answer, sym::print(*answer), number->facts());
    }
  } catch (const InternalError&) {  // numbers that no expression holds
  }
  static const auto& functions = *new std::array{
      member_of<"operator", "lt">(), member_of<"operator", "le">(), member_of<"operator", "eq">(),
      member_of<"operator", "ne">(), member_of<"operator", "gt">(), member_of<"operator", "ge">()};
  const py::object answer = guarded_answer(functions.at(static_cast<size_t>(operation)), {a, b});
  return answer ? std::optional(answer) : std::nullopt;
}

Numbers::~Numbers() {
  for (const auto& [number, deferred] : deferred_)
    if (is_symbolic_float(number)) disown(number);
}

// Code written in C asks: a Break does not pass it.
py::object Numbers::guarded_float(const py::object& symbolic) {
  if (is_of_data(symbolic)) throw sym::Undecided(cat(data_text(symbolic), " is asked for"));
  return read(symbolic);
}

py::object Numbers::combined(const py::object& function, const Arguments& args) {
  const auto name = text(function.attr("__name__"));
  if (auto number = float_of_sizes(name, function, args)) return *number;
  if (std::ranges::any_of(args, [this](const py::object& a) { return is_of_data(a); })) return {};
  if (name == "neg") return *negate_deferred(args[0]);
  if (args.size() != 2 || !std::ranges::all_of(args, [this](const py::object& a) {
        return is_number(real_of(a).ptr());
      }))
    return {};
  static constexpr std::string_view kArithmetic[] = {"add", "sub", "mul", "iadd", "isub", "imul"};
  const bool divides = name == "truediv" || name == "itruediv";
  const bool computable = std::ranges::find(kArithmetic, name) != std::end(kArithmetic) ||
                          (divides && is_nonzero(args[1]));
  if (!computable) return {};
  return compute_deferred(function, args[0], args[1]).value_or(py::object());
}

py::object Numbers::compared(const py::object& a, const py::object& b, int operation) {
  if (auto answer = compare_deferred(a, b, operation)) return *answer;
  return compare_sizes(a, b, operation).value_or(py::object());
}

// Whether a comparison of what is in them may find the same NaN, which is told by its identity: of
// floats that vary nobody knows.
bool Numbers::may_share_nan(const py::object& a, const py::object& b) {
  if (deferred_.empty()) return false;
  auto may_be_nan = [](py::handle o) { return is_symbolic_float(o) || is_nan(o.ptr()); };
  return mentions(a, may_be_nan, false) && mentions(b, may_be_nan, false) &&
         (mentions(a, is_symbolic_float, false) || mentions(b, is_symbolic_float, false));
}

// `o` with the floats in it as plain ones.
py::object Numbers::with_plain_floats(const py::object& o) {
  if (deferred_.empty()) return o;
  if (is_symbolic_float(o)) return read(o);
  const bool some = mentions(o, is_symbolic_float, false);
  return some ? with_items(o, [this](const py::object& item) { return with_plain_floats(item); })
              : o;
}

}  // namespace oxy::python
