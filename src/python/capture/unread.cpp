// Numbers and other constants that captured code only carries about: an argument that it hands on,
// a counter that it adds to and writes back. An object of no class stands for one, and the call's
// own value takes its place when the graph has run; what is added to it is done then as well. Where
// an instruction looks at the value, it is read: guarded, and the constant that it is from there
// on. Unread ones live on the stack, in plain locals, and in what was written to dicts and
// attributes; only the instructions listed here meet them.

#include "python/capture/names.h"
#include "python/capture/tracer.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {
namespace {

// +, - and *, also in place.
bool is_arithmetic(uint32_t arg) {
  return arg == 0 || arg == 5 || arg == 10 || arg == 13 || arg == 18 || arg == 23;
}

py::object type_object(py::handle o) {
  return borrow(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())));
}

}  // namespace

py::object Tracer::unread_argument(py::handle real, SourceId source) {
  static const py::object& object = *new py::object(py::module_::import("builtins").attr("object"));
  py::object out = object();
  known_[out.ptr()].source = source;
  unread_[out.ptr()] = {borrow(real.ptr()), source, {}, {}};
  held_.push_back(out);
  return out;
}

py::object Tracer::unread_number(py::handle real, SourceId source) {
  guard(GuardKind::TypeIs, source, type_object(real));
  loaded_.insert(source);
  return unread_argument(real, source);
}

// `o`, or the constant that it stands for, guarded.
py::object Tracer::read(const py::object& o) {
  auto it = o && !unread_.empty() ? unread_.find(o.ptr()) : unread_.end();
  if (it == unread_.end()) return o;
  const Unread unread = it->second;
  takes_unread_ = false;
  if (unread.source.valid()) return wrap(unread.real, unread.source);
  for (const py::object& part : unread.parts) read(part);
  return unread.real;
}

// `o`, or the constant that it stands for, of which only the type is guarded.
const py::object& Tracer::typed(const py::object& o) {
  auto it = unread_.find(o.ptr());
  if (it == unread_.end()) return o;
  if (it->second.source.valid())
    guard(GuardKind::TypeIs, it->second.source, type_object(it->second.real));
  return it->second.real;
}

// Whether a number that the current instruction loads is added to next, or is the result.
bool Tracer::takes_unread_value(const TracedFrame& f) const {
  const auto& code = f.bytecode->instructions;
  const Instruction& next = code[f.next];
  if (next.op == RETURN_VALUE) return frames_.size() == 1;
  if (f.next + 1 >= code.size()) return false;
  const Instruction& then = code[f.next + 1];
  return next.op == LOAD_CONST && then.op == BINARY_OP && is_arithmetic(then.arg) &&
         is_number(PyTuple_GET_ITEM(f.code->co_consts, next.arg));
}

// Arithmetic on what is unread.
std::optional<py::object> Tracer::compute_unread(const py::object& function, const py::object& a,
                                                 const py::object& b) {
  if (!unread_.contains(a.ptr()) && !unread_.contains(b.ptr())) return std::nullopt;
  const py::object &left = typed(a), &right = typed(b);
  py::object out = unread_argument(function(left, right), SourceId());
  unread_[out.ptr()].function = function;
  unread_[out.ptr()].parts = {a, b};
  return out;
}

// A number that nobody has looked at yet against one that is known: only the answer is guarded, so that a value that is
// another one at each call does not make a capture for each.
std::optional<py::object> Tracer::compare_unread(const py::object& a, const py::object& b,
                                                 int operation) {
  auto of_source = [&](const py::object& o) {
    auto it = unread_.find(o.ptr());
    return it != unread_.end() && it->second.source.valid() && is_number(it->second.real.ptr());
  };
  const bool left = of_source(a) && is_number(b.ptr()), right = of_source(b) && is_number(a.ptr());
  if (!left && !right) return std::nullopt;
  static constexpr int swapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  const int seen = left ? operation : swapped[operation];
  const Unread& unread = unread_.at(left ? a.ptr() : b.ptr());
  const py::object& number = left ? b : a;
  const py::object compared = py::reinterpret_steal<py::object>(
      PyObject_RichCompare(unread.real.ptr(), number.ptr(), seen));
  if (!compared) throw py::error_already_set();
  const bool answer = compared.ptr() == Py_True;
  guard(GuardKind::TypeIs, unread.source, type_object(unread.real));
  guard(GuardKind::Compares, unread.source, number, 2 * seen + (answer ? 1 : 0));
  return compared;
}

// The operands of a BINARY_OP that can be computed behind the graph.
bool Tracer::goes_on_counting(const TracedFrame& f) const {
  auto number = [&](const py::object& o) {
    auto it = o ? unread_.find(o.ptr()) : unread_.end();
    return o && is_number(it == unread_.end() ? o.ptr() : it->second.real.ptr());
  };
  return is_arithmetic(f.bytecode->instructions[f.next].arg) &&
         number(f.stack[f.stack.size() - 1]) && number(f.stack[f.stack.size() - 2]);
}

// A call of isinstance, or of object.__setattr__.
bool Tracer::is_called_unread(const TracedFrame& f, size_t count) const {
  static const py::object& isinstance =
      *new py::object(py::module_::import("builtins").attr("isinstance"));
  const py::object& below = f.stack[f.stack.size() - count - 2];
  const py::object& callable = below ? below : f.stack[f.stack.size() - count - 1];
  if (f.kwnames) return false;
  if (callable.is(isinstance)) return true;
  return Py_TYPE(callable.ptr()) == &_PyMethodWrapper_Type &&
         is_name(callable.attr("__name__"), names().setattr_);
}

// d[k] = v, of a dict that was there before.
bool Tracer::stays_unread_in_store(const TracedFrame& f) {
  const py::object& dict = f.stack[f.stack.size() - 2];
  return exists(dict) && PyDict_Check(dict.ptr()) && !special_method(dict, names().setitem_);
}

// Reads what the next instruction looks at.
void Tracer::read_arguments(TracedFrame& f) {
  auto read_top = [&](size_t n) {
    for (size_t i = f.stack.size() - n; i < f.stack.size(); i++) f.stack[i] = read(f.stack[i]);
  };
  const Instruction& i = f.bytecode->instructions[f.next];
  switch (i.op) {
    case LOAD_FAST:
    case LOAD_FAST_CHECK:
    case LOAD_CONST:
    case LOAD_GLOBAL:
    case LOAD_DEREF:
    case LOAD_CLOSURE:
    case STORE_FAST:
    case DELETE_FAST:
    case STORE_GLOBAL:
    case STORE_DEREF:
    case POP_TOP:
    case PUSH_NULL:
    case COPY:
    case SWAP:
    case JUMP_FORWARD:
    case PRECALL:
    case KW_NAMES:
    case RESUME:
    case RETURN_CONST:
    case NOP:
      return;
    case MAKE_CELL:
      f.fast[i.arg] = read(f.fast[i.arg]);
      return;
    case LOAD_ATTR:
    case LOAD_METHOD:
    case STORE_ATTR:
      return read_top(1);
    case BINARY_SUBSCR:
      return read_top(2);
    case STORE_SUBSCR:
      read_top(2);
      return stays_unread_in_store(f) ? void() : read_top(3);
    case BINARY_OP:
      return goes_on_counting(f) ? void() : read_top(2);
    case COMPARE_OP:
      return;
    case CALL:
      return is_called_unread(f, i.arg) ? void() : read_top(f.stack.size());
    case RETURN_VALUE:
      return frames_.size() == 1 ? void() : read_top(1);
    default:
      return read_top(f.stack.size());
  }
}

}  // namespace oxy::python
