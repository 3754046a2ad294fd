// Generators, and iterators written in C over them, which run as late as in Python.
#pragma once

#include "python/capture/frames.h"
#include "python/capture/numbers.h"

namespace oxy::python {

struct LazyIterator {
  py::object stand_in;                 // an empty iterator of its type
  std::unique_ptr<TracedFrame> frame;  // of a generator
  py::object function;                 // map, filter: called, or None
  std::vector<py::object> iterators;   // that it takes from; chain: the outer one, then the inner
  py::object count;                    // enumerate: the next number
  py::object bounds;                   // islice: a slice
  int64_t taken = 0, next = 0;         // islice: items taken, and the position of the next
  bool strict = false;                 // zip
  bool started = false, running = false, done = false;  // a generator
};

class Iterators : public Part {
 public:
  using Part::Part;

  LazyIterator* lazy(py::handle o);
  py::object make_generator(std::unique_ptr<TracedFrame> frame);
  std::optional<py::object> call_lazy_type(py::handle type, const Arguments& args,
                                           const Keywords& kwargs);
  py::object make_chain(py::object outer);
  py::object iterate(py::handle o);
  static bool goes_by_items(py::handle o);
  py::object iter_next(py::handle iterator);  // null at the end
  bool reaches_unfinished(PyObject* root);
  void refuse_to_end(PyObject* held);
  bool ends_iterator(const TracedFrame& frame);
  bool unwinding_ends_iterator(const TracedFrame& frame, size_t depth);
  [[noreturn]] void break_at_end_of_iterator();
  // `asks`: as what makes or extends a list or tuple, which asks how many items there will be.
  py::object list_of(py::handle iterable, bool asks = false);
  py::object items_to_add(py::handle iterable, bool asks = false);
  py::object resume_generator(LazyIterator& generator, py::object sent, py::object thrown);
  py::object call_lazy_method(LazyIterator& lazy, const std::string& name, const Arguments& args);
  [[noreturn]] void stop_iteration();
  void close_dropped_iterators();
  // Whether it is followed in the place of an iterator written in C, of another class.
  bool stands_in(py::handle o);
  void refuse_stand_in(py::handle o);
  static bool is_open_generator(const LazyIterator& lazy);

  bool empty() const { return lazies_.empty(); }
  const auto& all() const { return lazies_; }
  const py::object& returned() const { return returned_; }
  void forget_reached() { without_unfinished_.clear(); }

  bool took_iterator = false;  // the instruction went through one, which its end has moved

 private:
  void ask_for_length(py::handle o);
  py::object add_lazy(py::object stand_in, LazyIterator lazy);
  std::vector<py::object> iterators_of(std::span<const py::object> iterables);
  bool runs_alone(py::handle iterator);
  py::object next_of_chain(LazyIterator& chain);
  py::object next_of_islice(LazyIterator& islice);
  std::optional<Arguments> next_of_each(const LazyIterator& lazy);
  py::object next_of(LazyIterator& lazy);
  py::object next_of_existing(py::handle iterator);
  py::object take_existing(py::handle iterator);
  py::object driven_part(py::handle iterator, int64_t index, Py_ssize_t taken);
  py::object take_driving(py::handle iterator, Takes takes);
  bool has_plain_parts(py::handle iterator);
  size_t places_in_frames(py::handle o) const;
  bool is_last_place(py::handle o, size_t places = 1);
  void close_generator(LazyIterator& generator);
  py::object thrown_by(const Arguments& args);

  std::vector<std::unique_ptr<LazyIterator>> lazies_;  // in the order in which they were made
  py::object returned_;  // by the generator that `iter_next` has found at its end
  std::unordered_set<PyObject*> without_unfinished_;  // what holds no unfinished generator
};

// A generator, or an iterator that may hold one: code of the user's may run when it dies.
bool ends_late(PyObject* iterator);

}  // namespace oxy::python
