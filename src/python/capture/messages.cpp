// Warnings and log messages of captured code: made once the graph has run and what was written is
// done, with the place in the code that they came from. What could raise, or show more than
// constants, breaks.
#include <frameobject.h>

#include "python/capture/capture.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/cpython/changes.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

int line_of(const TracedFrame& f) {
  return f.bytecode->instructions[f.next > 0 ? f.next - 1 : 0].location.line;
}

py::module_ warnings() { return py::module_::import("warnings"); }

// While it lives, the filters of the module warnings are others.
class OtherFilters {
 public:
  explicit OtherFilters(py::handle filters) : before_(warnings().attr("filters")) {
    warnings().attr("filters") = filters;
  }
  ~OtherFilters() {
    const py::error_scope pending;
    boundary([this] { warnings().attr("filters") = before_; });
  }
  OtherFilters(const OtherFilters&) = delete;
  OtherFilters& operator=(const OtherFilters&) = delete;

 private:
  py::object before_;
};

// (message, category, file, line, globals, filters or None for those of the call): as warnings.warn
// in a frame that stands there.
PyObject* warn_from(PyObject*, PyObject* args) {
  PyObject *message, *category, *file, *line, *globals, *filters;
  if (!PyArg_ParseTuple(args, "OOOOO!O", &message, &category, &file, &line, &PyDict_Type, &globals,
                        &filters))
    return nullptr;
  auto body = [=] {
    std::optional<OtherFilters> others;
    if (filters != Py_None) others.emplace(py::list(borrow(filters)));
    const auto dict = py::reinterpret_borrow<py::dict>(globals);
    const py::object registry = dict.attr("setdefault")("__warningregistry__", py::dict());
    const py::object module = dict.attr("get")("__name__", "<string>");
    return member_of<"_warnings", "warn_explicit">()(py::handle(message), py::handle(category),
                                                     py::handle(file), py::handle(line), module,
                                                     registry)
        .release()
        .ptr();
  };
  return boundary(body, nullptr);
}

// What is to be called where the filters have changed; None where it has another name.
const py::object& filters_mutated() {
  static const py::object& found = *new py::object(
      py::getattr(py::module_::import("_warnings"), "_filters_mutated", py::none()));
  return found;
}

// (logger, level, file, line, message, arguments, function): as Logger._log called from there.
PyObject* log_from(PyObject*, PyObject* args) {
  auto body = [=] {
    const py::tuple a = py::reinterpret_borrow<py::tuple>(args);
    const py::object logger = a[0];
    const py::object record =
        logger.attr("makeRecord")(logger.attr("name"), a[1], a[2], a[3], a[4], a[5], py::none(),
                                  a[6], py::none(), py::none());
    return logger.attr("handle")(record).release().ptr();
  };
  return boundary(body, nullptr);
}

// The arguments by name; empty where there is one that is not among `names`.
py::dict by_name(const Arguments& args, const Keywords& kwargs,
                 std::initializer_list<const char*> names) {
  py::dict out;
  if (args.size() > names.size()) return {};
  for (size_t i = 0; i < args.size(); i++) out[*(names.begin() + i)] = args[i];
  for (const auto& [key, value] : kwargs) {
    const auto name = key.cast<std::string>();
    if (std::ranges::none_of(names, [&](const char* n) { return name == n; })) return {};
    out[key] = value;
  }
  return out;
}

bool is_all_constant(py::handle o) {
  if (!PyTuple_CheckExact(o.ptr())) return is_constant(o.ptr());
  return std::all_of(o.begin(), o.end(), [](py::handle i) { return is_all_constant(i); });
}

// The level of Logger.info and its kind; nothing for other functions.
std::optional<int> level_of(py::handle function) {
  static const auto& levels = *[] {
    auto* all = new std::vector<std::pair<py::object, int>>();
    const py::object& logger = member_of<"logging", "Logger">();
    for (const auto& [name, level] :
         {std::pair("debug", 10), {"info", 20}, {"warning", 30}, {"error", 40}, {"critical", 50}})
      all->emplace_back(logger.attr(name), level);
    return all;
  }();
  for (const auto& [method, level] : levels)
    if (function.is(method)) return level;
  return std::nullopt;
}

// A size or float that each call has another one for, or a tuple with such.
bool is_of_symbols(py::handle o) {
  if (!PyTuple_Check(o.ptr())) return is_symbolic(o);
  return std::all_of(o.begin(), o.end(),
                     [](py::handle i) { return is_symbolic(i) || is_constant(i.ptr()); });
}

