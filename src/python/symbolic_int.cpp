// The class and its arithmetic.
#include "python/symbolic_int.h"

#include <torch/csrc/utils/python_symnode.h>

#include "python/cpython/boundary.h"
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

bool is_int_like(PyObject* o) {
  return is_symbolic_int(o) || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o);
}

py::object plain(PyObject* o) { return is_symbolic_int(o) ? number_of(o, true) : borrow(o); }

using OnExprs = std::optional<Expr> (*)(Expr a, Expr b, const Facts& facts);

// The operator on expressions where both operands are integers and it has one, else on the numbers.
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
    if (!is_int_like(a) || !is_int_like(b)) return Py_NewRef(Py_NotImplemented);
    return on_numbers(plain(a).ptr(), plain(b).ptr());
  };
  return boundary(body, nullptr);
}

std::optional<Expr> sum_of(Expr a, Expr b, const Facts&) { return a + b; }
std::optional<Expr> difference_of(Expr a, Expr b, const Facts&) { return a - b; }
std::optional<Expr> product_of(Expr a, Expr b, const Facts&) { return a * b; }
std::optional<Expr> no_expression(Expr, Expr, const Facts&) { return std::nullopt; }

bool may_divide(Expr b, const Facts& facts) { return !facts->decide(sym::equal(b, 0)); }
std::optional<Expr> floor_divide(Expr a, Expr b, const Facts& facts) {
  return may_divide(b, facts) ? std::optional(sym::floordiv(a, b)) : std::nullopt;
}
std::optional<Expr> remainder(Expr a, Expr b, const Facts& facts) {
  return may_divide(b, facts) ? std::optional(sym::mod(a, b)) : std::nullopt;
}

PyObject* power_of(PyObject* a, PyObject* b, PyObject* modulus) {
  auto body = [=]() -> PyObject* {
    constexpr long kMostFactors = 8;
    const long n = PyLong_CheckExact(b) ? PyLong_AsLong(b) : -1;
    if (n == -1) PyErr_Clear();
    if (is_symbolic_int(a) && modulus == Py_None && n >= 0 && n <= kMostFactors) {
      const Operand base = *operand(a);
      Expr e = 1;
      for (long i = 0; i < n; i++) e *= base.expr;
      return symbolic_int(e, base.facts).release().ptr();
    }
    if (!is_int_like(a) || !is_int_like(b)) return Py_NewRef(Py_NotImplemented);
    return PyNumber_Power(plain(a).ptr(), plain(b).ptr(), plain(modulus).ptr());
  };
  return boundary(body, nullptr);
}

