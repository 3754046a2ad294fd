// Iteration. Iterators written in C run for real, over containers that the capture has made or
// copied. Generators, and map, zip and their kind, run captured code: each is a LazyIterator behind
// an empty iterator of its type, and takes an item only when it is asked for one, as in CPython.
// One that nobody holds any more is closed.
#include <c10/util/ScopeExit.h>
#include <pybind11/eval.h>

#include "python/capture/instructions.h"
#include "python/capture/plan_rebuild.h"
#include "python/capture/question.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxInlined = 150;

py::object empty_generator() {
  static const py::object& make = *[] {
    py::dict names;
    py::exec("def empty():\n    yield\n", names);
    return new py::object(names["empty"]);
  }();
  return make();
}

// A generator that stands in a `yield from`.
bool delegates(const TracedFrame& f) {
  const auto& code = f.bytecode->instructions;
  if (f.stack.empty()) return false;
  if (f.next < code.size() && code[f.next].op == YIELD_FROM) return true;
  return f.next + 1 < code.size() && code[f.next + 1].op == JUMP_BACKWARD_NO_INTERRUPT;
}

// What a `yield from` was waiting for has returned this.
void end_delegation(TracedFrame& f, const py::object& returned) {
  if (!kSendKeepsIterator) f.stack.pop_back();
  f.stack.push_back(returned);
  f.yielded = false;
  const auto& code = f.bytecode->instructions;
  if (code[f.next].op == YIELD_FROM) {
    f.next++;
    return;
  }
  const Instruction& send = code[static_cast<size_t>(code[f.next + 1].target)];
  f.next = static_cast<size_t>(send.target);
}

// A StopIteration that the code of a generator lets out does not look like its end.
[[noreturn]] void raise_instead_of_end(const py::object& stop) {
  const py::object error = py::handle(PyExc_RuntimeError)("generator raised StopIteration");
  PyException_SetCause(error.ptr(), stop.inc_ref().ptr());
  PyException_SetContext(error.ptr(), stop.inc_ref().ptr());
  raise_value(error);
}

}  // namespace

LazyIterator* Iterators::lazy(py::handle o) {
  for (const auto& l : lazies_)
    if (l->stand_in.is(o)) return l.get();
  return nullptr;
}

bool Iterators::stands_in(py::handle o) {
  if (const LazyIterator* l = lazy(o)) return l->frame && is_polyfill(l->frame->function);
  return is_of_python_class(o.ptr()) && PyIter_Check(o.ptr()) && is_polyfill(o);
}

void Iterators::refuse_stand_in(py::handle o) {
  if (stands_in(o)) throw Break(BreakId::attribute_protocol, "the class of an iterator in C");
}

py::object Iterators::add_lazy(py::object stand_in, LazyIterator lazy) {
  lazy.stand_in = stand_in;
  lazies_.push_back(std::make_unique<LazyIterator>(std::move(lazy)));
  return stand_in;
}

py::object Iterators::make_generator(std::unique_ptr<TracedFrame> frame) {
  return add_lazy(empty_generator(), {.frame = std::move(frame)});
}

// Iterators for what a lazy one takes its items from.
std::vector<py::object> Iterators::iterators_of(std::span<const py::object> iterables) {
  std::vector<py::object> out;
  for (const py::object& o : iterables) out.push_back(iterate(o));
  return out;
}

// Written in C, and over nothing that captured code has a part in.
bool Iterators::runs_alone(py::handle iterator) {
  return !lazy(iterator) && !heap().exists(iterator) &&
         python_method(iterator.ptr(), names().next_) == nullptr;
}

