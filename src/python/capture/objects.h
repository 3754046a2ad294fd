// What CPython's types do with objects: attributes, items, operators, comparisons.
#pragma once

#include "python/capture/part.h"

namespace oxy::python {

class Objects : public Part {
 public:
  using Part::Part;

  py::object load_attr(py::handle o, py::handle name);
  // `generic`: as object.__getattribute__, whatever the class says.
  py::object load_instance_attr(py::handle o, py::handle name, bool generic = false);
  PyObject* method_by_other_name(PyTypeObject* type, py::handle name);
  py::object found_attr(py::handle o, py::handle name);
  py::object module_member(py::handle module, py::handle name);
  py::object instance_dict(py::handle o);
  py::object existing_dict(py::handle dict, SourceId source);
  py::object class_dict(py::handle proxy);
  void guard_code(py::handle function);
  PyObject* type_member(PyTypeObject* type, py::handle name);
  void guard_kind_of(PyObject* member);
  PyObject* special_method(py::handle o, py::handle name);
  // `value` is null where the attribute is deleted.
  void store_generic_attr(py::handle o, py::handle name, py::handle value);
  void store_attr(py::handle o, py::handle name, py::handle value);
  bool truth(py::handle o);
  // That of a tensor whose number is known, or a bool.
  std::optional<bool> known_truth(py::handle o);
  bool has_torch_function(py::handle o);
  bool asks_class(const Arguments& args);
  py::object type_of(py::handle o);
  PyObject* user_method(py::handle tensor, const std::string& name);
  std::optional<Py_ssize_t> place_in(py::handle sequence, const py::object& item);
  // `generic`: as the builtin base does it, whatever the class says.
  py::object subscript(py::handle o, py::handle key, bool generic = false);
  void store_subscript(py::handle o, py::handle key, py::handle value);
  py::object contains(py::handle container, py::handle item, bool generic = false);
  py::object compare(py::handle a, py::handle b, int op);
  void delete_subscript(py::handle o, py::handle key);
  std::optional<py::object> call_operator(py::handle function, const std::string& name,
                                          const Arguments& args);
  // An operator on tensors, or on constants; `compute`: or on numbers that nobody has looked at.
  py::object operate(py::handle function, const Arguments& args);
  py::object compute(const py::object& function, const Arguments& args);
  std::optional<py::object> ask_operands(const std::string& name, const Arguments& args);
  py::object with_indices(const py::object& key, bool of_tensor = true);

 private:
  py::object find_attr(py::handle o, py::handle name);
  py::object made_by_factory(py::handle o);
  py::object load_super_attr(py::handle super, py::handle name);
  py::object metatype_attr(py::handle type, py::handle name);
  bool is_existing_tuple(py::handle o);  // of a class of its own
  py::object load_type_attr(py::handle type, py::handle name);
  py::object bind(py::handle descriptor, py::handle o, PyTypeObject* type, py::handle name);
  void delete_member(PyTypeObject* type, py::handle dict, py::handle name);
  py::object module_dict(py::handle module);
  py::object function_attr(py::handle function, py::handle name);
  py::object call_getter(py::handle descriptor, py::handle o, py::handle type, py::handle name);
  void call_setter(PyObject* descriptor, py::handle o, py::handle name, py::handle value);
  bool is_tensor_operand(py::handle o);
  py::object as_index(const py::object& key);
  py::object with_numbers_of_tensors(const py::object& key, bool selects = true);
  bool is_of_numpy_scalars(const std::string& name, const Arguments& args) const;
  Done ask_beside_tensor(const std::string& name, py::handle function, const Arguments& args);
  bool differ_in_kind(py::handle a, py::handle b);
  std::optional<bool> are_equal_items(const py::object& a, const py::object& b);
  std::optional<bool> are_equal_dicts(const py::dict& a, const py::dict& b);
  std::optional<py::object> compare_items(const std::string& name, py::handle function,
                                          const Arguments& args);
  std::optional<py::object> change_in_place(const std::string& name, const Arguments& args);
};

}  // namespace oxy::python
