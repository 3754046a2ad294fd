// Functions of the standard library that are written in C and call what they are given: here they are Python, which the
// interpreter follows like any other. CPython itself never runs this text.
#include <pybind11/eval.h>

#include "python/capture/tracer.h"

namespace oxy::python {
namespace {

// By the name that they have in itertools. Each takes its iterator at once, as the original does.
constexpr const char* kItertools = R"(
def takewhile(predicate, iterable, /):
    return _takewhile(predicate, iter(iterable))

def _takewhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            return
        yield item

def dropwhile(predicate, iterable, /):
    return _dropwhile(predicate, iter(iterable))

def _dropwhile(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator

def filterfalse(predicate, iterable, /):
    return _filterfalse(predicate, iter(iterable))

def _filterfalse(predicate, iterator):
    for item in iterator:
        if not (item if predicate is None else predicate(item)):
            yield item

def starmap(function, iterable, /):
    return _starmap(function, iter(iterable))

def _starmap(function, iterator):
    for arguments in iterator:
        yield function(*arguments)
)";

}  // namespace

py::object polyfill_of(py::handle callable) {
  static const auto& table = *[] {
    auto* made = new std::unordered_map<PyObject*, py::object>();
    const py::module_ itertools = py::module_::import("itertools");
    py::dict names;
    names["__name__"] = "oxyfuel.polyfills";
    py::exec(kItertools, names);
    for (const char* name : {"takewhile", "dropwhile", "filterfalse", "starmap"})
      made->emplace(py::object(itertools.attr(name)).release().ptr(), names[name]);
    return made;
  }();
  auto it = table.find(callable.ptr());
  return it == table.end() ? py::object() : it->second;
}

}  // namespace oxy::python
