// The frame evaluator: which frames are compiled, and which are refused.
#include "python/inner_frames.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "python/bound_arguments.h"
#include "python/cpython/boundary.h"
#include "python/cpython/frames.h"
#include "python/cpython/thread_state.h"

namespace oxy::python {
namespace {

thread_local std::shared_ptr<FrameCompiler> active;
thread_local PyObject* left_alone = nullptr;  // a code object
thread_local bool none_compiled = false;      // not even of everything
// The arguments of the frame that comes next, and its code.
thread_local Handed* handed = nullptr;
thread_local PyObject* handed_to = nullptr;
thread_local RefusedFrames::Refusal refusal;
thread_local std::string refused_name;
// Of all threads, those that want no collection of garbage; whether the first of them has switched
// it off.
int without_collections = 0;
bool collections_off = false;
thread_local int without_collections_here = 0;

void want_no_collections(int more) {
  without_collections_here += more;
  const int before = std::exchange(without_collections, without_collections + more);
  if (before == 0) collections_off = PyGC_Disable() != 0;
  if (without_collections == 0 && std::exchange(collections_off, false)) PyGC_Enable();
}

// Never freed: frames of every thread ask for it, to the end of the process.
std::shared_ptr<FrameCompiler>& everything() {
  static auto& table = *new std::shared_ptr<FrameCompiler>();
  return table;
}

std::shared_ptr<FrameCompiler> table_of_frames() {
  return active || none_compiled ? active : everything();
}

// Where the code of the standard library and of torch lies, and ours.
const std::vector<std::string>& foreign_folders() {
  static const auto& folders = *[] {
    auto* out = new std::vector<std::string>();
    // Without calls of Python functions, which would ask for this list: importing makes some while
    // a package is half imported.
    const auto modules = py::reinterpret_borrow<py::dict>(PyImport_GetModuleDict());
    for (const char* module : {"os", "torch", "oxyfuel"}) {
      const auto file = modules[module].attr("__file__").cast<std::string>();
      out->push_back(file.substr(0, file.rfind('/') + 1));
    }
    return out;
  }();
  return folders;
}

// Of those, and of the standard library's only what has none of these parts in its name.
bool is_in_folders(const std::string& file, std::initializer_list<const char*> others) {
  for (const std::string& folder : foreign_folders())
    if (file.starts_with(folder))
      return &folder != &foreign_folders()[0] ||
             std::ranges::none_of(others,
                                  [&](const char* part) { return file.find(part) != file.npos; });
  return false;
}

// Of a package that is imported. Without calls of Python functions.
bool is_of_package(const std::string& file, const char* package) {
  if (file.find(cat('/', package, '/')) == file.npos) return false;
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), package);
  PyObject* name = module && PyModule_Check(module) ? PyModule_GetFilenameObject(module) : nullptr;
  if (name == nullptr) return PyErr_Clear(), false;
  const auto of_package = owned(name).cast<std::string>();
  return file.starts_with(of_package.substr(0, of_package.rfind('/') + 1));
}

bool is_of_numpy(const std::string& file) { return is_of_package(file, "numpy"); }

// Packages whose code has nothing that a graph could hold: TorchDynamo leaves most of them alone,
// too (trace_rules.THIRDPARTY_SKIPLIST). NumPy's works on real arrays: captured code has other
// functions in its place. Bars of progress are in each run of torch's interpreter of graphs.
constexpr const char* kWithoutTensors[] = {
    "numpy",   "scipy",      "sympy",      "mpmath",   "pandas",     "sklearn",
    "skimage", "networkx",   "narwhals",   "tabulate", "tqdm",       "xarray",
    "numba",   "joblib",     "matplotlib", "PIL",      "hypothesis", "onnx",
    "pyarrow", "tensorflow", "jax",        "importlib"};

bool is_of_them(const std::string& file) {
  return file.starts_with("<frozen importlib") ||
         std::ranges::any_of(kWithoutTensors,
                             [&](const char* package) { return is_of_package(file, package); });
}

// The standard library's folder has the packages of others in it.
bool is_foreign(const std::string& file) {
  const auto& folders = foreign_folders();
  if (everything())
    return std::any_of(folders.begin() + 1, folders.end(),
                       [&](const std::string& folder) { return file.starts_with(folder); });
  return file.starts_with("<") || is_of_them(file) || is_in_folders(file, {"/site-packages/"});
}