bool is_of_logging(py::handle type) {
  const std::string module = module_of(type);
  return module == "logging" || module.starts_with("logging.");
}

// What functions and objects of the user's hold that they may change: containers, the dicts of
// objects and cells.
void note_reached(py::handle o, std::unordered_set<PyObject*>& reached, int depth) {
  constexpr int kMaxDepth = 4;
  constexpr size_t kMost = 10'000;
  PyObject* p = o.ptr();
  if (depth == kMaxDepth || reached.size() >= kMost || p == nullptr || is_tensor_object(p) ||
      PyModule_Check(p) || PyType_Check(p))
    return;
  const auto note = [&](py::handle part) { note_reached(part, reached, depth + 1); };
  if (PyDict_Check(p)) {
    if (!reached.insert(p).second) return;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(o)) note(value);
  } else if (PyList_Check(p) || PyTuple_Check(p) || PyAnySet_Check(p) || is_deque(o)) {
    if (!reached.insert(p).second) return;
    for (py::handle item : plain_list(o)) note(item);
  } else if (PyCell_Check(p)) {
    if (reached.insert(p).second) note(PyCell_GET(p));
  } else if (PyMethod_Check(p)) {
    note(PyMethod_GET_SELF(p));
    note(PyMethod_GET_FUNCTION(p));
  } else if (PyFunction_Check(p)) {
    if (!reached.insert(p).second) return;
    auto* f = as_function(p);
    if (f->func_closure != nullptr)
      for (py::handle cell : py::reinterpret_borrow<py::tuple>(f->func_closure)) note(cell);
    const auto globals = py::reinterpret_borrow<py::dict>(f->func_globals);
    for (py::handle name : py::handle(f->func_code).attr("co_names"))
      if (PyObject* found = PyDict_GetItem(globals.ptr(), name.ptr())) note(found);
  } else if (is_of_python_class(p) && !is_of_logging(py::type::handle_of(o))) {
    if (!reached.insert(p).second) return;
    if (PyObject** dict = instance_dict_slot(p)) note(*dict);
    for (py::handle type : py::reinterpret_borrow<py::tuple>(Py_TYPE(p)->tp_mro))
      if (is_changeable_class(as_type(type)) && !is_of_logging(type))
        for (auto [name, member] : py::reinterpret_borrow<py::dict>(type_dict(as_type(type))))
          if (PyFunction_Check(member.ptr())) note(member);
  }
}

bool is_in_logging(const TracedFrame& f) {
  const std::string source = py::handle(f.code->co_filename).cast<std::string>();
  return source == member_of<"logging", "_srcfile">().cast<std::string>() ||
         (source.find("importlib") != std::string::npos &&
          source.find("_bootstrap") != std::string::npos);
}

py::object as_object(PyFrameObject* frame) { return owned(reinterpret_cast<PyObject*>(frame)); }

// (message, category, level or 0, file, line, globals): `level` is counted from the caller of
// warnings.warn, and frames in front of `boundary` stand for the captured ones.
py::tuple kept(py::handle message, py::handle category, int64_t level, py::handle boundary) {
  py::object frame = as_object(reinterpret_cast<PyFrameObject*>(Py_XNewRef(PyEval_GetFrame())));
  while (frame && !frame.is(boundary) && --level > 0)
    frame = as_object(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr())));
  if (!frame || frame.is(boundary))
    return py::make_tuple(message, category, std::max<int64_t>(level, 1), py::none(), 0,
                          py::none());
  const int line = PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame.ptr()));
  return py::make_tuple(message, category, 0, frame.attr("f_code").attr("co_filename"), line,
                        frame.attr("f_globals"));
}

// In the place of warnings.warn. `self`: the list, the thread, the real one, the capture's frame.
PyObject* keep(PyObject* self, PyObject* args, PyObject* kwargs) {
  auto body = [=]() -> PyObject* {
    const auto held = py::reinterpret_borrow<py::tuple>(self);
    if (held[1].cast<unsigned long>() != PyThread_get_thread_ident())
      return PyObject_Call(py::object(held[2]).ptr(), args, kwargs);
    static const char* names[] = {"message", "category", "stacklevel", "source", nullptr};
    PyObject *message = nullptr, *category = Py_None, *source = Py_None;
    Py_ssize_t level = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OnO", const_cast<char**>(names), &message,
                                     &category, &level, &source))
      return nullptr;
    if (category == Py_None) category = PyExc_UserWarning;
    py::list(held[0]).append(kept(message, category, level, held[3]));
    return py::none().release().ptr();
  };
  return boundary(body, nullptr);
}