PyObject* negative(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return symbolic_int(-x.expr, x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

PyObject* positive(PyObject* o) { return Py_NewRef(o); }

PyObject* absolute_of(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    const bool negative = x.facts->decide(sym::less(x.expr, 0));
    return symbolic_int(negative ? -x.expr : x.expr, x.facts).release().ptr();
  };
  return boundary(body, nullptr);
}

int truth_of(PyObject* o) {
  auto body = [=] {
    const Operand x = *operand(o);
    return x.facts->decide(sym::not_equal(x.expr, 0)) ? 1 : 0;
  };
  return boundary(body, -1);
}

// What a function of CPython's makes of the number.
template <PyObject* (*function)(PyObject*)>
PyObject* of_number(PyObject* o) {
  return boundary([=] { return function(number_of(o, true).ptr()); }, nullptr);
}

PyObject* as_index(PyObject* o) {
  return boundary([=] { return number_of(o, true).release().ptr(); }, nullptr);
}

PyObject* format(PyObject* o, PyObject* spec) {
  return boundary([=] { return PyObject_Format(number_of(o, true).ptr(), spec); }, nullptr);
}

Py_hash_t hash_of_number(PyObject* o) {
  return boundary([=] { return PyObject_Hash(number_of(o, true).ptr()); }, -1);
}

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

PyObject* compare_as(PyObject* a, PyObject* b, int operation) {
  auto body = [=]() -> PyObject* {
    const auto x = operand(a), y = operand(b);
    if (x && y) {
      const Facts& facts = x->facts ? x->facts : y->facts;
      return PyBool_FromLong(facts->decide(condition(x->expr, y->expr, operation)));
    }
    if (!is_int_like(a) || !is_int_like(b)) return Py_NewRef(Py_NotImplemented);
    return PyObject_RichCompare(plain(a).ptr(), plain(b).ptr(), operation);
  };
  return boundary(body, nullptr);
}

template <class F>
PyType_Slot slot(int id, F* function) {
  return {id, reinterpret_cast<void*>(function)};
}

PyTypeObject* symbolic_int_type() {
  static PyMethodDef methods[] = {{"__format__", format, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyTypeObject* const type = [] {
    PyType_Slot slots[] = {slot(Py_nb_add, binary<sum_of, PyNumber_Add>),
                           slot(Py_nb_subtract, binary<difference_of, PyNumber_Subtract>),
                           slot(Py_nb_multiply, binary<product_of, PyNumber_Multiply>),
                           slot(Py_nb_floor_divide, binary<floor_divide, PyNumber_FloorDivide>),
                           slot(Py_nb_remainder, binary<remainder, PyNumber_Remainder>),
                           slot(Py_nb_true_divide, binary<no_expression, PyNumber_TrueDivide>),
                           slot(Py_nb_divmod, binary<no_expression, PyNumber_Divmod>),
                           slot(Py_nb_lshift, binary<no_expression, PyNumber_Lshift>),
                           slot(Py_nb_rshift, binary<no_expression, PyNumber_Rshift>),
                           slot(Py_nb_and, binary<no_expression, PyNumber_And>),
                           slot(Py_nb_or, binary<no_expression, PyNumber_Or>),
                           slot(Py_nb_xor, binary<no_expression, PyNumber_Xor>),
                           slot(Py_nb_power, power_of),
                           slot(Py_nb_negative, negative),
                           slot(Py_nb_positive, positive),
                           slot(Py_nb_absolute, absolute_of),
                           slot(Py_nb_invert, of_number<PyNumber_Invert>),
                           slot(Py_nb_bool, truth_of),
                           slot(Py_nb_int, as_index),
                           slot(Py_nb_index, as_index),
                           slot(Py_nb_float, of_number<PyNumber_Float>),
                           slot(Py_tp_hash, hash_of_number),
                           slot(Py_tp_repr, of_number<PyObject_Repr>),
                           slot(Py_tp_str, of_number<PyObject_Str>),
                           slot(Py_tp_richcompare, compare_as),
                           slot(Py_tp_methods, methods),
                           {0, nullptr}};
    PyType_Spec spec = {"oxyfuel._C.SymbolicInt", 0, 0, Py_TPFLAGS_DEFAULT, slots};
    const py::tuple bases = py::make_tuple(member_of<"torch", "SymInt">());
    return as_type(steal(PyType_FromSpecWithBases(&spec, bases.ptr())).release());
  }();
  return type;
}

}  // namespace

bool is_symbolic_int(py::handle o) { return Py_TYPE(o.ptr()) == symbolic_int_type(); }

py::object symbolic_int(Expr e, const Facts& facts) {
  e = facts->simplify(e);
  if (e.is_const()) return py::int_(e.value());
  PyTypeObject* type = symbolic_int_type();
  py::object out = steal(type->tp_alloc(type, 0));
  const py::object node = py::cast(bridge::to_sym_int(e, facts).toSymNode());
  check(PyObject_GenericSetAttr(out.ptr(), node_name(), node.ptr()));
  return out;
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
  const c10::SymInt s = sym_int_of(symbolic);
  if (pinned) return py::int_(bridge::facts_of(s)->pin(bridge::expr_of(s)));
  return py::int_(bridge::hint_of(s));
}

}  // namespace oxy::python