// map, filter, zip, enumerate, chain and islice, where `type` is one of them.
std::optional<py::object> Iterators::call_lazy_type(py::handle type, const Arguments& args,
                                                    const Keywords& kwargs) {
  const py::object& islice = member_of<"itertools", "islice">();
  auto* t = as_type(type);
  const std::span<const py::object> all(args);
  LazyIterator made;
  if (t == &PyMap_Type || t == &PyFilter_Type) {
    if (!kwargs.empty() || args.size() < 2 || (t == &PyFilter_Type && args.size() > 2))
      return std::nullopt;
    made.function = args[0];
    made.iterators = iterators_of(all.subspan(1));
    return add_lazy(type(py::none(), py::tuple()), std::move(made));
  }
  if (t == &PyZip_Type) {
    made.iterators = iterators_of(all);
    for (const auto& [name, value] : kwargs) {
      if (name.cast<std::string>() != "strict") return std::nullopt;
      made.strict = objects().truth(value);
    }
  } else if (t == &PyEnum_Type) {
    if (args.empty() || args.size() + kwargs.size() > 2) return std::nullopt;
    made.iterators = iterators_of(all.first(1));
    made.count = args.size() == 2 ? args[1] : py::int_(0);
    for (const auto& [name, value] : kwargs) {
      if (name.cast<std::string>() != "start") return std::nullopt;
      made.count = value;
    }
    if (!PyLong_CheckExact(made.count.ptr()) && !is_symbolic_int(made.count))
      throw Break(BreakId::builtin_call, "enumerate");
  } else if (type.is(member_of<"itertools", "chain">())) {
    return make_chain(py::list(tuple_of(args)));
  } else if (type.is(islice)) {
    if (args.size() < 2 || args.size() > 4 || !kwargs.empty()) return std::nullopt;
    if (std::ranges::any_of(args, is_symbolic)) {
      Arguments plain;
      for (const py::object& a : args) plain.push_back(is_symbolic(a) ? with_numbers(a) : a);
      return call_lazy_type(type, plain, kwargs);
    }
    made.iterators = iterators_of(all.first(1));
    py::list bounds;
    for (const py::object& bound : all.subspan(1)) {
      calls().require_plain(bound, type);
      bounds.append(bound);
    }
    type(py::tuple(), *bounds);  // its own checks of them
    made.bounds = py::handle((PyObject*)&PySlice_Type)(*bounds);
    if (!py::object(made.bounds.attr("start")).is_none())
      made.next = made.bounds.attr("start").cast<int64_t>();
  } else {
    return std::nullopt;
  }
  const bool counts_symbols = made.count && is_symbolic_int(made.count);
  if (!counts_symbols &&
      std::ranges::all_of(made.iterators, [this](const auto& i) { return runs_alone(i); })) {
    Arguments given(made.iterators.begin(), made.iterators.end());
    given.insert(given.end(),
                 args.begin() + static_cast<ptrdiff_t>(t == &PyZip_Type ? args.size() : 1),
                 args.end());
    return calls().call_real(type, given, kwargs);
  }
  if (type.is(islice)) return add_lazy(type(py::tuple(), 0), std::move(made));
  return add_lazy(t == &PyZip_Type ? type() : type(py::tuple()), std::move(made));
}

// itertools.chain.from_iterable.
py::object Iterators::make_chain(py::object outer) {
  const py::object& chain = member_of<"itertools", "chain">();
  auto runs_captured_code = [this](py::handle o) {
    return lazy(o) || heap().is_tensor(o) || python_method(o.ptr(), names().iter_) != nullptr;
  };
  if (PyList_Check(outer.ptr()) && !heap().exists(outer)) {
    const py::list parts(outer);
    if (std::none_of(parts.begin(), parts.end(), runs_captured_code)) {
      Arguments given;
      for (py::handle o : parts) given.push_back(heap().contents(o));
      return calls().call_real(chain, given, {});
    }
  }
  return add_lazy(chain(), {.iterators = {iterate(outer)}});
}

// -------------------------------------------------------------------------------------------- next

py::object Iterators::next_of_chain(LazyIterator& chain) {
  while (true) {
    if (chain.iterators.size() == 2) {
      py::object current = chain.iterators[1];
      if (py::object item = iter_next(current)) return item;
      chain.iterators.resize(1);
    }
    py::object outer = chain.iterators[0], next = iter_next(outer);
    if (!next) return {};
    chain.iterators.resize(1);
    chain.iterators.push_back(iterate(next));
  }
}