PyCFunction as_function(PyCFunctionWithKeywords f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

}  // namespace

TorchWarnings::TorchWarnings(py::handle callable) {
  if (!callable || !PyFunction_Check(callable.ptr())) return;
  static PyMethodDef method = {"warn", as_function(keep), METH_VARARGS | METH_KEYWORDS, nullptr};
  warn_ = warnings().attr("warn");
  auto* frame = reinterpret_cast<PyObject*>(PyEval_GetFrame());
  const py::object boundary = frame ? borrow(frame) : py::object(py::none());
  const py::tuple self = py::make_tuple(kept_, PyThread_get_thread_ident(), warn_, boundary);
  warnings().attr("warn") = owned(PyCFunction_New(&method, self.ptr()));
}

TorchWarnings::~TorchWarnings() {
  if (!warn_) return;
  const py::error_scope pending;  // the capture may end in an error
  boundary([this] {
    const py::module_ module = warnings();
    PyObject* now = py::object(module.attr("warn")).ptr();  // held by the module
    const bool ours = PyCFunction_Check(now) && PyCFunction_GetFunction(now) == as_function(keep);
    if (ours) module.attr("warn") = warn_;
  });
}

Unwarned::Unwarned() {
  static const py::list& none = *new py::list(
      py::make_tuple(py::make_tuple("ignore", py::none(), borrow(PyExc_Warning), py::none(), 0)));
  if (!kItertoolsWarn) return;
  filters_ = warnings().attr("filters");
  warnings().attr("filters") = none;
}

Unwarned::~Unwarned() {
  if (!filters_) return;
  const py::error_scope pending;
  boundary([this] { warnings().attr("filters") = filters_; });
}

std::vector<TorchWarning> TorchWarnings::given() const {
  std::vector<TorchWarning> out;
  for (py::handle one : kept_) {
    const auto t = py::reinterpret_borrow<py::tuple>(one);
    out.push_back({t[0], t[1], t[2].cast<size_t>(), t[3], t[5], t[4].cast<int>()});
  }
  return out;
}

std::optional<py::object> Calls::call_that_tells(py::handle callable, Arguments& args,
                                                 Keywords& kwargs) {
  const py::object& logger = member_of<"logging", "Logger">();
  static const py::object& log = *new py::object(logger.attr("_log"));
  static const py::object& enabled = *new py::object(logger.attr("isEnabledFor"));
  if (callable.is(member_of<"_warnings", "warn">())) return warn_behind(args, kwargs);
  if (callable.is(filters_mutated()) && args.empty() && kwargs.empty()) {
    behind_.emplace_back(borrow(callable), Arguments());
    return py::none();
  }
  if (callable.is(log)) return log_behind(args, kwargs);
  const auto is_made_by_call = [this](const py::object& o) -> bool {
    return numbers().is_deferred_text(o) || (mentions(o, is_symbolic, false) && is_of_symbols(o));
  };
  if (const auto level = level_of(callable);
      level && kwargs.empty() && args.size() >= 2 && Py_TYPE(args[0].ptr()) == as_type(logger) &&
      heap().exists(args[0]) && std::ranges::any_of(args, is_made_by_call)) {
    if (!objects().truth(call(enabled, {args[0], py::int_(*level)}))) return py::none();
    const Arguments values(args.begin() + 2, args.end());
    return log_behind({args[0], py::int_(*level), args[1], tuple_of(values)}, {});
  }
  // It keeps its answers; the first is found under a lock.
  if (callable.is(enabled) && args.size() == 2 && kwargs.empty() && heap().exists(args[0]) &&
      Py_TYPE(args[0].ptr()) == as_type(logger) && PyLong_CheckExact(args[1].ptr()) &&
      !heap().tracked(args[0])->writes)
    enabled(args[0], args[1]);
  return std::nullopt;
}