// A name may have characters in it that UTF-8 has no bytes for.
std::string text_of(PyObject* name) {
  return steal(PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace")).cast<std::string>();
}

// What `holds` says of a file by its name, asked once.
template <bool (*holds)(const std::string&)>
bool of_file(PyObject* file) {
  static auto& known = *new std::unordered_map<PyObject*, bool>();  // holds the names
  auto it = known.find(file);
  if (it == known.end()) it = known.emplace(Py_NewRef(file), holds(text_of(file))).first;
  return it->second;
}

bool is_compiled_here(PyFunctionObject* function) {
  auto* code = code_of(function);
  constexpr int kNotPlain = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;  // no body of a class or module
  if ((code->co_flags & kFunction) != kFunction || (code->co_flags & kNotPlain) != 0) return false;
  if (function->func_closure != nullptr) return false;
  return !of_file<is_foreign>(code->co_filename);
}

// Of the standard library, torch and Oxyfuel, or made by them: what they do is known by their
// names.
bool is_library(const std::string& file) {
  if (file.starts_with("<frozen") || file == "<string>" || file == "<__array_function__ internals>")
    return true;
  for (const char* names_dtypes : {"core/_dtype.py", "core/numerictypes.py"})
    if (is_of_numpy(file) && file.ends_with(names_dtypes)) return true;
  return is_in_folders(file, {"/site-packages/", "/test/"});
}

// Python code of Oxyfuel's, and NumPy's, for which captured code has other functions.
bool is_own(const std::string& file) {
  return file.starts_with(foreign_folders().back()) || is_of_numpy(file);
}

// What signals call may run anywhere.
bool is_signal_handler(PyObject* code) {
  constexpr int kSignals = 64;
  const py::object get = py::module_::import("_signal").attr("getsignal");
  for (int i = 1; i <= kSignals; i++) {
    const py::object handler = get(i);
    PyObject* p =
        PyMethod_Check(handler.ptr()) ? PyMethod_GET_FUNCTION(handler.ptr()) : handler.ptr();
    if (PyFunction_Check(p) && PyFunction_GET_CODE(p) == code) return true;
  }
  return false;
}

bool is_refused(PyFunctionObject* function) {
  auto* code = code_of(function);
  return !is_library_code(code) &&
         PyUnicode_CompareWithASCIIString(code->co_name, "__del__") != 0 &&
         !is_signal_handler(function->func_code);
}

// A method of a library's that C code, which captured code has called, asks what an object is like.
bool asks_existing(PyFunctionObject* function, PyObject** parameters) {
  static const auto& asking = *new std::unordered_set<std::string_view>{
      "__eq__",       "__ne__",      "__lt__",     "__le__",   "__gt__",     "__ge__",
      "__hash__",     "__bool__",    "__len__",    "__iter__", "__next__",   "__reversed__",
      "__contains__", "__getitem__", "__str__",    "__repr__", "__format__", "__index__",
      "__int__",      "__float__",   "__complex__"};
  const auto* code = code_of(function);
  const char* name = PyUnicode_AsUTF8(code->co_name);
  if (name == nullptr) PyErr_Clear();
  // A tensor's is its address.
  static const py::object& of_tensor =
      *new py::object(member_of<"torch", "Tensor">().attr("__hash__"));
  return name != nullptr && asking.contains(name) && PyEval_GetFrame() == refusal.from &&
         function->func_code != PyFunction_GET_CODE(of_tensor.ptr()) &&
         std::any_of(parameters, parameters + code->co_argcount,
                     [](PyObject* o) { return o != nullptr && refusal.rules->exists(o); });
}

// A comparison or a hash that C code, which captured code has called, asks for: what it reads may
// have been there before, whatever the object is that it is asked of.
bool compares_or_hashes(PyFunctionObject* function, PyObject** parameters) {
  static const auto& asking = *new std::unordered_set<std::string_view>{
      "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"};
  const auto* code = code_of(function);
  const char* name = PyUnicode_AsUTF8(code->co_name);
  if (name == nullptr) PyErr_Clear();
  constexpr int kMore = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE;
  // Of a library's own code that runs meanwhile (Counter.__init__) what classes of the user's say,
  // methods that were generated for them, and what was there before.
  const auto is_of_user = [&] {
    return PyEval_GetFrame() == refusal.from || is_text(code->co_filename, "<string>") ||
           is_refused(function) ||
           std::any_of(parameters, parameters + code->co_argcount,
                       [](PyObject* o) { return o != nullptr && refusal.rules->exists(o); });
  };
  return name != nullptr && asking.contains(name) && is_of_user() && code->co_argcount > 0 &&
         code->co_kwonlyargcount == 0 && (code->co_flags & kMore) == 0 &&
         !of_file<is_own>(code->co_filename) &&
         std::all_of(parameters, parameters + code->co_argcount,
                     [](PyObject* o) { return o != nullptr; }) &&
         refusal.rules->answers(parameters[0]);
}

// The first import of a module: what its body calls runs once.
bool is_import(PyFunctionObject* function) {
  // Not by the attribute __code__: an audit hook would be told, and come here again.
  static const py::object& importing = *new py::object(
      py::reinterpret_borrow<py::dict>(PyImport_GetModuleDict())["_frozen_importlib"].attr(
          "_find_and_load"));
  return function->func_code == PyFunction_GET_CODE(importing.ptr()) && !everything();
}

// In the place of its frame, which gives the parameters away.
PyObject* call_compiled(FrameCompiler& table, PyFunctionObject* function, PyObject** parameters) {
  auto* code = code_of(function);
  const py::object compiled = table.inner(reinterpret_cast<PyObject*>(function));
  const int count = code->co_argcount + code->co_kwonlyargcount +
                    ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
  Handed taken;
  std::vector<PyObject*> given;
  for (int i = 0; i < count; i++) {
    given.push_back(parameters[i]);
    taken.push_back(owned(std::exchange(parameters[i], nullptr)));
  }
  return call_bound(compiled.ptr(), code, given.data(),
                    [&](PyObject* f, PyObject* const* args, size_t n, PyObject* kwnames) {
                      return table.call(f, args, n, kwnames, taken);
                    });
}

// By their code, the functions that oxyfuel.disable and torch.compiler.disable make.
bool is_disabling_code(PyCodeObject* code) {
  constexpr std::pair<const char*, const char*> kMade[] = {
      {"run", "oxyfuel/controls.py"},
      {"_fn", "torch/_dynamo/eval_frame.py"},
      {"nonrecursive_disable_wrapper", "torch/_dynamo/decorators.py"}};
  for (const auto& [name, file] : kMade)
    if (is_text(code->co_name, name) && text_of(code->co_filename).ends_with(file)) return true;
  return false;
}

bool is_disabled_frame(PyFunctionObject* function) {
  if (kFramesTellFunctions) return is_disabled(function);
  return is_disabling_code(code_of(function));
}

const py::object& set_dynamo_callback() {
  static const py::object& function =
      *new py::object(py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame"));
  return function;
}

// The callback that was there, if any.
py::object take_dynamo_callback() {
  static PyObject* const name = PyUnicode_InternFromString("torch._dynamo");
  if (PyDict_GetItemWithError(PyImport_GetModuleDict(), name) == nullptr) return {};
  py::object before = set_dynamo_callback()(py::none());
  return before.is_none() ? py::object() : before;
}

std::unordered_set<PyObject*>& left_whole() {
  static auto& codes = *new std::unordered_set<PyObject*>();
  return codes;
}

bool handle_frame(PyFunctionObject* function, PyObject** parameters, PyObject*& result) {
  if (parameters == nullptr) return false;
  if (handed != nullptr && function->func_code == handed_to) {
    std::exchange(handed, nullptr)->clear();
    remove_frame_handler();
  }
  if (running_hooks() > refusal.hooks) return false;  // no part of the program
  if (refusal.rules != nullptr) {
    if (compares_or_hashes(function, parameters)) {
      result = refusal.rules->answer(function, parameters);
      return true;
    }
    if (!is_library_code(code_of(function)) && is_signal_handler(function->func_code)) {
      const RefusedFrames allowed(nullptr);
      result = call_bound(reinterpret_cast<PyObject*>(function), code_of(function), parameters);
      return true;
    }
    if (!is_refused(function) && !asks_existing(function, parameters)) return false;
    refuse_frame(function);
    return true;
  }
  const std::shared_ptr<FrameCompiler> table = table_of_frames();
  if (!table || is_finalizing()) return false;
  if (function->func_code == std::exchange(left_alone, nullptr)) return false;
  if (table->has_made(function->func_code)) return false;
  if (is_disabled_frame(function) || is_import(function) ||
      (!left_whole().empty() && left_whole().contains(function->func_code))) {
    const InnerFrames none(nullptr);
    result = call_bound(reinterpret_cast<PyObject*>(function), code_of(function), parameters);
    return true;
  }
  if (!is_compiled_here(function)) return false;
  result = call_compiled(*table, function, parameters);
  return true;
}

}  // namespace

void refuse_frame(PyFunctionObject* function) {
  static PyObject* const type =
      PyErr_NewException("oxyfuel._C.Refused", PyExc_BaseException, nullptr);
  refused_name = text_of(function->func_qualname);
  PyErr_SetString(type, refused_name.c_str());
}

void leave_whole(PyObject* code) {
  if (left_whole().insert(code).second) Py_INCREF(code);
}

bool is_raised_by_signal(const py::error_already_set& e) {
  for (py::object at = e.trace(); at && !at.is_none(); at = at.attr("tb_next"))
    if (is_signal_handler(py::object(at.attr("tb_frame").attr("f_code")).ptr())) return true;
  return false;
}

static std::unordered_set<PyObject*>& left_calls() {
  static auto& codes = *new std::unordered_set<PyObject*>();
  return codes;
}

void leave_call(PyObject* code) {
  if (left_calls().insert(code).second) Py_INCREF(code);
}

bool is_left_call(PyObject* code) { return left_calls().contains(code); }

bool is_without_tensors(PyCodeObject* code) { return of_file<is_of_them>(code->co_filename); }

bool is_library_code(PyCodeObject* code) { return of_file<is_library>(code->co_filename); }

bool is_disabled(PyFunctionObject* function) {
  if (function->func_dict == nullptr) return false;
  for (const char* mark :
       {"_oxyfuel_disable", "_torchdynamo_disable", "_torchdynamo_orig_callable"})
    if (PyDict_GetItemString(function->func_dict, mark) != nullptr) return true;
  return false;
}

InnerFrames::InnerFrames(std::shared_ptr<FrameCompiler> table)
    : dynamo_(take_dynamo_callback()),  // before our evaluator is there
      outer_(std::exchange(active, std::move(table))),
      outer_none_(std::exchange(none_compiled, active == nullptr)) {
  if (active) add_frame_handler(handle_frame);
}

InnerFrames::~InnerFrames() {
  if (active) remove_frame_handler();
  active = std::move(outer_);
  none_compiled = outer_none_;
  if (!dynamo_) return;
  const py::error_scope pending;
  boundary([this] { set_dynamo_callback()(dynamo_); });
}

RefusedFrames::RefusedFrames(const FrameRules* rules)
    : outer_(std::exchange(refusal, {rules, PyEval_GetFrame(), running_hooks()})) {
  if (rules != nullptr) {
    foreign_folders();
    refused_name.clear();
    want_no_collections(1);
    add_frame_handler(handle_frame, /*every=*/true);
  }
}

RefusedFrames::~RefusedFrames() {
  if (refusal.rules != nullptr) {
    remove_frame_handler(/*every=*/true);
    want_no_collections(-1);
  }
  refusal = outer_;
}

void forget_frames_of_other_threads() {
  forget_handlers_of_other_threads();
  if (without_collections == 0) return;
  const int here = without_collections_here;
  want_no_collections(here - without_collections);
  without_collections_here = here;
}

std::string take_refused() { return std::exchange(refused_name, {}); }

py::object own_function(const char* module, const char* name) {
  const RefusedFrames allowed(nullptr);
  return py::module_::import(module).attr(name);
}

void compile_every_frame(std::shared_ptr<FrameCompiler> table) {
  foreign_folders();
  if (!everything()) add_lasting_frame_handler(handle_frame);
  everything() = std::move(table);
}

PyObject* call_handing_over(PyObject* function, PyObject* const* args, size_t nargsf,
                            PyObject* kwnames, Handed& arguments) {
  Handed* const outer = std::exchange(handed, &arguments);
  PyObject* const outer_code = std::exchange(handed_to, PyFunction_GET_CODE(function));
  add_frame_handler(handle_frame);
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  if (handed == &arguments) remove_frame_handler();  // there was no frame
  handed = outer;
  handed_to = outer_code;
  return result;
}

PyObject* call_left_alone(PyObject* function, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames, Handed* arguments) {
  PyObject* const outer =
      std::exchange(left_alone, table_of_frames() ? PyFunction_GET_CODE(function) : nullptr);
  PyObject* result = arguments ? call_handing_over(function, args, nargsf, kwnames, *arguments)
                               : PyObject_Vectorcall(function, args, nargsf, kwnames);
  left_alone = outer;  // there may have been no frame
  return result;
}

}  // namespace oxy::python