py::object Iterators::next_of_islice(LazyIterator& islice) {
  if (islice.iterators.empty()) return {};
  auto bound = [&](const char* name, int64_t otherwise) {
    py::object o = islice.bounds.attr(name);
    return o.is_none() ? otherwise : o.cast<int64_t>();
  };
  const int64_t stop = bound("stop", INT64_MAX);
  const py::object iterator = islice.iterators[0];
  auto take = [&] {
    py::object item = iter_next(iterator);
    islice.taken += item ? 1 : 0;
    return item;
  };
  bool more = true;
  while (more && islice.taken < islice.next) more = static_cast<bool>(take());
  py::object item = more && islice.taken < stop ? take() : py::object();
  if (!item) islice.iterators.clear();
  islice.next = std::min(stop, islice.next + bound("step", 1));
  return item;
}

// One item of each iterator; nullopt where one is at its end.
std::optional<Arguments> Iterators::next_of_each(const LazyIterator& l) {
  Arguments items;
  const std::vector<py::object> iterators = l.iterators;
  for (size_t i = 0; i < iterators.size(); i++) {
    py::object item = iter_next(iterators[i]);
    if (item) {
      items.push_back(item);
      continue;
    }
    if (!l.strict) return std::nullopt;
    auto others = [](size_t n) { return n == 1 ? cat(" ", n) : cat("s 1-", n); };
    if (i > 0)
      raise(PyExc_ValueError, "zip() argument ", i + 1, " is shorter than argument", others(i));
    for (size_t k = 1; k < iterators.size(); k++)
      if (iter_next(iterators[k]))
        raise(PyExc_ValueError, "zip() argument ", k + 1, " is longer than argument", others(k));
    return std::nullopt;
  }
  if (iterators.empty()) return std::nullopt;
  return items;
}

py::object Iterators::next_of(LazyIterator& l) {
  PyTypeObject* type = Py_TYPE(l.stand_in.ptr());
  if (l.frame) return resume_generator(l, py::none(), {});
  const std::string_view name = type->tp_name;
  if (name == "itertools.chain") return next_of_chain(l);
  if (name == "itertools.islice") return next_of_islice(l);
  if (type == &PyFilter_Type) {
    const py::object iterator = l.iterators[0], function = l.function;
    while (py::object item = iter_next(iterator))
      if (objects().truth(function.is_none() ? item : calls().call(function, {item}))) return item;
    return {};
  }
  auto items = next_of_each(l);
  if (!items) return {};
  if (type == &PyMap_Type) return calls().call(l.function, std::move(*items));
  py::tuple out(items->size() + (type == &PyEnum_Type));
  size_t at = 0;
  if (type == &PyEnum_Type) {
    out[at++] = l.count;
    l.count = l.count + py::int_(1);
  }
  for (py::object& item : *items) out[at++] = item;
  return std::move(out);
}

py::object Iterators::iterate(py::handle o) {
  PyObject* p = o.ptr();
  if (lazy(o)) return borrow(p);
  if (heap().is_tensor(o)) {
    PyObject* own = _PyType_Lookup(as_type(objects().type_of(o)), names().iter_);
    if (is_put_by_user(own)) return calls().call(own, {borrow(p)});
    const at::Tensor& t = THPVariable_Unpack(p);
    if (t.dim() == 0) raise(PyExc_TypeError, "iteration over a 0-d tensor");
    // As Tensor.__iter__: of such views autograd knows that they are several.
    return steal(PyObject_GetIter(calls().call_method(o, "unbind", {}, {}).ptr()));
  }
  if (PyObject* own = objects().special_method(o, names().iter_)) {
    py::object made = calls().call(own, {borrow(p)});
    if (lazy(made) || PyIter_Check(made.ptr())) return made;
    raise(PyExc_TypeError, "iter() returned non-iterator of type '", Py_TYPE(made.ptr())->tp_name,
          "'");
  }
  if (goes_by_items(o)) return calls().call_function(polyfill("items_in_order"), {borrow(p)}, {});
  if (heap().exists(o) && Py_TYPE(p)->tp_iter == PyObject_SelfIter) return borrow(p);
  return steal(PyObject_GetIter(heap().contents(o).ptr()));
}

// By __getitem__ and IndexError.
bool Iterators::goes_by_items(py::handle o) {
  return Py_TYPE(o.ptr())->tp_iter == nullptr &&
         python_method(o.ptr(), names().getitem_) != nullptr;
}

