// The class and its arithmetic.
#include "python/symbolic_int.h"

#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <cmath>

#include "python/symbolic_slots.h"
#include "support/check.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {
namespace {

using sym::Expr;
using Facts = std::shared_ptr<sym::ShapeFacts>;

PyTypeObject* symbolic_int_type();

PyObject* node_name() {
  static PyObject* const name = PyUnicode_InternFromString("node");
  return name;
}

c10::SymInt sym_int_of(py::handle o) {
  const py::object node = steal(PyObject_GenericGetAttr(o.ptr(), node_name()));
  return c10::SymInt(node.cast<c10::SymNode>());
}

// An operand of an operator.
struct Operand {
  Expr expr = 0;
  Facts facts;  // null for a plain int
};

std::optional<Operand> operand(PyObject* o) {
  const auto e = integer_expr(o);
  if (!e) return std::nullopt;
  return Operand{*e, is_symbolic_int(o) ? bridge::facts_of(sym_int_of(o)) : nullptr};
}

bool is_number_like(PyObject* o) {
  return is_symbolic_int(o) || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o);
}

py::object plain(PyObject* o) {
  return is_symbolic_int(o) || is_symbolic_bool(o) ? number_of(o, true) : borrow(o);
}

using OnExprs = std::optional<Expr> (*)(Expr a, Expr b, const Facts& facts);

// The operator on expressions where both operands are integers and it has one, else on the numbers.
// A symbolic float knows better.
template <OnExprs on_exprs, binaryfunc on_numbers>
PyObject* binary(PyObject* a, PyObject* b) {
  auto body = [=]() -> PyObject* {
    const auto x = operand(a), y = operand(b);
    if (x && y) {
      const Facts& facts = x->facts ? x->facts : y->facts;
      std::optional<Expr> e;
      try {
        e = on_exprs(x->expr, y->expr, facts);
      } catch (const InternalError&) {  // numbers that no expression holds
      }
      if (e) return symbolic_int(*e, facts).release().ptr();
    }
    if (!is_number_like(a) || !is_number_like(b)) return Py_NewRef(Py_NotImplemented);
    return on_numbers(plain(a).ptr(), plain(b).ptr());
  };
  return boundary(body, nullptr);
}

std::optional<Expr> sum_of(Expr a, Expr b, const Facts&) { return a + b; }
std::optional<Expr> difference_of(Expr a, Expr b, const Facts&) { return a - b; }
std::optional<Expr> product_of(Expr a, Expr b, const Facts&) { return a * b; }
std::optional<Expr> no_expression(Expr, Expr, const Facts&) { return std::nullopt; }

bool decide(const Facts& facts, const sym::Condition& c, const std::string& text) {
  return facts->decide_for_code(c, text);
}

bool may_divide(Expr b, const Facts& facts) {
  return !decide(facts, sym::equal(b, 0), cat(b, " == 0"));
}
std::optional<Expr> floor_divide(Expr a, Expr b, const Facts& facts) {
  return may_divide(b, facts) ? std::optional(sym::floordiv(a, b)) : std::nullopt;
}
std::optional<Expr> remainder(Expr a, Expr b, const Facts& facts) {
  return may_divide(b, facts) ? std::optional(sym::mod(a, b)) : std::nullopt;
}

// A power of a number, where it is an int that is not too large for more arithmetic.
constexpr double kMostBits = 56;
std::optional<Expr> power_of(int64_t base, Expr exponent, const Facts& facts) {
  if (base < 2) return std::nullopt;
  const auto most = static_cast<int64_t>(kMostBits / std::log2(static_cast<double>(base)));
  if (!decide(facts, sym::at_most(0, exponent), cat(exponent, " >= 0")) ||
      !decide(facts, sym::at_most(exponent, most), cat(exponent, " <= ", most)))
    return std::nullopt;
  return sym::power(base, exponent);
}
Expr sign_of_power(Expr exponent) { return Expr(1) - 2 * sym::mod(exponent, 2); }  // of -1
std::optional<Expr> shift_left(Expr a, Expr b, const Facts& facts) {
  const auto factor = power_of(2, b, facts);
  return factor ? std::optional(a * *factor) : std::nullopt;
}
std::optional<Expr> shift_right(Expr a, Expr b, const Facts& facts) {
  const auto divisor = power_of(2, b, facts);
  return divisor ? std::optional(sym::floordiv(a, *divisor)) : std::nullopt;
}
std::optional<Expr> bits_of_both(Expr a, Expr b, const Facts&) { return sym::bit_and(a, b); }
std::optional<Expr> bits_of_either(Expr a, Expr b, const Facts&) { return sym::bit_or(a, b); }
std::optional<Expr> bits_of_one(Expr a, Expr b, const Facts&) { return sym::bit_xor(a, b); }