// No filter makes an exception of a warning, and nobody but Python shows it: captured code sees no
// list that gets it, or breaks in front of that.
void Calls::require_harmless_warnings() {
  const py::module_ module = warnings();
  const py::object shows = objects().load_attr(module, py::str("showwarning"));
  if (!shows.is(py::object(module.attr("_showwarning_orig"))))
    throw Break(BreakId::builtin_call, "warnings.showwarning is the user's");
  const py::str name("_showwarnmsg_impl");
  const py::object before = module.attr(name), dict = module.attr("__dict__");
  const py::object list = py::getattr(before, "__self__", py::none());
  const auto known =
      heap().by_source().find(heap().sources.dict_item(heap().tracked(dict)->source, name));
  const py::object now = effects().written(dict, name);
  if ((now && (known == heap().by_source().end() || !now.is(known->second))) ||
      (heap().exists(list) && heap().root_of(heap().source_of(list)).kind == SourceKind::Local))
    throw Break(BreakId::builtin_call, "a warning that is recorded");
  if (PyList_Check(list.ptr())) told_late_.insert(list.ptr());
  auto is_error = [](py::handle action) {
    return !PyUnicode_Check(action.ptr()) || action.cast<std::string>() == "error";
  };
  bool raises = is_error(objects().load_attr(module, py::str("defaultaction")));
  for (py::handle filter : heap().contents(objects().load_attr(module, py::str("filters"))))
    raises |= !PyTuple_Check(filter.ptr()) || is_error(py::tuple(borrow(filter))[0]);
  if (raises) throw Break(BreakId::builtin_call, "a warning that a filter makes an exception");
}

py::object Calls::warn_behind(const Arguments& args, const Keywords& kwargs) {
  const py::dict given = by_name(args, kwargs, {"message", "category", "stacklevel", "source"});
  auto refuse = [] { throw Break(BreakId::builtin_call, "_warnings.warn"); };
  auto part = [&](const char* name, py::object otherwise) {
    return given.contains(name) ? py::object(given[name]) : otherwise;
  };
  py::object message = part("message", py::none());
  py::object category = part("category", py::none());
  // An object whose class says nothing else than its text. It is made once the graph has run, with
  // what it has by then.
  py::object words = message;
  if (PyExceptionInstance_Check(message.ptr()) && !heap().exists(message)) {
    PyTypeObject* type = Py_TYPE(message.ptr());
    const py::tuple given_to_it = message.attr("args");
    auto* base = reinterpret_cast<PyTypeObject*>(PyExc_Warning);
    if (type->tp_init == base->tp_init && type->tp_str == base->tp_str && given_to_it.size() == 1 &&
        type->tp_new == base->tp_new && PyType_IsSubtype(type, base)) {
      category = type_object(type);
      words = given_to_it[0];
    }
  }
  if (category.is_none()) category = borrow(PyExc_UserWarning);
  const py::object level = part("stacklevel", py::int_(1));
  if (!PyUnicode_CheckExact(words.ptr()) || !part("source", py::none()).is_none() ||
      !PyType_Check(category.ptr()) || !PyLong_CheckExact(level.ptr()) ||
      PyObject_IsSubclass(category.ptr(), PyExc_Warning) != 1)
    refuse();
  const auto counted = std::max<int64_t>(level.cast<int64_t>(), 1);
  warn_behind({message, category, static_cast<size_t>(counted), {}, {}});
  return py::none();
}

void Calls::warn_behind(TorchWarning warning) {
  if (warning.level > frames().stack().size()) throw Break(BreakId::builtin_call, "_warnings.warn");
  require_harmless_warnings();
  if (warning.level > 0) {
    const TracedFrame& f = *frames().stack()[frames().stack().size() - warning.level];
    warning.file = borrow(f.code->co_filename);
    warning.line = line_of(f);
    warning.globals = frames().globals_of(f);
  }
  objects().existing_dict(warning.globals, heap().sources.pinned(warning.globals, "G"));
  const py::object filters = objects().load_attr(warnings(), py::str("filters"));
  const bool are_calls = is_state_of_warnings(filters) && !heap().tracked(filters)->writes;
  behind_.emplace_back(
      function_object<warn_from>("warn_from"),
      Arguments{warning.message, warning.category, warning.file, py::int_(warning.line),
                warning.globals,
                are_calls ? py::object(py::none()) : py::tuple(heap().contents(filters))});
}

// What is said behind the graph is said with the filters that the call has found.
bool Calls::is_state_of_warnings(py::handle o) {
  const py::module_ module = warnings();
  return o.is(py::object(module.attr("__dict__"))) || o.is(py::object(module.attr("filters")));
}