// Null at the end; `returned_` is what a generator returned then.
py::object Iterators::iter_next(py::handle iterator) {
  PyObject* p = iterator.ptr();
  returned_ = py::none();
  if (LazyIterator* l = lazy(iterator)) {
    const py::object held = borrow(p);
    return next_of(*l);
  }
  if (PyObject* own = objects().special_method(iterator, names().next_)) {
    try {
      return calls().call(own, {borrow(p)});
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_StopIteration)) throw;
      returned_ = e.value().attr("value");
      return {};
    }
  }
  if (!PyIter_Check(p))
    raise(PyExc_TypeError, "'", Py_TYPE(p)->tp_name, "' object is not an iterator");
  if (heap().exists(iterator)) return next_of_existing(iterator);
  PyObject* next = PyIter_Next(p);
  if (next == nullptr && PyErr_Occurred()) throw py::error_already_set();
  return owned(next);
}

// Some functions in C ask how many items there will be, others do not.
void Iterators::ask_for_length(py::handle o) {
  PyObject* own = objects().special_method(o, names().len_);
  if (own == nullptr) return;
  const Question question(capture_, {borrow(o), borrow(own)});
  try {
    calls().call(own, {borrow(o)});
    if (!question.had_effects()) return;
  } catch (const py::error_already_set&) {}
  throw Break(BreakId::builtin_call, "a __len__ that raises or has effects");
}

py::object Iterators::list_of(py::handle iterable, bool asks) {
  if (!asks && goes_by_items(iterable)) ask_for_length(iterable);
  py::list out;
  py::object iterator = iterate(iterable);
  if (asks && (objects().special_method(iterable, names().len_) ||
               objects().special_method(iterable, py::str("__length_hint__"))))
    calls().call_function(polyfill("ask_for_length"), {borrow(iterable)}, {});
  while (py::object item = iter_next(iterator)) out.append(item);
  took_iterator |= PyIter_Check(iterable.ptr()) != 0;
  return std::move(out);
}

// As list_of, for what changes an object meanwhile: an error on the way leaves it changed in part.
py::object Iterators::items_to_add(py::handle iterable, bool asks) {
  try {
    return list_of(iterable, asks);
  } catch (py::error_already_set&) {
    throw Break(BreakId::side_effect, "an iterator that raises while its items are added");
  }
}

// -------------------------------------------------------------------------------------- generators

// Runs a generator to its next yield, which gives `sent` or raises `thrown`. Null: it has returned.
py::object Iterators::resume_generator(LazyIterator& g, py::object sent, py::object thrown) {
  if (g.running && stands_in(g.stand_in))  // the original is no generator
    throw Break(BreakId::instruction, "an iterator of itertools is asked while it runs");
  if (g.running) raise(PyExc_ValueError, "generator already executing");
  returned_ = py::none();
  if (g.done || (!g.started && thrown)) {
    const bool of_code = !std::exchange(g.done, true);
    if (kReplacesEarlyStops && thrown && of_code &&
        PyErr_GivenExceptionMatches(thrown.ptr(), PyExc_StopIteration))
      raise_instead_of_end(thrown);
    if (thrown) reraise_value(thrown);
    return {};
  }
  if (!g.started && !sent.is_none())
    raise(PyExc_TypeError, "can't send non-None value to a just-started generator");
  TracedFrame& f = *g.frame;
  if (frames().stack().size() > kMaxInlined ||
      static_cast<int>(frames().stack().size()) >= recursion_left())
    throw Break(BreakId::deep_inlining, "generators in generators");
  g.running = true;
  const auto stop = c10::make_scope_exit([&g] { g.running = false; });
  g.started = true;
  if (thrown && delegates(f)) {
    const py::object inner = f.stack.back();
    if (python_method(inner.ptr(), py::str("throw").ptr()) != nullptr)
      throw Break(BreakId::instruction, "throw into an object with a method throw");
    LazyIterator* l = lazy(inner);
    if (l && l->frame) {
      try {
        if (PyErr_GivenExceptionMatches(thrown.ptr(), PyExc_GeneratorExit)) {
          close_generator(*l);
        } else {
          if (py::object value = resume_generator(*l, py::none(), thrown)) return value;
          end_delegation(f, returned_);
          thrown = py::object();
        }
      } catch (py::error_already_set& e) {
        thrown = e.value();
      }
    }
  }
  auto end = [&] {
    g.done = true;
    f.fast.clear();
    f.stack.clear();
  };
  py::object value;
  try {
    value = frames().interpret(f, std::move(sent), std::move(thrown));
  } catch (py::error_already_set& e) {
    end();
    if (!e.matches(PyExc_StopIteration)) throw;
    raise_instead_of_end(e.value());
  }
  if (f.yielded) return value;
  end();
  returned_ = value;
  return {};
}

