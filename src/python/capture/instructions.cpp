// The instructions of CPython 3.11 and 3.12.

#include <array>

#include "python/capture/names.h"
#include "python/capture/value_stack.h"
#include "python/cpython/locals.h"
#include "python/cpython/opcodes.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxSteps = 2'000'000;
constexpr size_t kMaxRounds = 2'000;  // of a loop with tensors

py::object operator_named(const char* name) {
  static const py::object& module = *new py::object(py::module_::import("operator"));
  return module.attr(name);
}

py::object builtin_named(const char* name) {
  static const py::object& module = *new py::object(py::module_::import("builtins"));
  return module.attr(name);
}

constexpr const char* kOperators[] = {
    "add",    "and_", "floordiv", "lshift", "matmul",  "mul",  "mod",       "or_",     "pow",
    "rshift", "sub",  "truediv",  "xor",    "iadd",    "iand", "ifloordiv", "ilshift", "imatmul",
    "imul",   "imod", "ior",      "ipow",   "irshift", "isub", "itruediv",  "ixor"};

const py::object& binary_operator(uint32_t arg) {
  static const auto& table = *[] {
    auto* t = new std::array<py::object, 26>();
    for (size_t i = 0; i < 26; i++) (*t)[i] = operator_named(kOperators[i]);
    return t;
  }();
  return table.at(arg);
}

// The name that the instruction's argument holds.
py::handle name_of(const TracedFrame& f, const Instruction& i) {
  return PyTuple_GET_ITEM(f.code->co_names, name_index(i.op, i.arg));
}

[[noreturn]] void unbound(const TracedFrame& f, uint32_t slot) {
  PyErr_Format(PyExc_UnboundLocalError,
               "cannot access local variable '%U' where it is not associated with a value",
               PyTuple_GET_ITEM(f.code->co_localsplusnames, slot));
  throw py::error_already_set();
}

// f(**dict, **more): a keyword is given once.
void require_new_keywords(py::handle callable, py::handle dict, py::handle more) {
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(more.ptr(), &at, &key, &value) != 0;) {
    const int there = PyDict_Contains(dict.ptr(), key);
    if (there < 0) throw py::error_already_set();
    if (there == 0) continue;
    const py::object name = steal(_PyObject_FunctionStr(callable.ptr()));
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name.ptr(),
                 key);
    throw py::error_already_set();
  }
}

}  // namespace

void name_error(py::handle name, const char* format) {
  const py::object text = steal(PyUnicode_FromFormat(format, name.ptr()));
  const py::object error = py::handle(PyExc_NameError)(text);
  error.attr("name") = name;  // what the interpreter's suggestions go by
  PyErr_SetObject(PyExc_NameError, error.ptr());
  throw py::error_already_set();
}

const char* binary_operator_name(uint32_t arg) { return kOperators[arg]; }

bool is_binary_operator(std::string_view name) {
  return std::ranges::find(kOperators, name) != std::end(kOperators);
}