// Handlers, filters and formatters of the user's may change what they reach, behind the graph.
// Which ones there are is guarded, once.
void Calls::note_handlers(py::object logger) {
  std::unordered_set<PyObject*> reached;
  const auto part_of = [&](const py::object& o, const char* name) {
    return objects().load_attr(o, py::str(name));
  };
  const auto note = [&](const py::object& part) {
    if (heap().exists(part)) heap().guard(GuardKind::IdIs, heap().source_of(part), part);
    note_reached(part, reached, 0);
    return part;
  };
  const auto note_list = [&](const py::object& o, const char* name) {
    const py::list parts(heap().contents(part_of(o, name)));
    for (py::handle part : parts) note(borrow(part));
    return parts;
  };
  while (!logger.is_none() && tell_.insert(logger.ptr()).second) {
    note_list(logger, "filters");
    for (py::handle handler : note_list(logger, "handlers")) {
      if (!tell_.insert(handler.ptr()).second) continue;
      note_list(borrow(handler), "filters");
      note(part_of(borrow(handler), "formatter"));
    }
    if (!objects().truth(part_of(logger, "propagate"))) break;
    logger = part_of(logger, "parent");
  }
  told_late_.insert(reached.begin(), reached.end());
}

py::object Calls::log_behind(const Arguments& args, const Keywords& kwargs) {
  const py::dict given =
      by_name(args, kwargs,
              {"self", "level", "msg", "args", "exc_info", "extra", "stack_info", "stacklevel"});
  auto refuse = [](const char* why) { throw Break(BreakId::builtin_call, why); };
  for (const char* name : {"exc_info", "extra", "stack_info"})
    if (given.contains(name) && objects().truth(given[name]))
      refuse("a log message with more than its text");
  if (!given.contains("args")) refuse("Logger._log");
  const py::object logger = given["self"], message = given["msg"], values = given["args"];
  const auto is_known = [this](py::handle o) {
    return is_all_constant(o) || is_of_symbols(o) || numbers().is_deferred_text(borrow(o));
  };
  const bool known = PyTuple_CheckExact(values.ptr()) &&
                     std::all_of(values.begin(), values.end(), is_known) &&
                     (is_constant(message.ptr()) || numbers().is_deferred_text(message));
  if (!heap().exists(logger) || !known) refuse("a log message with more than constants");
  int64_t level = given.contains("stacklevel") ? given["stacklevel"].cast<int64_t>() : 1;
  const TracedFrame* at = nullptr;
  for (size_t i = frames().stack().size(); i-- > 0 && level > 0;)
    if (!is_in_logging(*frames().stack()[i])) level--, at = frames().stack()[i];
  if (level > 0 || at == nullptr) refuse("a log message that names a caller");
  note_handlers(logger);
  behind_.emplace_back(
      function_object<log_from>("log_from"),
      Arguments{logger, given["level"], borrow(at->code->co_filename), py::int_(line_of(*at)),
                message, values, borrow(at->code->co_name)});
  return py::none();
}

// A function with a cache that does nothing but log, such as the warning_once that transformers
// adds to loggers: called behind the graph with the same arguments, it says what it has not said
// yet. Its code is followed once to see that there is no more to it.
Done Calls::call_logging_once(py::handle callable, Arguments& args, Keywords& kwargs) {
  const py::object& logger = member_of<"logging", "Logger">();
  const py::object inside = py::getattr(callable, "__wrapped__", py::none());
  if (!kwargs.empty() || args.empty() || !PyFunction_Check(inside.ptr()) ||
      !heap().exists(args[0]) || !PyType_IsSubtype(Py_TYPE(args[0].ptr()), as_type(logger)))
    return std::nullopt;
  sizes().make_plain(args, kwargs);
  if (!std::all_of(args.begin() + 1, args.end(), [](py::handle a) { return is_all_constant(a); }))
    return std::nullopt;
  if (heap().exists(callable)) heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
  const size_t writes = effects().count(), behind = behind_.size();
  py::object out;
  try {
    out = call(inside, args, {});
  } catch (const Break& b) {  // inside of it nothing can be left
    throw Break(BreakId::builtin_call, "a function with a cache that logs: ", b.what());
  }
  if (!out.is_none() || effects().count() != writes)
    throw Break(BreakId::builtin_call, "a function with a cache that does more than log");
  behind_.resize(behind);
  behind_.emplace_back(borrow(callable), args);
  return py::none();
}

}  // namespace oxy::python