// `returned_` is what it has returned meanwhile.
void Iterators::close_generator(LazyIterator& g) {
  returned_ = py::none();
  if (g.done || !g.started) {
    g.done = true;
    return;
  }
  const py::object exit = py::handle(PyExc_GeneratorExit)();
  PyException_SetContext(exit.ptr(), handled_exception());  // as of any error that is raised here
  try {
    if (resume_generator(g, py::none(), exit))
      raise(PyExc_RuntimeError, "generator ignored GeneratorExit");
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_GeneratorExit) && !e.matches(PyExc_StopIteration)) throw;
    returned_ = py::none();
  }
}

// The exception that throw(type, value, traceback) raises.
py::object Iterators::thrown_by(const Arguments& args) {
  if (args.empty() || args.size() > 3) raise(PyExc_TypeError, "throw expected 1 to 3 arguments");
  py::object type = args[0], value = args.size() > 1 ? args[1] : py::none();
  if (PyExceptionInstance_Check(type.ptr()) && value.is_none()) return type;
  if (!PyExceptionClass_Check(type.ptr()))
    throw Break(BreakId::instruction, "throw of what is no exception");
  if (PyObject_IsInstance(value.ptr(), type.ptr()) == 1) return value;
  Arguments parts;
  if (PyTuple_Check(value.ptr()))
    for (py::handle part : value) parts.push_back(borrow(part));
  else if (!value.is_none())
    parts.push_back(value);
  return calls().call(type, std::move(parts));
}

// A method of a generator, or of another lazy iterator.
py::object Iterators::call_lazy_method(LazyIterator& l, const std::string& name,
                                       const Arguments& args) {
  const py::object held = l.stand_in;
  if (name == "__iter__" && args.empty()) return held;
  if (name == "close" && l.frame && args.empty()) {
    close_generator(l);
    return kCloseReturns ? returned_ : py::none();
  }
  py::object item;
  if (name == "__next__" && args.empty())
    item = next_of(l);
  else if (name == "send" && l.frame && args.size() == 1)
    item = resume_generator(l, args[0], {});
  else if (name == "throw" && l.frame)
    item = resume_generator(l, py::none(), thrown_by(args));
  else
    throw Break(BreakId::builtin_call, Py_TYPE(held.ptr())->tp_name, ".", name);
  if (!item) stop_iteration();
  return item;
}

// Raised where an iterator is at its end; a generator's return value is in it.
void Iterators::stop_iteration() {
  Arguments value;
  if (returned_ && !returned_.is_none()) value.push_back(returned_);
  raise_value(calls().call_real(py::handle(PyExc_StopIteration), value, {}));
}

// What only the interpreter holds goes, as in CPython: a generator in a try or with is closed.
void Iterators::close_dropped_iterators() {
  for (size_t i = 0; i < lazies_.size();) {
    if (Py_REFCNT(lazies_[i]->stand_in.ptr()) > 1) {
      i++;
      continue;
    }
    const std::unique_ptr<LazyIterator> dropped = std::move(lazies_[i]);
    lazies_.erase(lazies_.begin() + static_cast<ptrdiff_t>(i));
    if (dropped->running)
      throw Break(BreakId::instruction, "a generator that is dropped while it runs");
    if (is_open_generator(*dropped)) {
      try {
        close_generator(*dropped);
      } catch (py::error_already_set&) {  // Python would print it and go on
        throw Break(BreakId::instruction, "a generator that raises when it is dropped");
      }
    }
    i = 0;  // what it held may be next
  }
}

// Suspended in a try or with: its end runs code.
bool Iterators::is_open_generator(const LazyIterator& l) {
  return l.frame && l.started && !l.done && l.frame->bytecode->range_at(suspended_at(*l.frame));
}

}  // namespace oxy::python
