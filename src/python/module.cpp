// The extension module oxyfuel._C: the settings table, the logs, what users tell a compiler; C++
// exceptions as Python's.
#include <map>

#include "pipeline/pipeline.h"
#include "python/bindings.h"
#include "python/capture/controls.h"
#include "python/capture/natives.h"
#include "python/compile_graph.h"
#include "python/cpython/boundary.h"
#include "python/cpython/compile_lock.h"
#include "python/inner_frames.h"
#include "support/check.h"
#include "support/log.h"
#include "support/machine.h"
#include "support/settings.h"
#include "torch_bridge/interpreter_vtable.h"

namespace oxy::python {
namespace {

py::list setting_rows() {
  static constexpr const char* kTypes[] = {"bool", "int", "real", "text"};
  py::list rows;
  for (const SettingInfo& s : setting_table()) {
    rows.append(py::make_tuple(s.name, kTypes[static_cast<int>(s.type)], s.default_text, s.env,
                               s.choices, s.help));
  }
  return rows;
}

Artifact artifact(const std::string& name) {
  for (size_t i = 0; i < artifact_table().size(); i++)
    if (artifact_table()[i].name == name) return static_cast<Artifact>(i);
  throw UserError(cat("unknown log artefact \"", name, "\""));
}

void bind_settings(py::module_& m) {
  py::register_exception<InternalError>(m, "InternalError", PyExc_RuntimeError);
  py::class_<Settings>(m, "Settings", "The settings of a compilation.")
      .def_static("from_env", &Settings::from_env, "The defaults, changed by the environment.")
      .def("set", &Settings::set)
      .def("copy", [](const Settings& s) { return Settings(s); })
      .def("get", &Settings::get)
      .def("__str__", &Settings::print);
  m.def("setting_table", &setting_rows,
        "(name, type, default, environment variable, choices, help) of each setting.");
  m.def("machine_text", [] { return print(host_machine()); }, "What kernels are made for.");
  m.def(
      "compiler_text",
      [](const Settings& settings) {
        std::string why;
        const auto compiler = pipeline::compiler_for(settings, library_folder(), why);
        return compiler ? compiler->name() : cat("none: ", why);
      },
      "The compiler that the settings ask for, or why there is none.");
  m.def("set_logs", [](const std::string& text) { log_configuration = LogSet::parse(text); });
  m.def("log", [](const std::string& name, const std::string& header, const std::string& text) {
    log(artifact(name), header, text);
  });
  m.def("set_control", [](py::object callable, const std::string& name, py::object substitute) {
    static const std::map<std::string, Control> names = {{"in_graph", Control::InGraph},
                                                         {"not_in_graph", Control::NotInGraph},
                                                         {"constant", Control::Constant},
                                                         {"substitute", Control::Substitute}};
    set_control(callable, names.at(name), std::move(substitute));
  });
  m.def(
      "native_table",
      [] {
        py::list rows;
        for (const Native& n : native_table())
          rows.append(py::make_tuple(n.module, n.type, n.name,
                                     (n.traits & native::From312) != 0   ? 12
                                     : (n.traits & native::From311) != 0 ? 11
                                                                         : 10));
        return rows;
      },
      "(module, type, name, the first 3.x that has it) of what capture knows that is written in "
      "C.");
  m.def("set_stance", [](const std::string& name) { set_stance(stance_named(name)); });
  m.def("log_enabled", [](const std::string& name) { return log_enabled(artifact(name)); });
}

// A forked process has to forget the captures and compilations of threads that it does not have.
void forget_other_threads_after_forks() {
  const py::object module = py::module_::import("os");
  if (!py::hasattr(module, "register_at_fork")) return;
  module.attr("register_at_fork")(py::arg("after_in_child") = py::cpp_function([] {
                                    CompileLock::renew();
                                    forget_frames_of_other_threads();
                                    bridge::forget_recordings_of_other_threads();
                                  }));
}

}  // namespace

void raise_in_python() noexcept {
  try {
    throw;
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const py::builtin_exception& e) {
    e.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const sym::Undecided& e) {
    PyErr_SetString(member_of<"oxyfuel._C", "Undecided">().ptr(), e.what());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "an exception of C++ that is no std::exception");
  }
}

}  // namespace oxy::python

PYBIND11_MODULE(_C, m) {
  m.doc() = "Oxyfuel's compiler.";
  oxy::python::bind_settings(m);
  oxy::python::bind_recording(m);
  oxy::python::bind_execution(m);
  oxy::python::bind_internals(m);
  oxy::python::forget_other_threads_after_forks();
}