std::optional<Expr> raised(Expr a, Expr b, const Facts& facts) {
  constexpr int64_t kMostFactors = 8;
  if (a.is_const()) {
    const int64_t base = a.value();
    if (base >= 0) return power_of(base, b, facts);
    if (base < -1) {
      const auto size = power_of(-base, b, facts);
      return size ? std::optional(*size * sign_of_power(b)) : std::nullopt;
    }
    const bool whole = decide(facts, sym::at_most(0, b), cat(b, " >= 0"));
    return whole ? std::optional(sign_of_power(b)) : std::nullopt;
  }
  if (!b.is_const() || b.value() < 0 || b.value() > kMostFactors) return std::nullopt;
  Expr e = 1;
  for (int64_t i = 0; i < b.value(); i++) e *= a;
  return e;
}
PyObject* raised_to(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

PyObject* power_slot(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None) return binary<raised, raised_to>(a, b);
  auto body = [=]() -> PyObject* {
    if (!is_number_like(a) || !is_number_like(b)) return Py_NewRef(Py_NotImplemented);
    return PyNumber_Power(plain(a).ptr(), plain(b).ptr(), plain(modulus).ptr());
  };
  return boundary(body, nullptr);
}

PyObject* bit_length(PyObject* o, PyObject*) {
  auto body = [=] {
    const Operand x = *operand(o);
    return symbolic_int(sym::bit_length(x.expr), x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

// What an int that is no bool gives of itself.
PyObject* itself_as_method(PyObject* o, PyObject*) {
  return boundary([=] { return Py_NewRef(o); }, nullptr);
}
PyObject* itself_as_member(PyObject* o, void*) {
  return boundary([=] { return Py_NewRef(o); }, nullptr);
}
template <int value>
PyObject* constant_member(PyObject*, void*) {
  return boundary([] { return PyLong_FromLong(value); }, nullptr);
}
PyObject* ratio(PyObject* o, PyObject*) {
  return boundary([=] { return Py_BuildValue("(Oi)", o, 1); }, nullptr);
}

PyObject* negative(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return symbolic_int(-x.expr, x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

PyObject* absolute_of(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return symbolic_int(sym::max(x.expr, -x.expr), x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

PyObject* inverted(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return symbolic_int(-x.expr - Expr(1), x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

int truth_of(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return decide(x.facts, sym::not_equal(x.expr, 0), cat(x.expr, " != 0")) ? 1 : 0;
  };
  return boundary(body, -1);
}

PyObject* as_index(PyObject* o) {
  return boundary([=] { return number_of(o, true).release().ptr(); }, nullptr);
}

PyObject* format(PyObject* o, PyObject* spec) {
  return boundary([=] { return PyObject_Format(plain(o).ptr(), spec); }, nullptr);
}

constexpr const char* kComparisonWords[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};

sym::Condition condition(Expr a, Expr b, int operation) {
  switch (operation) {
    case Py_LT:
      return sym::less(a, b);
    case Py_LE:
      return sym::at_most(a, b);
    case Py_EQ:
      return sym::equal(a, b);
    case Py_NE:
      return sym::not_equal(a, b);
    case Py_GT:
      return sym::less(b, a);
    default:
      return sym::at_most(b, a);
  }
}

// Of an int and a float, as the ints next to that say it; nothing where it is too large.
std::optional<py::object> compare_with_float(const Operand& x, double number, int operation) {
  constexpr double kMost = 0x1p62;
  if (std::isnan(number) || std::isinf(number) ||
      ((operation == Py_EQ || operation == Py_NE) && number != std::floor(number)))
    return steal(PyObject_RichCompare(py::int_(0).ptr(), py::float_(number).ptr(), operation));
  if (std::abs(number) > kMost) return std::nullopt;
  const bool up = operation == Py_LT || operation == Py_GE;
  const Expr left = x.facts->simplify(x.expr);
  const auto right = static_cast<int64_t>(up ? std::ceil(number) : std::floor(number));
  return symbolic_bool(condition(left, right, operation),
                       cat(left, kComparisonWords[operation], right), x.facts);
}

PyObject* compare_as(PyObject* a, PyObject* b, int operation) {
  auto body = [=]() -> PyObject* {
    const auto x = operand(a), y = operand(b);
    if (x && y) {
      const Facts& facts = x->facts ? x->facts : y->facts;
      const Expr left = facts->simplify(x->expr), right = facts->simplify(y->expr);
      return symbolic_bool(condition(left, right, operation),
                           cat(left, kComparisonWords[operation], right), facts)
          .release()
          .ptr();
    }
    if (x && PyFloat_CheckExact(b))
      if (auto answer = compare_with_float(*x, PyFloat_AS_DOUBLE(b), operation))
        return answer->release().ptr();
    if (!is_number_like(a) || !is_number_like(b)) return Py_NewRef(Py_NotImplemented);
    return PyObject_RichCompare(plain(a).ptr(), plain(b).ptr(), operation);
  };
  return boundary(body, nullptr);
}

// ---- truths

PyTypeObject* symbolic_bool_type();

PyObject* question_name() {
  static PyObject* const name = PyUnicode_InternFromString("_oxyfuel_text");
  return name;
}

c10::SymBool sym_bool_of(py::handle o) {
  const py::object node = steal(PyObject_GenericGetAttr(o.ptr(), node_name()));
  return c10::SymBool(node.cast<c10::SymNode>());
}

std::string question_of(py::handle o) {
  if (!is_symbolic_bool(o)) return o.ptr() == Py_True ? "True" : "False";
  return steal(PyObject_GenericGetAttr(o.ptr(), question_name())).cast<std::string>();
}

bool truth(PyObject* o) {
  const c10::SymBool b = sym_bool_of(o);
  return decide(bridge::facts_of(b), bridge::condition_of(b), question_of(o));
}

// & and | of truths, plain ones too.
template <sym::Condition (*joined)(const sym::Condition&, const sym::Condition&),
          binaryfunc on_bools>
PyObject* join_truths(PyObject* a, PyObject* b) {
  auto is_truth = [](PyObject* o) { return PyBool_Check(o) || is_symbolic_bool(o); };
  auto body = [=]() -> PyObject* {
    if (!is_truth(a) || !is_truth(b)) return on_bools(plain(a).ptr(), plain(b).ptr());
    auto condition = [](PyObject* o) {
      return is_symbolic_bool(o) ? condition_of(o) : sym::constant_condition(o == Py_True);
    };
    const char* word = on_bools == PyNumber_And ? " & " : " | ";
    return symbolic_bool(joined(condition(a), condition(b)),
                         cat("(", question_of(a), ")", word, "(", question_of(b), ")"),
                         bridge::facts_of(sym_bool_of(is_symbolic_bool(a) ? a : b)))
        .release()
        .ptr();
  };
  return boundary(body, nullptr);
}

int truth_of_bool(PyObject* o) {
  return boundary([=] { return truth(o) ? 1 : 0; }, -1);
}

PyObject* compare_bool(PyObject* a, PyObject* b, int operation) {
  auto body = [=] { return PyObject_RichCompare(plain(a).ptr(), plain(b).ptr(), operation); };
  return boundary(body, nullptr);
}

PyTypeObject* symbolic_bool_type() {
  static PyTypeObject* const type = [] {
    PyType_Slot slots[] = {slot(Py_nb_and, join_truths<sym::both, PyNumber_And>),
                           slot(Py_nb_or, join_truths<sym::either, PyNumber_Or>),
                           slot(Py_nb_xor, of_numbers<plain, PyNumber_Xor>),
                           slot(Py_nb_add, of_numbers<plain, PyNumber_Add>),
                           slot(Py_nb_subtract, of_numbers<plain, PyNumber_Subtract>),
                           slot(Py_nb_multiply, of_numbers<plain, PyNumber_Multiply>),
                           slot(Py_nb_bool, truth_of_bool),
                           slot(Py_nb_invert, of_number<plain, PyNumber_Invert>),
                           slot(Py_nb_int, of_number<plain, PyNumber_Long>),
                           slot(Py_nb_index, of_number<plain, PyNumber_Index>),
                           slot(Py_nb_float, of_number<plain, PyNumber_Float>),
                           slot(Py_tp_hash, hash_of_number<plain>),
                           slot(Py_tp_repr, of_number<plain, PyObject_Repr>),
                           slot(Py_tp_str, of_number<plain, PyObject_Str>),
                           slot(Py_tp_richcompare, compare_bool),
                           {0, nullptr}};
    PyType_Spec spec = {"oxyfuel._C.SymbolicBool", 0, 0, Py_TPFLAGS_DEFAULT, slots};
    const py::tuple bases = py::make_tuple(member_of<"torch", "SymBool">());
    return as_type(steal(PyType_FromSpecWithBases(&spec, bases.ptr())).release());
  }();
  return type;
}

PyTypeObject* symbolic_int_type() {
  constexpr int kBeforeSlots = METH_NOARGS | METH_COEXIST;
  static PyMethodDef methods[] = {{"__format__", format, METH_O, nullptr},
                                  {"bit_length", bit_length, METH_NOARGS, nullptr},
                                  {"conjugate", itself_as_method, METH_NOARGS, nullptr},
                                  {"__index__", itself_as_method, kBeforeSlots, nullptr},
                                  {"__int__", itself_as_method, kBeforeSlots, nullptr},
                                  {"__trunc__", itself_as_method, METH_NOARGS, nullptr},
                                  {"__floor__", itself_as_method, METH_NOARGS, nullptr},
                                  {"__ceil__", itself_as_method, METH_NOARGS, nullptr},
                                  {"as_integer_ratio", ratio, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyGetSetDef members[] = {{"real", itself_as_member, nullptr, nullptr, nullptr},
                                  {"numerator", itself_as_member, nullptr, nullptr, nullptr},
                                  {"imag", constant_member<0>, nullptr, nullptr, nullptr},
                                  {"denominator", constant_member<1>, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyTypeObject* const type = [] {
    PyType_Slot slots[] = {slot(Py_nb_add, binary<sum_of, PyNumber_Add>),
                           slot(Py_nb_subtract, binary<difference_of, PyNumber_Subtract>),
                           slot(Py_nb_multiply, binary<product_of, PyNumber_Multiply>),
                           slot(Py_nb_floor_divide, binary<floor_divide, PyNumber_FloorDivide>),
                           slot(Py_nb_remainder, binary<remainder, PyNumber_Remainder>),
                           slot(Py_nb_true_divide, binary<no_expression, PyNumber_TrueDivide>),
                           slot(Py_nb_divmod, binary<no_expression, PyNumber_Divmod>),
                           slot(Py_nb_lshift, binary<shift_left, PyNumber_Lshift>),
                           slot(Py_nb_rshift, binary<shift_right, PyNumber_Rshift>),
                           slot(Py_nb_and, binary<bits_of_both, PyNumber_And>),
                           slot(Py_nb_or, binary<bits_of_either, PyNumber_Or>),
                           slot(Py_nb_xor, binary<bits_of_one, PyNumber_Xor>),
                           slot(Py_nb_power, power_slot),
                           slot(Py_nb_negative, negative),
                           slot(Py_nb_positive, itself),
                           slot(Py_nb_absolute, absolute_of),
                           slot(Py_nb_invert, inverted),
                           slot(Py_nb_bool, truth_of),
                           slot(Py_nb_int, as_index),
                           slot(Py_nb_index, as_index),
                           slot(Py_nb_float, of_number<plain, PyNumber_Float>),
                           slot(Py_tp_hash, hash_of_number<plain>),
                           slot(Py_tp_repr, of_number<plain, PyObject_Repr>),
                           slot(Py_tp_str, of_number<plain, PyObject_Str>),
                           slot(Py_tp_richcompare, compare_as),
                           slot(Py_tp_methods, methods),
                           slot(Py_tp_getset, members),
                           {0, nullptr}};
    PyType_Spec spec = {"oxyfuel._C.SymbolicInt", 0, 0, Py_TPFLAGS_DEFAULT, slots};
    const py::tuple bases = py::make_tuple(member_of<"torch", "SymInt">());
    return as_type(steal(PyType_FromSpecWithBases(&spec, bases.ptr())).release());
  }();
  return type;
}

}  // namespace

bool is_undecided(const py::error_already_set& e) {
  return e.matches(member_of<"oxyfuel._C", "Undecided">());
}
std::string question_of(const py::error_already_set& e) {
  return py::str(e.value()).cast<std::string>();
}

bool is_symbolic_int(py::handle o) { return Py_TYPE(o.ptr()) == symbolic_int_type(); }
bool is_own_of_size(std::string_view attribute) {
  constexpr std::string_view kOwn[] = {
      "bit_length", "conjugate", "real",      "numerator", "imag",     "denominator",
      "__index__",  "__int__",   "__trunc__", "__floor__", "__ceil__", "as_integer_ratio"};
  return std::ranges::find(kOwn, attribute) != std::end(kOwn);
}
bool is_symbolic_bool(py::handle o) { return Py_TYPE(o.ptr()) == symbolic_bool_type(); }

py::object symbolic_bool(const sym::Condition& c, const std::string& text, const Facts& facts) {
  if (const std::optional<bool> known = facts->known(c)) return py::bool_(*known);
  if (sym::origin_of(facts->simplify(c)) == sym::Origin::Hinted) return py::bool_(facts->decide(c));
  PyTypeObject* type = symbolic_bool_type();
  py::object out = steal(type->tp_alloc(type, 0));
  const py::object node = py::cast(bridge::to_sym_bool(c, facts).toSymNodeImpl());
  check(PyObject_GenericSetAttr(out.ptr(), node_name(), node.ptr()));
  check(PyObject_GenericSetAttr(out.ptr(), question_name(), py::str(text).ptr()));
  return out;
}

sym::Condition condition_of(py::handle symbolic) {
  return bridge::condition_of(sym_bool_of(symbolic));
}

Expr as_number(const sym::Condition& c) {
  using Form = sym::Condition::Kind;
  const Expr d = c.difference;
  switch (c.kind) {
    case Form::Constant:
      return c.value ? 1 : 0;
    case Form::AtMost:
      return Expr(1) - sym::max(0, sym::min(1, d));
    case Form::Equal:
      return Expr(1) - sym::min(1, sym::max(d, -d));
    case Form::NotEqual:
      return sym::min(1, sym::max(d, -d));
    case Form::And:
    case Form::Or:
      break;
  }
  Expr out = as_number(c.parts[0]);
  for (const sym::Condition& part : std::span(c.parts).subspan(1))
    out = c.kind == Form::And ? sym::min(out, as_number(part)) : sym::max(out, as_number(part));
  return out;
}

py::object symbolic_int(Expr e, const Facts& facts) {
  e = facts->simplify(e);
  if (e.is_const()) return py::int_(e.value());
  PyTypeObject* type = symbolic_int_type();
  py::object out = steal(type->tp_alloc(type, 0));
  const py::object node = py::cast(bridge::to_sym_int(e, facts).toSymNode());
  check(PyObject_GenericSetAttr(out.ptr(), node_name(), node.ptr()));
  return out;
}

bool has_hint(py::handle symbolic) {
  return sym::origin_of(expr_of(symbolic)) == sym::Origin::Hinted;
}

Expr expr_of(py::handle symbolic) { return bridge::expr_of(sym_int_of(symbolic)); }

std::optional<Expr> integer_expr(py::handle o) {
  if (is_symbolic_int(o)) return expr_of(o);
  if (!PyLong_Check(o.ptr())) return std::nullopt;
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(o.ptr(), &overflow);
  constexpr int64_t kMost = Expr::kMaxConst / 4;
  if (overflow != 0 || value > kMost || value < -kMost) return std::nullopt;
  return value;
}

py::object number_of(py::handle symbolic, bool pinned) {
  if (is_symbolic_bool(symbolic)) {
    const int yes = PyObject_IsTrue(symbolic.ptr());
    check(yes);
    return py::bool_(yes == 1);
  }
  const c10::SymInt s = sym_int_of(symbolic);
  if (pinned) return py::int_(bridge::facts_of(s)->pin(bridge::expr_of(s)));
  return py::int_(bridge::hint_of(s));
}

}  // namespace oxy::python
