"""The check of what C calls finds callbacks that let exceptions out, and none in the project."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_boundaries  # noqa: E402

BODY = "PyObject* f(PyObject* o, PyObject*) {\n  return %s;\n}\n"
PLAIN, BOUND = BODY % "work(o)", BODY % "boundary([=] { return work(o); }, nullptr)"
PLACES = [
    'PyMethodDef m[] = {{"f", f, METH_NOARGS, nullptr}};',
    'static PyMethodDef m = {"f", f, METH_VARARGS, nullptr};',
    "m = {name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_O};",
    "PyType_Slot s[] = {{Py_tp_repr, reinterpret_cast<void*>(f)}, {0, nullptr}};",
    "self->vectorcall = f;",
    "old = std::exchange(row->set, f);",
    "row->get = f;",
    "type.tp_dealloc = f;",
    "type->tp_as_number->nb_add = reinterpret_cast<binaryfunc>(f);",
    'PyGetSetDef g[] = {{"a", nullptr, nullptr, nullptr, nullptr}, '
    '{"b", f, nullptr, "b", nullptr}};',
    'static PyGetSetDef g[] = {{"a", nullptr, reinterpret_cast<setter>(f), nullptr, nullptr}, {}};',
    'PyGetSetDef g = {"a", f, nullptr, nullptr, nullptr};',
    "_PyInterpreterState_SetEvalFrameFunc(state->interp, f);",
]


@pytest.mark.parametrize("place", PLACES)
def test_finds_functions(place):
    assert [what for _, what in check_boundaries.problems(PLAIN + place)] == [
        "f is called by C and has no boundary"
    ]
    assert not list(check_boundaries.problems(BOUND + place))


def test_leaves_what_is_no_function():
    for text in (
        "type->tp_flags = f;",
        "type->tp_dictoffset = f;",
        "if (type->tp_new == f) return;",
        'PyMemberDef m[] = {{"a", T_OBJECT, offsetof(A, b), READONLY, nullptr}};',
        'PyGetSetDef g[] = {{"a", nullptr, nullptr, "f", f}};',
    ):
        assert not list(check_boundaries.problems(PLAIN + text)), text


def test_finds_lambdas():
    text = "PyCapsule_New(p.release(), nullptr, [](PyObject* c) { %s });"
    assert list(check_boundaries.problems(text % "delete get(c);"))
    assert not list(check_boundaries.problems(text % "boundary([=] { delete get(c); });"))


def test_the_project():
    assert check_boundaries.check(ROOT) == []