// One instruction; true when the frame returned or yielded `result`.
bool Tracer::instruction(TracedFrame& f, py::object& result) {
  if (++steps_ > kMaxSteps) throw Break(BreakId::too_long, "");
  if (PyErr_CheckSignals() != 0) throw Interrupted();
  const Instruction& i = f.bytecode->instructions[f.next++];
  takes_ = Takes::Read;
  auto push = [&](py::object o) { f.stack.push_back(std::move(o)); };
  auto jump = [&] { f.next = static_cast<size_t>(i.target); };
  auto& fast = f.fast;
  switch (plain_opcode(i.op, i.arg)) {
    case NOP:
    case RESUME:
    case PRECALL:
    case CACHE:
    case COPY_FREE_VARS:
      if (i.op == COPY_FREE_VARS) {
        auto* function = reinterpret_cast<PyFunctionObject*>(f.function.ptr());
        const bool fresh = known(f.function) && !known(f.function)->source.valid();
        const size_t first = fast.size() - i.arg;
        for (size_t k = 0; k < i.arg; k++) {
          PyObject* cell = PyTuple_GET_ITEM(function->func_closure, k);
          fast[first + k] = borrow(cell);
          if (fresh) continue;
          Known& known_cell = known_[cell];
          if (!known_cell.source.valid())
            known_cell.source =
                sources.closure(function_source(f.function, "F"), static_cast<int64_t>(k));
          held_.push_back(borrow(cell));
        }
      }
      return false;
    case POP_TOP:
      pop(f);
      return false;
    case PUSH_NULL:
      push({});
      return false;
    case COPY:
      push(peek(f, i.arg));
      if (!f.handled.empty() && f.handled.back().place + 1 + i.arg == f.stack.size()) {
        f.stack[f.handled.back().place] = py::none();  // POP_EXCEPT takes the copy
        f.handled.back().place = f.stack.size() - 1;
      }
      return false;
    case SWAP: {
      std::swap(peek(f, 1), peek(f, i.arg));
      const size_t top = f.stack.size() - 1, other = f.stack.size() - i.arg;
      if (f.handled.empty()) return false;
      size_t& place = f.handled.back().place;
      place = place == top ? other : place == other ? top : place;
      return false;
    }
    case LOAD_CONST: {
      PyObject* constant = PyTuple_GET_ITEM(f.code->co_consts, i.arg);
      if (PyTuple_CheckExact(constant)) fixed_.insert(constant);
      push(borrow(constant));
      return false;
    }
    case LOAD_FAST:
    case LOAD_FAST_CHECK:
      if (!fast[i.arg]) unbound(f, i.arg);
      push(fast[i.arg]);
      return false;
    case LOAD_CLOSURE:
      push(fast[i.arg]);
      return false;
    case LOAD_FAST_AND_CLEAR:
      push(std::exchange(fast[i.arg], py::object()));
      return false;
    case STORE_FAST:
      fast[i.arg] = pop(f);
      return false;
    case DELETE_FAST:
      if (!fast[i.arg]) unbound(f, i.arg);
      fast[i.arg] = py::object();
      return false;
    case MAKE_CELL:
      fast[i.arg] = steal(PyCell_New(fast[i.arg].ptr()));
      held_.push_back(fast[i.arg]);
      return false;
    case LOAD_BUILD_CLASS:
      push(load_build_class(f));
      return false;
    case LOAD_LOCALS:
      if (!f.names) throw Break(BreakId::instruction, "the names of a scope that is no class");
      push(f.names);
      return false;
    case LOAD_NAME:
      push(load_name(f, name_of(f, i)));
      return false;
    case STORE_NAME:
      store_name(f, name_of(f, i), pop(f));
      return false;
    case DELETE_NAME:
      store_name(f, name_of(f, i), {});
      return false;
    case SETUP_ANNOTATIONS:
      if (!name_in(f.names, py::str("__annotations__")))
        store_name(f, py::str("__annotations__"), py::dict());
      return false;
    case LOAD_FROM_DICT_OR_GLOBALS: {
      py::object found = name_in(pop(f), name_of(f, i));
      push(found ? found : load_global(f, name_of(f, i)));
      return false;
    }
    case LOAD_DEREF:
    case LOAD_FROM_DICT_OR_DEREF:
    case LOAD_CLASSDEREF: {
      if (i.op == LOAD_CLASSDEREF || i.op == LOAD_FROM_DICT_OR_DEREF) {
        const py::object in = i.op == LOAD_CLASSDEREF ? f.names : pop(f);
        if (py::object found = name_in(in, PyTuple_GET_ITEM(f.code->co_localsplusnames, i.arg)))
          return push(found), false;
      }
      takes_ = taken_by_next(f);
      py::object value = read_cell(fast[i.arg]);
      if (!value) {
        if (local_kind(f.code, static_cast<int>(i.arg)) != kFree) unbound(f, i.arg);
        name_error(PyTuple_GET_ITEM(f.code->co_localsplusnames, i.arg),
                   "cannot access free variable '%U' where it is not associated with a value in "
                   "enclosing scope");
      }
      push(value);
      return false;
    }
    case STORE_DEREF:
      write_cell(fast[i.arg], pop(f));
      return false;
    case DELETE_DEREF:
      write_cell(fast[i.arg], {});
      return false;
    case LOAD_GLOBAL:
      if (i.arg & 1) push({});
      takes_ = taken_by_next(f);
      push(load_global(f, name_of(f, i)));
      return false;
    case STORE_GLOBAL:
      dict_write(globals_of(f), name_of(f, i), pop(f));
      return false;
    case DELETE_GLOBAL:
      if (!dict_has(globals_of(f), name_of(f, i))) name_error(name_of(f, i));
      dict_delete(globals_of(f), name_of(f, i));
      return false;
    case LOAD_ATTR:
    case LOAD_METHOD: {
      py::object o = pop(f);
      if (loads_method(i.op, i.arg))
        push({});
      else
        takes_ = taken_by_next(f);
      push(load_attr(o, name_of(f, i)));
      return false;
    }
    case LOAD_SUPER_ATTR: {
      py::object self = pop(f), type = pop(f), super = pop(f);
      if (loads_method(i.op, i.arg)) push({});
      push(load_attr(call(super, {type, self}), name_of(f, i)));
      return false;
    }
    case STORE_ATTR: {
      py::object o = pop(f), v = pop(f);
      store_attr(o, name_of(f, i), v);
      return false;
    }
    case DELETE_ATTR: {
      py::object o = pop(f);
      store_attr(o, name_of(f, i), {});
      return false;
    }
    case BINARY_SUBSCR: {
      py::object k = pop(f), o = pop(f);
      takes_ = taken_by_next(f);
      const py::object packed = packed_item(o, k);
      push(packed ? taken(packed) : subscript(o, k));
      return false;
    }
    case STORE_SUBSCR: {
      py::object k = pop(f), o = pop(f), v = pop(f);
      store_subscript(o, k, v);
      return false;
    }
    case BINARY_SLICE: {
      py::object stop = pop(f), start = pop(f), o = pop(f);
      push(subscript(o, steal(PySlice_New(start.ptr(), stop.ptr(), nullptr))));
      return false;
    }
    case STORE_SLICE: {
      py::object stop = pop(f), start = pop(f), o = pop(f), v = pop(f);
      store_subscript(o, steal(PySlice_New(start.ptr(), stop.ptr(), nullptr)), v);
      return false;
    }
    case DELETE_SUBSCR: {
      py::object k = pop(f), o = pop(f);
      delete_subscript(o, k);
      return false;
    }
    case BINARY_OP: {
      py::object b = pop(f), a = pop(f);
      if (auto computed = compute_unread(binary_operator(i.arg), a, b))
        push(*computed);
      else
        push(operate(binary_operator(i.arg), {a, b}));
      return false;
    }
    case UNARY_NEGATIVE: {
      py::object a = pop(f);
      if (auto computed = negate_unread(a))
        push(*computed);
      else
        push(operate(operator_named("neg"), {a}));
      return false;
    }
    case UNARY_POSITIVE: {
      py::object a = pop(f);
      push(operate(operator_named("pos"), {a}));
      return false;
    }
    case UNARY_INVERT: {
      py::object a = pop(f);
      push(operate(operator_named("invert"), {a}));
      return false;
    }
    case UNARY_NOT: {
      py::object a = pop(f);
      push(py::bool_(!truth(a)));
      return false;
    }
    case COMPARE_OP: {
      py::object b = pop(f), a = pop(f);
      const int comparison = static_cast<int>(compared_as(i.arg));
      if (auto answer = compare_unread(a, b, comparison))
        push(*answer);
      else
        push(compare_runtime(a, b, comparison));
      return false;
    }
    case IS_OP: {
      py::object b = pop(f), a = pop(f);
      push(py::bool_(is_same(a, b) != (i.arg == 1)));
      return false;
    }
    case CONTAINS_OP: {
      py::object b = pop(f), a = pop(f);
      const bool in = contains(b, a).ptr() == Py_True;
      push(py::bool_(in != (i.arg == 1)));
      return false;
    }
    case JUMP_FORWARD:
    case JUMP_BACKWARD:
      if (++f.rounds[f.next - 1] > kMaxRounds && ir->graph.order().size() > kMaxRounds)
        throw Break(BreakId::long_loop, cat(kMaxRounds, " rounds were captured"));
      [[fallthrough]];
    case JUMP_BACKWARD_NO_INTERRUPT:
      jump();
      return false;
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_TRUE:
      if (truth(pop(f))) jump();
      return false;
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_FALSE:
      if (!truth(pop(f))) jump();
      return false;
    case POP_JUMP_IF_NONE:
    case POP_JUMP_FORWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NONE:
      if (pop(f).is_none()) jump();
      return false;
    case POP_JUMP_IF_NOT_NONE:
    case POP_JUMP_FORWARD_IF_NOT_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE:
      if (!pop(f).is_none()) jump();
      return false;
    case JUMP_IF_TRUE_OR_POP:
      if (truth(peek(f, 1)))
        jump();
      else
        pop(f);
      return false;
    case JUMP_IF_FALSE_OR_POP:
      if (!truth(peek(f, 1)))
        jump();
      else
        pop(f);
      return false;
    case GET_ITER:
    case GET_YIELD_FROM_ITER: {
      py::object o = pop(f);
      push(iterate(o));
      return false;
    }
    case FOR_ITER: {
      f.loops.try_emplace(f.next - 1, f.step);
      const uint8_t next = f.bytecode->instructions[f.next].op;
      if (next == UNPACK_SEQUENCE || next == STORE_FAST) takes_ = Takes::Unread;
      py::object item = iter_next(peek(f, 1));
      takes_ = Takes::Read;
      if (item) {
        push(item);
      } else {
        pop(f);
        jump();
      }
      return false;
    }
    case SEND: {
      py::object sent = pop(f), inner = peek(f, 1), item;
      if (sent.is_none())
        item = iter_next(inner);
      else if (LazyIterator* l = lazy(inner); l && l->frame)
        item = resume_generator(*l, sent, {});
      else
        throw Break(BreakId::instruction, "send to an iterator that is no generator");
      if (item) {
        push(item);
      } else {
        if (!kSendKeepsIterator) pop(f);
        push(returned_);
        jump();
      }
      return false;
    }
    case END_SEND: {
      py::object value = pop(f);
      peek(f, 1) = value;
      return false;
    }
    // An exception came out of the iterator that `yield from` was waiting for.
    case CLEANUP_THROW: {
      py::object value = pop(f);
      if (!PyErr_GivenExceptionMatches(value.ptr(), PyExc_StopIteration)) raise_value(value);
      pop_many(f, 2);
      push(py::none());
      push(value.attr("value"));
      return false;
    }
    case RETURN_GENERATOR:
      push(py::none());
      return false;  // the caller made the generator
    case YIELD_VALUE:
      result = pop(f);
      f.yielded = true;
      return true;
    case RETURN_VALUE:
      result = pop(f);
      return true;
    case RETURN_CONST:
      result = borrow(PyTuple_GET_ITEM(f.code->co_consts, i.arg));
      return true;
    case BUILD_TUPLE:
    case BUILD_LIST:
    case BUILD_SET: {
      Arguments items = pop_many(f, i.arg);
      py::list list;
      for (auto& o : items) list.append(o);
      push(i.op == BUILD_LIST    ? py::object(list)
           : i.op == BUILD_TUPLE ? py::object(py::tuple(list))
                                 : py::object(py::set(list)));
      return false;
    }
    case BUILD_MAP: {
      Arguments items = pop_many(f, 2 * i.arg);
      py::dict d;
      for (size_t k = 0; k < items.size(); k += 2) d[items[k]] = items[k + 1];
      push(d);
      return false;
    }
    case BUILD_CONST_KEY_MAP: {
      py::object keys = pop(f);
      Arguments items = pop_many(f, i.arg);
      py::dict d;
      for (size_t k = 0; k < items.size(); k++)
        d[py::handle(PyTuple_GET_ITEM(keys.ptr(), k))] = items[k];
      push(d);
      return false;
    }
    case BUILD_SLICE: {
      Arguments items = pop_many(f, i.arg);
      push(steal(
          PySlice_New(items[0].ptr(), items[1].ptr(), i.arg == 3 ? items[2].ptr() : nullptr)));
      return false;
    }
    case BUILD_STRING: {
      Arguments items = pop_many(f, i.arg);
      py::list list;
      for (auto& o : items) list.append(o);
      push(py::str("").attr("join")(list));
      return false;
    }
    case FORMAT_VALUE: {
      py::object spec = i.arg & 4 ? pop(f) : py::str(""), o = pop(f);
      const int conversion = i.arg & 3;
      if (PyObject* own = conversion == 0 ? special_method(o, py::str("__format__")) : nullptr) {
        push(call(own, {o, spec}));
        return false;
      }
      const bool plain_format = Py_TYPE(o.ptr())->tp_str != PyUnicode_Type.tp_str &&
                                lookup(Py_TYPE(o.ptr()), py::str("__format__")) ==
                                    lookup(&PyBaseObject_Type, py::str("__format__"));
      if (conversion == 1 || conversion == 2 || (plain_format && py::len(spec) == 0))
        if (auto text = text_of(o, conversion == 2)) {
          push(steal(PyObject_Format(text->ptr(), spec.ptr())));
          return false;
        }
      o = plain_contents(o, builtin_named("format"));
      if (conversion == 1) o = py::str(o);
      if (conversion == 2) o = py::repr(o);
      if (conversion == 3) o = steal(PyObject_ASCII(o.ptr()));
      push(steal(PyObject_Format(o.ptr(), spec.ptr())));
      return false;
    }
    case LIST_TO_TUPLE: {
      py::object o = contents(pop(f));
      push(py::tuple(o));
      return false;
    }
    case LIST_APPEND: {
      py::object o = pop(f), list = peek(f, i.arg);
      if (exists(list)) list = sequence_to_write(list);  // begun in front of a break
      PyList_Append(list.ptr(), o.ptr());
      return false;
    }
    case SET_ADD: {
      py::object o = pop(f), set = peek(f, i.arg);
      if (exists(set)) return set_put(set, o, true), false;
      if (PySet_Add(set.ptr(), o.ptr()) != 0) throw py::error_already_set();
      return false;
    }
    case MAP_ADD: {
      py::object v = pop(f), k = pop(f), dict = peek(f, i.arg);
      if (exists(dict)) return dict_write(dict, k, v), false;
      if (PyDict_SetItem(dict.ptr(), k.ptr(), v.ptr()) != 0) throw py::error_already_set();
      return false;
    }
    case LIST_EXTEND: {
      py::object o = list_of(pop(f)), list = peek(f, i.arg);
      if (exists(list)) list = sequence_to_write(list);
      list.attr("extend")(o);
      return false;
    }
    case SET_UPDATE: {
      py::object o = list_of(pop(f)), set = peek(f, i.arg);
      if (!exists(set)) return set.attr("update")(o), false;
      for (py::handle item : o) set_put(set, item, true);
      return false;
    }
    case DICT_UPDATE:
    case DICT_MERGE: {
      if (is_packed(f.stack.back())) {  // into an empty dict
        py::object packed = pop(f);
        peek(f, i.arg) = std::move(packed);
        return false;
      }
      py::object o = contents(pop(f));
      if (!PyDict_Check(o.ptr()))
        throw Break(BreakId::instruction, "** of a mapping that is no dict");
      py::object dict = peek(f, i.arg);
      if (exists(dict)) return dict_update(dict, {o}, {}), false;
      if (i.op == DICT_MERGE) require_new_keywords(peek(f, i.arg + 2), dict, o);
      if (PyDict_Merge(dict.ptr(), o.ptr(), 1) != 0) throw py::error_already_set();
      return false;
    }
    case UNPACK_SEQUENCE:
      unpack(f, i.arg, false, 0);
      return false;
    case UNPACK_EX:
      unpack(f, i.arg & 0xff, true, i.arg >> 8);
      return false;
    case MATCH_SEQUENCE:
      push(py::bool_((Py_TYPE(peek(f, 1).ptr())->tp_flags & Py_TPFLAGS_SEQUENCE) != 0));
      return false;
    case MATCH_MAPPING:
      push(py::bool_((Py_TYPE(peek(f, 1).ptr())->tp_flags & Py_TPFLAGS_MAPPING) != 0));
      return false;
    case GET_LEN:
      push(call(builtin_named("len"), {peek(f, 1)}));
      return false;
    case MATCH_KEYS: {
      py::list values;
      const auto keys = py::reinterpret_borrow<py::tuple>(peek(f, 1));
      if (!PyDict_CheckExact(peek(f, 2).ptr()) || py::len(py::set(keys)) != keys.size())
        throw Break(BreakId::instruction, "a pattern of a mapping that is no dict, or an error");
      for (py::handle key : keys) {
        if (contains(peek(f, 2), key).ptr() != Py_True) {
          push(py::none());
          return false;
        }
        values.append(subscript(peek(f, 2), key));
      }
      push(py::tuple(values));
      return false;
    }
    case MATCH_CLASS: {
      py::object names = pop(f), type = pop(f), subject = pop(f);
      py::object names_of_positions = py::tuple();
      bool whole = false;
      py::list parts;
      auto refuse = [] { throw Break(BreakId::instruction, "a class pattern that is an error"); };
      if (!PyType_Check(type.ptr())) refuse();
      if (call(builtin_named("isinstance"), {subject, type}).ptr() != Py_True) {
        push(py::none());
        return false;
      }
      if (i.arg > 0) {
        auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
        whole = t->tp_flags & _Py_TPFLAGS_MATCH_SELF;
        if (!whole && lookup(t, py::str("__match_args__")) == nullptr) refuse();
        if (!whole) names_of_positions = load_attr(type, py::str("__match_args__"));
      }
      if (!PyTuple_CheckExact(names_of_positions.ptr()) ||
          i.arg > (whole ? 1 : py::len(names_of_positions)))
        refuse();
      py::set seen;
      for (size_t k = 0; k < i.arg && !whole; k++) {
        const py::object name = py::tuple(names_of_positions)[k];
        if (!PyUnicode_CheckExact(name.ptr()) || seen.contains(name)) refuse();
        seen.add(name);
      }
      for (py::handle name : names)
        if (seen.contains(name)) refuse();
      try {
        for (uint32_t k = 0; k < i.arg; k++)
          parts.append(whole ? subject : load_attr(subject, py::tuple(names_of_positions)[k]));
        for (py::handle name : names) parts.append(load_attr(subject, name));
        push(py::tuple(parts));
      } catch (py::error_already_set& e) {
        if (!e.matches(PyExc_AttributeError)) throw;
        push(py::none());
      }
      return false;
    }
    case KW_NAMES:
      f.kwnames = borrow(PyTuple_GET_ITEM(f.code->co_consts, i.arg));
      return false;
    case CALL:
      call_instruction(f, i.arg);
      return false;
    case CALL_FUNCTION_EX:
      call_function_ex(f, i.arg & 1);
      return false;
    case MAKE_FUNCTION:
      make_function(f, i.arg);
      return false;
    case IMPORT_NAME: {
      py::object from = pop(f), level = pop(f);
      push(import_name(f, name_of(f, i), level, from));
      return false;
    }
    case IMPORT_FROM:
      push(load_attr(peek(f, 1), name_of(f, i)));
      return false;
    case LOAD_ASSERTION_ERROR:
      push(borrow(PyExc_AssertionError));
      return false;
    case BEFORE_WITH: {
      py::object manager = pop(f);
      for (PyObject* method : {names().enter_, names().exit_}) {
        if (lookup(Py_TYPE(manager.ptr()), method) != nullptr) continue;
        type_member(Py_TYPE(manager.ptr()), method);
        PyErr_Format(PyExc_TypeError,
                     "'%.200s' object does not support the context manager protocol%s",
                     Py_TYPE(manager.ptr())->tp_name,
                     method == names().exit_ ? " (missed __exit__ method)" : "");
        throw py::error_already_set();
      }
      py::object exit = load_attr(manager, names().exit_),
                 enter = load_attr(manager, names().enter_);
      push(exit);
      push(call(enter, {}));
      return false;
    }
    case WITH_EXCEPT_START: {
      py::object value = peek(f, 1);
      push(call(peek(f, 4), {borrow((PyObject*)Py_TYPE(value.ptr())), value, traceback_of(value)}));
      return false;
    }
    case PUSH_EXC_INFO: {
      py::object value = pop(f);
      push(f.handled.empty() ? py::none() : f.handled.back().exception);
      f.handled.push_back({f.stack.size() - 1, value});
      PyErr_SetHandledException(value.ptr());
      push(value);
      return false;
    }
    case CHECK_EXC_MATCH: {
      py::object type = pop(f);
      const py::tuple types = PyTuple_Check(type.ptr()) ? py::tuple(type) : py::make_tuple(type);
      for (py::handle t : types)
        if (!PyExceptionClass_Check(t.ptr()))
          throw Break(BreakId::instruction, "except of what is no exception");
      push(py::bool_(PyErr_GivenExceptionMatches(peek(f, 1).ptr(), type.ptr()) != 0));
      return false;
    }
    case CHECK_EG_MATCH:
      match_group(f);
      return false;
    case PREP_RERAISE_STAR: {
      const py::object raised = pop(f), group = pop(f);
      push(left_of_group(group, raised));
      return false;
    }
    case POP_EXCEPT:
      pop(f);
      f.handled.pop_back();
      PyErr_SetHandledException(
          (f.handled.empty() ? f.handled_outside : f.handled.back().exception).ptr());
      return false;
    case RERAISE:
      reraise_value(pop(f));
    case RAISE_VARARGS: {
      if (i.arg == 0) {
        py::object value = py::reinterpret_steal<py::object>(PyErr_GetHandledException());
        if (!value) throw Break(BreakId::instruction, "raise without an exception");
        reraise_value(value);
      }
      auto instance_of = [this](const py::object& o) {
        return PyExceptionClass_Check(o.ptr()) ? call(o, {}) : o;
      };
      py::object cause = i.arg == 2 ? pop(f) : py::object(), value = instance_of(pop(f));
      if (!PyExceptionInstance_Check(value.ptr()))
        throw Break(BreakId::instruction, "raise of what is no exception");
      if (PyErr_GivenExceptionMatches(value.ptr(), PyExc_KeyboardInterrupt))
        throw Break(BreakId::instruction, "raise of KeyboardInterrupt");
      if (exists(value))
        throw Break(BreakId::instruction, "raise of an exception that was there before");
      if (cause && !cause.is_none()) {
        if (PyExceptionClass_Check(cause.ptr())) cause = instance_of(cause);
        if (!PyExceptionInstance_Check(cause.ptr()))
          throw Break(BreakId::instruction, "raise from what is no exception");
      }
      if (cause)
        PyException_SetCause(value.ptr(), cause.is_none() ? nullptr : cause.release().ptr());
      raise_value(value);
    }
    default:
      throw Break(BreakId::instruction, cat("opcode ", static_cast<int>(i.op)));
  }
}

}  // namespace oxy::python
