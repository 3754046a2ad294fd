// What captured code writes to what was there before, to be done once the graph has run.
#pragma once

#include "python/capture/heap.h"

namespace oxy::python {

enum SetChange : int { kDiscarded, kPut, kPopped };

class Effects : public Part {
 public:
  using Part::Part;

  Writes& writes_of(py::handle o);
  py::object written(py::handle dict, py::handle key);
  py::object dict_get(py::handle dict, py::handle key);  // null where it is not there
  bool dict_has(py::handle dict, py::handle key);
  void dict_write(py::handle dict, py::handle key, py::handle value);
  void dict_delete(py::handle dict, py::handle key);
  void dict_update(py::handle dict, const Arguments& args, const Keywords& kwargs);
  py::object sequence_to_write(py::handle o);
  void sort(py::object list, const Keywords& kwargs);
  void set_put(py::handle set, py::handle item, bool in);
  std::optional<py::object> change_existing(py::handle self, const std::string& name,
                                            Arguments& args, Keywords& kwargs);
  py::object read_cell(py::handle cell);
  void write_cell(py::handle cell, py::handle value);
  void write_attribute(py::handle o, py::handle name, py::handle value);
  PyObject* lookup(PyTypeObject* type, py::handle name);
  bool is_written_on(PyTypeObject* type, py::handle name);
  void write_type(py::handle type, py::handle name, py::handle value);
  void guard_distinct();

  const std::vector<py::object>& all_written() const { return written_; }
  bool no_type_is_written() const { return type_writes_.empty(); }
  size_t count() const { return writes_; }

 private:
  bool check_key(py::handle key);
  std::optional<py::object> dict_method(py::handle dict, const std::string& name, Arguments& args,
                                        Keywords& kwargs);
  std::optional<py::object> list_method(py::handle list, const std::string& name, Arguments& args,
                                        Keywords& kwargs);
  std::optional<py::object> deque_method(py::handle deque, const std::string& name, Arguments& args,
                                         Keywords& kwargs);
  py::object pop_from_set(py::handle set);
  std::optional<py::object> set_method(py::handle set, const std::string& name, Arguments& args);

  std::vector<py::object> written_;  // what has `Writes`, in the order of the first
  std::unordered_map<PyObject*, std::unique_ptr<Writes>> type_writes_;
  size_t writes_ = 0;  // to what was there before
};

}  // namespace oxy::python
