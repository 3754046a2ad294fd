// The class and its slots.
#include "python/symbolic_float.h"

#include "python/symbolic_slots.h"
#include "support/check.h"

namespace oxy::python {
namespace {

struct SymbolicFloat {
  PyObject_HEAD FloatOwner* owner;
};

bool is_real(PyObject* o) {
  return is_symbolic_float(o) || is_symbolic_int(o) || PyLong_Check(o) || PyFloat_Check(o) ||
         PyComplex_Check(o);
}

py::object plain_float(PyObject* o) { return is_symbolic(o) ? guarded_number(o) : borrow(o); }

FloatOwner& owner_among(PyObject* a, PyObject* b) { return owner_of(is_symbolic_float(a) ? a : b); }

// Of two numbers: what the owner makes of them, else what `on_numbers` does.
template <Literal name, binaryfunc on_numbers>
PyObject* with_owner(PyObject* a, PyObject* b) {
  auto body = [=]() -> PyObject* {
    if (!is_real(a) || !is_real(b)) return Py_NewRef(Py_NotImplemented);
    const py::object& function = member_of<"operator", name>();
    if (py::object made = owner_among(a, b).combined(function, {borrow(a), borrow(b)}))
      return made.release().ptr();
    return on_numbers(plain_float(a).ptr(), plain_float(b).ptr());
  };
  return boundary(body, nullptr);
}

PyObject* to_power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

PyObject* power_of_float(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None) return with_owner<"pow", to_power>(a, b);
  auto body = [=] {
    return PyNumber_Power(plain_float(a).ptr(), plain_float(b).ptr(), plain_float(modulus).ptr());
  };
  return boundary(body, nullptr);
}

template <Literal name, unaryfunc on_number>
PyObject* unary(PyObject* o) {
  auto body = [=] {
    py::object made = owner_of(o).combined(member_of<"operator", name>(), {borrow(o)});
    return made ? made.release().ptr() : on_number(plain_float(o).ptr());
  };
  return boundary(body, nullptr);
}

py::object answer(PyObject* a, PyObject* b, int operation) {
  return owner_among(a, b).compared(borrow(a), borrow(b), operation);
}

PyObject* compare_float(PyObject* a, PyObject* b, int operation) {
  auto body = [=]() -> PyObject* {
    if (!is_real(a) || !is_real(b)) return Py_NewRef(Py_NotImplemented);
    if (py::object known = answer(a, b, operation)) return known.release().ptr();
    return PyObject_RichCompare(plain_float(a).ptr(), plain_float(b).ptr(), operation);
  };
  return boundary(body, nullptr);
}

int truth_of_float(PyObject* o) {
  auto body = [=] {
    const py::float_ zero(0.0);
    const py::object known = answer(o, zero.ptr(), Py_NE);
    return PyObject_IsTrue(known ? known.ptr() : plain_float(o).ptr());
  };
  return boundary(body, -1);
}

PyObject* format_float(PyObject* o, PyObject* spec) {
  return boundary([=] { return PyObject_Format(plain_float(o).ptr(), spec); }, nullptr);
}

PyTypeObject* symbolic_float_type() {
  static PyMethodDef methods[] = {{"__format__", format_float, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyTypeObject* const type = [] {
    PyType_Slot slots[] = {slot(Py_nb_add, with_owner<"add", PyNumber_Add>),
                           slot(Py_nb_subtract, with_owner<"sub", PyNumber_Subtract>),
                           slot(Py_nb_multiply, with_owner<"mul", PyNumber_Multiply>),
                           slot(Py_nb_true_divide, with_owner<"truediv", PyNumber_TrueDivide>),
                           slot(Py_nb_floor_divide, with_owner<"floordiv", PyNumber_FloorDivide>),
                           slot(Py_nb_remainder, with_owner<"mod", PyNumber_Remainder>),
                           slot(Py_nb_divmod, of_numbers<plain_float, PyNumber_Divmod>),
                           slot(Py_nb_power, power_of_float),
                           slot(Py_nb_negative, unary<"neg", PyNumber_Negative>),
                           slot(Py_nb_positive, itself),
                           slot(Py_nb_absolute, unary<"abs", PyNumber_Absolute>),
                           slot(Py_nb_bool, truth_of_float),
                           slot(Py_nb_int, of_number<plain_float, PyNumber_Long>),
                           slot(Py_nb_float, of_number<plain_float, PyNumber_Float>),
                           slot(Py_tp_hash, hash_of_number<plain_float>),
                           slot(Py_tp_repr, of_number<plain_float, PyObject_Repr>),
                           slot(Py_tp_str, of_number<plain_float, PyObject_Str>),
                           slot(Py_tp_richcompare, compare_float),
                           slot(Py_tp_methods, methods),
                           {0, nullptr}};
    PyType_Spec spec = {"oxyfuel._C.SymbolicFloat", sizeof(SymbolicFloat), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return as_type(steal(PyType_FromSpec(&spec)).release());
  }();
  return type;
}

}  // namespace

bool is_symbolic_float(py::handle o) { return Py_TYPE(o.ptr()) == symbolic_float_type(); }

py::object guarded_number(py::handle symbolic) {
  return is_symbolic_float(symbolic) ? owner_of(symbolic).guarded_float(borrow(symbolic))
                                     : number_of(symbolic, true);
}

py::object symbolic_float(FloatOwner& owner) {
  PyTypeObject* type = symbolic_float_type();
  py::object out = steal(type->tp_alloc(type, 0));
  reinterpret_cast<SymbolicFloat*>(out.ptr())->owner = &owner;
  return out;
}

void disown(py::handle symbolic) {
  reinterpret_cast<SymbolicFloat*>(symbolic.ptr())->owner = nullptr;
}

FloatOwner& owner_of(py::handle symbolic) {
  FloatOwner* owner = reinterpret_cast<SymbolicFloat*>(symbolic.ptr())->owner;
  OXY_CHECK(owner != nullptr, "a number whose capture is over");
  return *owner;
}

}  // namespace oxy::python
