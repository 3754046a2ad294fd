// Objects as the captured code sees them: wrapping what was there before, what it contains, which
// objects are one object.
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include <random>

#include "python/capture/plan_rebuild.h"
#include "python/cpython/changes.h"
#include "python/cpython/types.h"
#include "python/guards/evaluate.h"
#include "support/check.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/input_signature.h"

namespace oxy::python {
namespace {

// As TorchDynamo names it: "L['x']" is L_x_.
std::string name_of_input(std::string_view source) {
  std::string out;
  for (char c : source) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (kept || !out.ends_with('_')) out += kept ? c : '_';
  }
  return out;
}

py::list values_of(py::handle dict) {
  py::list out;
  for (py::handle key : plain_list(dict)) out.append(held_at(dict, key));
  return out;
}

constexpr long kLeastShared = -5, kMostShared = 256;  // of these CPython has one object each

bool is_shared_int(PyObject* p) {
  int over = 0;
  const long value = PyLong_AsLongAndOverflow(p, &over);
  return over == 0 && value >= kLeastShared && value <= kMostShared;
}

bool is_shared_text(PyObject* p) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(p);
  return length == 0 || (length == 1 && PyUnicode_READ_CHAR(p, 0) < 256);
}

// A constant of the code, or one inside of a tuple, frozenset or slice among them.
bool has_constant(PyObject* constants, PyObject* p) {
  if (PySlice_Check(constants)) {
    auto* slice = reinterpret_cast<PySliceObject*>(constants);
    return slice->start == p || slice->stop == p || slice->step == p;
  }
  if (!PyTuple_Check(constants) && !PyFrozenSet_CheckExact(constants)) return false;
  for (py::handle item : py::tuple(borrow(constants)))
    if (item.ptr() == p || has_constant(item.ptr(), p)) return true;
  return false;
}

}  // namespace

bool is_callable_constant(PyObject* p) {
  return PyFunction_Check(p) || PyType_Check(p) || PyCFunction_Check(p) || PyModule_Check(p) ||
         is_unbound_native(p) || Py_TYPE(p) == &PyGetSetDescr_Type ||
         Py_TYPE(p) == &PyMemberDescr_Type;
}

py::dict hidden_fields(py::handle tuple) {
  PyTypeObject* type = Py_TYPE(tuple.ptr());
  if (!PyTuple_Check(tuple.ptr()) || PyType_HasFeature(type, Py_TPFLAGS_BASETYPE) ||
      !py::hasattr(type_object(type), "n_sequence_fields"))
    return {};
  return py::tuple(tuple.attr("__reduce__")())[1].cast<py::tuple>()[1];
}

py::object tuple_like(py::handle like, const py::object& items, const py::dict& hidden) {
  PyTypeObject* type = Py_TYPE(like.ptr());
  if (type == &PyTuple_Type) return py::tuple(items);
  // Its memory holds the hidden fields, too.
  if (!hidden.empty()) return type_object(type)(py::tuple(items), hidden);
  return steal(PyTuple_Type.tp_new(type, py::make_tuple(items).ptr(), nullptr));
}

bool is_enum_member(py::handle o) {
  return PyObject_TypeCheck(o.ptr(), as_type(member_of<"enum", "Enum">()));
}

// Enum members, ops of torch and the like: one object for the life of the process.
bool is_singleton(py::handle o) {
  const std::string_view type = Py_TYPE(o.ptr())->tp_name;
  return type == "OpOverload" || type == "OpOverloadPacket" || type.starts_with("numpy.dtypes.") ||
         is_enum_member(o);
}

namespace {

// The items, those behind others that stand where they were looked for first (set_add_entry, in
// Objects/setobject.c).
std::vector<py::object> behind_what_displaced_them(const PySetObject* set) {
  constexpr size_t kLinearProbes = 9;
  constexpr int kPerturbShift = 5;
  const auto mask = static_cast<size_t>(set->mask);
  std::vector<py::object> out;
  std::unordered_set<PyObject*> placed;
  auto is_free = [&](const setentry& entry) {
    auto perturb = static_cast<size_t>(entry.hash);
    size_t i = perturb & mask;
    // Once the perturbation is used up, every place comes in turn.
    constexpr size_t kPerturbed = 64 / kPerturbShift + 1;
    for (size_t round = 0; round <= kPerturbed + mask; round++) {
      const size_t last = i + kLinearProbes <= mask ? i + kLinearProbes : i;
      for (size_t at = i; at <= last; at++) {
        if (set->table + at == &entry) return true;
        if (!placed.contains(set->table[at].key)) return false;
      }
      perturb >>= kPerturbShift;
      i = (i * 5 + 1 + perturb) & mask;
    }
    return false;
  };
  while (true) {
    const size_t before = out.size();
    for (size_t at = 0; at <= mask; at++) {
      const setentry& entry = set->table[at];
      constexpr Py_hash_t kDeleted = -1;
      if (entry.key != nullptr && entry.hash != kDeleted && !placed.contains(entry.key) &&
          is_free(entry))
        out.push_back(borrow(entry.key));
    }
    if (out.size() == before) break;
    for (size_t i = before; i < out.size(); i++) placed.insert(out[i].ptr());
  }
  return out;
}

}  // namespace

std::optional<py::list> order_of_adding(py::handle set) {
  const py::list items = plain_list(set);
  auto lies_as_it_does = [&](const std::vector<py::object>& order) {
    const py::list again{py::set(py::list(tuple_of(order)))};
    bool same = again.size() == items.size();
    for (size_t i = 0; same && i < items.size(); i++)
      same = !is_one_for_all(items[i]) || items[i].is(again[i]);
    return same;
  };
  auto order = behind_what_displaced_them(reinterpret_cast<const PySetObject*>(set.ptr()));
  if (lies_as_it_does(order)) return py::list(tuple_of(order));
  // A set that grows adds what it has anew, in the order of its smaller table.
  constexpr size_t kMostItems = 20, kTries = 3'000;
  if (order.size() > kMostItems) return std::nullopt;
  std::mt19937 random;  // of the same seed each time
  for (size_t i = 0; i < kTries; i++) {
    std::ranges::shuffle(order, random);
    if (lies_as_it_does(order)) return py::list(tuple_of(order));
  }
  return std::nullopt;
}

bool is_derived_value(PyObject* p) {
  return !is_constant(p) && (PyLong_Check(p) || PyFloat_Check(p) || PyComplex_Check(p) ||
                             PyUnicode_Check(p) || PyBytes_Check(p));
}

bool is_constant(PyObject* p) {
  return p == Py_None || p == Py_Ellipsis || p == Py_NotImplemented || PyBool_Check(p) ||
         PyLong_CheckExact(p) || PyFloat_CheckExact(p) || PyUnicode_CheckExact(p) ||
         PyBytes_CheckExact(p) || PyComplex_CheckExact(p) || THPDtype_Check(p) ||
         THPDevice_Check(p) || THPLayout_Check(p) || THPMemoryFormat_Check(p);
}

// Of what the captured code has made itself there is no source, and nothing to guard.
void Heap::guard(GuardKind kind, SourceId source, py::handle expected, int64_t number) {
  if (!source.valid() || (arrays().in_array_code() && arrays().is_of_array_code(source))) return;
  if (kind == GuardKind::Equals || kind == GuardKind::Compares) draws().note_look(source);
  guards.add({kind, source, borrow(expected), number, {}, frames().user_stack()});
}

void Heap::guard_pair(GuardKind kind, SourceId source, SourceId other) {
  guards.add({kind, source, {}, 0, other, frames().user_stack()});
}

Tracked* Heap::tracked(py::handle o) {
  auto it = tracked_.find(o.ptr());
  if (it == tracked_.end()) return nullptr;
  if (it->second.writes) met_written_++;
  return &it->second;
}

Tracked& Heap::found_at(py::handle o, SourceId source) {
  Tracked& k = tracked_[o.ptr()];
  if (!k.source.valid()) k.source = source;
  hold(borrow(o));
  return k;
}

bool Heap::is_tensor(py::handle o) {
  if (!is_tensor_object(o.ptr())) return false;
  Tracked* k = tracked(o);
  return k != nullptr && k->value.has_value();
}

// Over the memory of one that is no inference tensor.
bool Heap::is_view_of_normal_input(py::handle tensor) {
  const c10::Storage& memory = THPVariable_Unpack(tensor.ptr()).storage();
  return std::ranges::any_of(fake_of_, [&](const auto& both) {
    const at::Tensor& real = THPVariable_Unpack(both.first);
    return THPVariable_Unpack(both.second.ptr()).storage().is_alias_of(memory) &&
           !real.is_inference();
  });
}

bool Heap::is_made_here(py::handle function) {
  Tracked* k = tracked(function);
  return k != nullptr && !k->source.valid();
}

bool Heap::exists(py::handle o) {
  Tracked* k = tracked(o);
  return k != nullptr && k->source.valid() && !k->value && !PyTuple_Check(o.ptr()) &&
         !PySlice_Check(o.ptr());
}

bool Heap::mentions_existing(py::handle o) {
  if (!PyTuple_CheckExact(o.ptr()) && !PyFrozenSet_CheckExact(o.ptr())) return exists(o);
  return std::ranges::any_of(o, [this](py::handle item) { return mentions_existing(item); });
}

bool Heap::keeps_attributes(py::handle o) {
  return exists(o) || (is_enum_member(o) && !classes().is_made_class(py::type::of(o)));
}

void Heap::note_question(py::handle o) {
  const py::object& lazy = member_of<"torch.nn.modules.lazy", "LazyModuleMixin">();
  if (!PyType_IsSubtype(Py_TYPE(o.ptr()), as_type(lazy)) || frames().stack().empty()) return;
  if (!written_in(as_function(frames().stack().back()->function)).starts_with("torch."))
    asked_lazily_.insert(o.ptr());
}

// Whether what is there before the call would live in eager by now, which only those tell that hold
// it: here a capture does.
bool Heap::surely_lives(py::handle real) {
  if (frames().keeps_arguments() && effects().count() == 0) return true;
  const auto fake = fake_of_.find(real.ptr());
  const py::handle o = fake == fake_of_.end() ? real : fake->second;
  const auto known = tracked_.find(o.ptr());
  return frames().holds(o) || (known != tracked_.end() && known->second.source.valid() &&
                               is_held_by(known->second.source));
}

// Whether all that leads there is as it was before the call.
bool Heap::is_held_by(SourceId source) {
  const Source& s = sources[source];
  const auto found = by_source_.find(source);
  switch (s.kind) {
    case SourceKind::Pinned:
      return true;
    case SourceKind::Local:
      return found != by_source_.end() && frames().holds(found->second);
    case SourceKind::InstanceDict:
    case SourceKind::TypeAttribute:
    case SourceKind::Attribute:
    case SourceKind::DictItem:
    case SourceKind::Item:
    case SourceKind::CellContents:
    case SourceKind::Closure:
    case SourceKind::ValueOfKey:
    case SourceKind::Key:
      break;
    default:
      return false;
  }
  const bool written = std::ranges::any_of(
      tracked_, [&](const auto& t) { return t.second.source == s.base && t.second.writes; });
  return !written && is_held_by(s.base);
}

SourceId Heap::source_of(py::handle o, const std::string& name) {
  Tracked* k = tracked(o);
  return k && k->source.valid() ? k->source : sources.pinned(o, name);
}

const Source& Heap::root_of(SourceId source) const {
  while (sources[source].base.valid()) source = sources[source].base;
  return sources[source];
}

// A tensor without data is an object that is carried about (the skeleton of functional_call): no
// graph computes with it.
static bool is_on_meta(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  return t.is_meta() && t.layout() == at::kStrided &&
         (THPVariable_CheckExact(tensor) ||
          Py_TYPE(tensor) == as_type(member_of<"torch.nn", "Parameter">()));
}

py::object Heap::wrap(py::handle real, SourceId source) {
  const Takes takes = std::exchange(numbers().takes, Takes::Read);
  if (!source.valid()) return borrow(real);
  if (is_tensor_object(real.ptr())) met_tensors_++;
  if (auto it = by_source_.find(source); it != by_source_.end()) {
    note_handed_out(it->second);
    return it->second;
  }
  PyObject* p = real.ptr();
  if (const py::object number = numbers().varying_float(real, source)) {
    by_source_.emplace(source, number);
    return number;
  }
  if (is_number(p) &&
      (takes == Takes::Deferred || (takes == Takes::Varying && numbers().is_varying(source))))
    return numbers().deferred_number(real, source);
  py::object out = borrow(p);
  const bool wrapper = Wrappers::wraps(p);
  if (is_tensor_object(p) && !is_on_meta(p) && !wrapper) {
    out = wrap_tensor(real, source);
  } else if (const py::object symbolic = sizes().number(real, source)) {
    out = symbolic;
  } else if (is_constant(p)) {
    guard(GuardKind::Equals, source, real);
  } else if (is_bound_method(p) || Py_TYPE(p) == &PySuper_Type) {
    out = wrap_bound(real, source);
  } else if (PyFunction_Check(p) && is_made_anew(real, source)) {
    wrap_function(real, source);
  } else if (is_callable_constant(p) || is_singleton(real) || PyCode_Check(p)) {
    guard(GuardKind::IdIs, source, real);
  } else if (PyTuple_Check(p)) {
    out = wrap_tuple(real, source);
  } else if (const py::object array = arrays().wrap_array(real, source)) {
    out = array;
  } else if (PySlice_Check(p)) {
    out = wrap_slice(real, source);
  } else if (PyRange_Check(p) || PyFrozenSet_CheckExact(p)) {
    guard(GuardKind::IdIs, source, real);
    fixed_.insert(p);
    if (PyFrozenSet_CheckExact(p))
      for (py::handle item : py::list(out)) guard_key(wrap_held(item));
  } else {
    guard(GuardKind::TypeIs, source, py::type::of(real));
    if (is_tensor_object(p) && !wrapper)
      guard(GuardKind::IdIs, sources.attribute(source, py::str("is_meta")), py::bool_(true));
    if (is_derived_value(p)) guard(GuardKind::Equals, sources.plain_value(source), plain_value(p));
    Tracked& k = tracked_[p];
    if (!k.source.valid()) {
      k.source = source;
      existing_.push_back(out);
      if (wrapper) guard(GuardKind::Tensor, source, real);
    } else if (k.source != source) {
      guard_pair(GuardKind::SameAs, source, k.source);
    }
    held_.push_back(out);
  }
  by_source_.emplace(source, out);
  return out;
}

// What lies in a container: a float that varies stays one there.
py::object Heap::wrap_item(py::handle real, SourceId source) {
  const bool varies = PyFloat_CheckExact(real.ptr()) && numbers().is_varying(source);
  if (varies && numbers().takes == Takes::Read) numbers().takes = Takes::Varying;
  return wrap(real, source);
}

// What an object that is guarded by its identity holds for good, and code written in C takes out of
// it.
py::object Heap::wrap_held(py::handle real) {
  if (is_constant(real.ptr()) || is_callable_constant(real.ptr())) return borrow(real);
  py::object out = wrap(real, sources.pinned(real, "held"));
  if (!out.is(real))
    throw Break(BreakId::builtin_on_existing, "a ", Py_TYPE(real.ptr())->tp_name, " in it");
  return out;
}

// Python's own int or float, but no bool.
bool is_number(PyObject* p) { return PyLong_CheckExact(p) || PyFloat_CheckExact(p); }

// A method with its object, or a super object: another one with the wrapped object.
py::object Heap::wrap_bound(py::handle real, SourceId source) {
  auto part = [&](const char* name) {
    return wrap(real.attr(name), sources.attribute(source, py::str(name)));
  };
  guard(GuardKind::TypeIs, source, py::type::of(real));
  if (Py_TYPE(real.ptr()) == &PySuper_Type) {
    py::object type = part("__thisclass__"), self = part("__self__");
    if (is_tensor(self)) throw Break(BreakId::attribute_protocol, "super() of a tensor");
    return instead_of(real, source, py::type::of(real)(type, self));
  }
  py::object self = part("__self__"), out;
  if (is_array(self)) {
    out = method_of_array(self, part("__name__"));
  } else if (PyMethod_Check(real.ptr())) {
    out = steal(PyMethod_New(part("__func__").ptr(), self.ptr()));
  } else {
    part("__name__");
    if (is_method_wrapper(real.ptr())) part("__objclass__");
    out = python::bind(method_descriptor(real.ptr()), self);
  }
  return instead_of(real, source, out);
}

py::object Heap::instead_of(py::handle real, SourceId source, const py::object& out) {
  if (auto it = stand_in_of_.find(real.ptr()); it != stand_in_of_.end()) return it->second;
  found_at(out, source).original = borrow(real);
  stand_in_of_.emplace(real.ptr(), out);
  return out;
}

// A function made in another one that comes with the call may be another one at each call, of the
// same code.
bool Heap::is_made_anew(py::handle function, SourceId source) const {
  auto* f = as_function(function);
  const bool inside = code_of(f)->co_flags & CO_NESTED;
  const bool has_attributes = f->func_dict != nullptr && PyDict_GET_SIZE(f->func_dict) > 0;
  if ((f->func_closure == nullptr && !inside) || has_attributes) return false;
  return root_of(source).kind == SourceKind::Local;
}

void Heap::wrap_function(py::handle real, SourceId source) {
  auto* f = as_function(real);
  guard(GuardKind::TypeIs, source, py::type::of(real));
  guard(GuardKind::IdIs, sources.code(source), f->func_code);
  guard(GuardKind::IdIs, sources.attribute(source, py::str("__globals__")), f->func_globals);
  for (const auto& [name, held] : {std::pair("__defaults__", f->func_defaults),
                                   std::pair("__kwdefaults__", f->func_kwdefaults)}) {
    const SourceId member = sources.attribute(source, py::str(name));
    held == nullptr ? guard(GuardKind::IdIs, member, Py_None)
                    : guard(GuardKind::Length, member, {}, PyObject_Length(held));
  }
  found_at(real, source);
}

// Found in the _parameters or _buffers of a module.
bool Heap::is_module_state(SourceId source) const {
  const Source& item = sources[source];
  if (item.kind != SourceKind::DictItem) return false;
  const Source& dict = sources[item.base];
  return dict.kind == SourceKind::DictItem && sources[dict.base].kind == SourceKind::InstanceDict &&
         (is_text(dict.key.ptr(), "_parameters") || is_text(dict.key.ptr(), "_buffers"));
}

py::object Heap::wrap_tensor(py::handle real, SourceId source) {
  if (auto it = fake_of_.find(real.ptr()); it != fake_of_.end()) {
    guard_pair(GuardKind::SameAs, source, tracked(it->second)->source);
    return it->second;
  }
  const at::Tensor& t = THPVariable_Unpack(real.ptr());
  const py::object type = py::type::of(real);
  if (!THPVariable_CheckExact(real.ptr()) && !type.is(member_of<"torch.nn", "Parameter">())) {
    if (!Wrappers::is_derived(type) || graphs().inner() != nullptr) {
      guard(GuardKind::TypeIs, source, type);
      throw Break(BreakId::input_kind, "a ", Py_TYPE(real.ptr())->tp_name);
    }
    wrappers().follow();
  }
  const char* what = bridge::why_unsupported(t);
  const bool strided = t.layout() == at::kStrided && t.is_cpu() && t.has_storage() &&
                       !t.is_quantized() && !t.is_nested();
  if (what != nullptr && !strided) {  // nothing that a guard on tensors compares
    guard(GuardKind::TypeIs, source, py::type::of(real));
    for (const char* kind : {"layout", "is_quantized", "is_nested", "is_cpu"})
      guard(GuardKind::IdIs, sources.attribute(source, py::str(kind)), real.attr(kind));
    throw Break(BreakId::input_kind, what);
  }
  const std::vector<bridge::DynamicDim> dims = sizes().dims_of(real, source);
  guard(dims.empty() ? GuardKind::Tensor : GuardKind::SizedTensor, source, real);
  if (what != nullptr) throw Break(BreakId::input_kind, what);
  const bool of_inference = t.is_inference() && !c10::InferenceMode::is_enabled();
  if (of_inference && graphs().inner() != nullptr)
    throw Break(BreakId::input_kind, "an inference tensor outside of inference mode");
  const py::object fake = add_input(real, source, dims);
  if (of_inference) inference().note_input(THPVariable_Unpack(fake.ptr()));
  fake_of_.emplace(real.ptr(), fake);
  return fake;
}

py::object Heap::add_input(py::handle real, SourceId source,
                           const std::vector<bridge::DynamicDim>& dims) {
  const at::Tensor& t = THPVariable_Unpack(real.ptr());
  const std::string name = name_of_input(sources.text(source));
  py::object fake;
  try {
    fake = steal(THPVariable_Wrap(graphs().recorder().add_input(t, name, dims)));
  } catch (const Unsupported& e) {
    throw Break(BreakId::input_kind, e.what());
  }
  Tracked k;
  k.source = source;
  k.original = borrow(real);
  const ir::TensorType type = bridge::type_of(dims.empty() ? t : THPVariable_Unpack(fake.ptr()));
  k.value = graphs().ir->graph.add_input(name, ir::Type::of(type));
  tracked_[fake.ptr()] = std::move(k);
  held_.push_back(fake);
  graphs().fetch.push_back(source);
  graphs().example_inputs.push_back(borrow(real));
  graphs().ir->module_state.push_back(is_module_state(source));
  if (!dims.empty()) sizes().add_tensor(real, type);
  return fake;
}

py::object Heap::wrap_tuple(py::handle real, SourceId source) {
  if (Py_EnterRecursiveCall("") != 0) {
    PyErr_Clear();
    throw Break(BreakId::input_kind, "tuples that lie in each other too deeply");
  }
  const auto leave = c10::make_scope_exit([] { Py_LeaveRecursiveCall(); });
  guard(GuardKind::TypeIs, source, py::type::of(real));
  guard(GuardKind::Length, source, {}, PyTuple_GET_SIZE(real.ptr()));
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(real.ptr()));
  py::tuple items(n);
  bool same = true;
  for (size_t i = 0; i < n; i++) {
    PyObject* item = PyTuple_GET_ITEM(real.ptr(), i);
    const py::object w = wrap_item(item, sources.item(source, static_cast<int64_t>(i)));
    same &= w.ptr() == item;
    items[i] = w;
  }
  const py::dict hidden = hidden_fields(real);
  for (auto [name, value] : hidden) {
    const py::object w = wrap(value, sources.attribute(source, name));
    same &= w.is(value);
    hidden[name] = w;
  }
  return instead_of(real, source, same ? borrow(real) : tuple_like(real, items, hidden));
}

py::object Heap::wrap_slice(py::handle real, SourceId source) {
  guard(GuardKind::TypeIs, source, py::type::of(real));
  bool same = true;
  auto part = [&](const char* name) {
    const py::object held = real.attr(name);
    const SourceId at = sources.attribute(source, py::str(name));
    if (is_numpy_int(held.ptr())) {
      guard(GuardKind::TypeIs, at, py::type::of(held));
      guard(GuardKind::Equals, sources.plain_value(at), plain_value(held.ptr()));
      return held;
    }
    const py::object out = wrap(held, at);
    same &= out.is(held);
    return out;
  };
  const py::object start = part("start"), stop = part("stop"), step = part("step");
  return instead_of(real, source,
                    same ? borrow(real) : steal(PySlice_New(start.ptr(), stop.ptr(), step.ptr())));
}

// The items of a list or deque.
py::list Heap::items_of(py::handle o) {
  const SourceId source = tracked(o)->source;
  const py::list real = plain_list(o);
  guard(GuardKind::Length, source, {}, static_cast<int64_t>(real.size()));
  py::list items;
  for (size_t i = 0; i < real.size(); i++)
    items.append(wrap_item(real[i], sources.item(source, static_cast<int64_t>(i))));
  Writes* w = tracked(o)->writes.get();
  if (w && w->added) {
    w->before = py::tuple(items);
    items.attr("extend")(w->added);
  }
  return items;
}

// Of a dict with keys that are objects: it has hashed them for good, so they are guarded as what
// they are, by their places.
std::vector<DictEntry> Heap::entries_of_objects(py::handle dict) {
  constexpr Py_ssize_t kMost = 64;  // each guard goes through the keys in front
  if (PyODict_Check(dict.ptr()) || PyDict_GET_SIZE(dict.ptr()) > kMost)
    throw Break(BreakId::builtin_on_existing,
                "a large or ordered dict with keys that are objects of a class");
  std::vector<DictEntry> out;
  PyObject *key = nullptr, *value = nullptr;
  Py_hash_t hash = 0;
  for (Py_ssize_t at = 0; next_entry(dict.ptr(), &at, &key, &value, &hash);)
    out.push_back({borrow(key), borrow(value), hash});
  return out;
}

// Of a dict some of whose keys are objects, of which each call has to have the same ones.
py::object Heap::items_of_objects(py::handle o) {
  const SourceId source = tracked(o)->source;
  auto refuse = [] {
    throw Break(BreakId::builtin_on_existing, "a dict with keys that are objects");
  };
  if (tracked(o)->writes) refuse();
  const std::vector<DictEntry> entries = entries_of_objects(o);
  guard(GuardKind::Length, source, {}, static_cast<int64_t>(entries.size()));
  py::dict items;
  int64_t i = 0;
  for (const auto& [key, value, hash] : entries) {
    const SourceId place = sources.key(source, i);
    guard(GuardKind::IdIs, place, key);
    if (!is_constant(key.ptr()) && !wrap(key, place).is(key)) refuse();
    guard_key(key);
    const py::object held = wrap_item(value, sources.value_of_key(source, i++));
    check(set_entry(items.ptr(), key.ptr(), held.ptr(), hash));
  }
  return std::move(items);
}

py::object Heap::dict_items(py::handle o) {
  const SourceId source = tracked(o)->source;
  const Writes* w = tracked(o)->writes.get();
  py::object items = steal(PyODict_Check(o.ptr()) ? PyODict_New() : PyDict_New());
  if (!w || !w->cleared) {
    const py::tuple keys(plain_list(o));
    if (!std::all_of(keys.begin(), keys.end(), [](py::handle k) { return is_plain_key(k.ptr()); }))
      return items_of_objects(o);
    guard(GuardKind::Keys, source, keys);
    for (py::handle key : keys) {
      const bool written =
          w && PyDict_Contains(w->items.ptr(), key.ptr()) == 1;  // it keeps its place
      items[key] =
          written ? py::none() : wrap_item(held_at(o, key), sources.dict_item(source, key));
    }
  }
  if (!w) return items;
  for (auto [key, value] : w->items)
    if ((value.is(missing()) || w->moved.contains(key)) && items.contains(key))
      items.attr("pop")(key);
  for (auto [key, value] : w->items)
    if (!value.is(missing())) items[key] = numbers().carried(borrow(value));
  return items;
}

// A set of what is one object for all calls, whose order is guarded: a copy lies in the same order,
// or it cannot stand for the set.
py::object Heap::set_items(py::handle o) {
  const py::list items = plain_list(o);
  for (py::handle item : items)
    if (!is_plain_key(item.ptr())) throw Break(BreakId::builtin_on_existing, "a set of objects");
  const auto order = order_of_adding(o);
  if (!order) throw Break(BreakId::builtin_on_existing, "a set that lies in an order of its own");
  py::set copy(*order);
  guard(GuardKind::Keys, tracked(o)->source, py::tuple(items));
  if (const Writes* w = tracked(o)->writes.get())
    for (py::handle put : w->done) {
      auto [change, item] = put.cast<std::pair<int, py::object>>();
      change == kPut ? PySet_Add(copy.ptr(), item.ptr()) : PySet_Discard(copy.ptr(), item.ptr());
    }
  return std::move(copy);
}

// `o` with `contents` for what was there before, at any depth.
py::object Heap::deep_contents(py::handle o, int depth) {
  PyObject* p = o.ptr();
  const bool sequence = PyTuple_Check(p) || PyList_Check(p);
  if (is_tensor(o)) return borrow(p);
  if (PySet_Check(p) || is_deque(o)) return contents(o);
  if (!sequence && !PyDict_Check(p)) return borrow(p);
  if (depth > 20)
    throw Break(BreakId::builtin_on_existing, "containers in containers, without end");
  py::object inside = contents(o);
  bool same = true;
  py::list items;
  for (py::handle item : PyDict_Check(p) ? values_of(inside) : plain_list(inside)) {
    py::object now = deep_contents(item, depth + 1);
    same &= now.is(item);
    items.append(now);
  }
  if (same) return inside;
  if (PyList_Check(p)) return std::move(items);
  if (PyTuple_Check(p)) return tuple_like(o, items, hidden_fields(o));
  if (is_changeable_class(Py_TYPE(inside.ptr())))
    throw Break(BreakId::builtin_on_existing, "a ", Py_TYPE(p)->tp_name, " of containers");
  py::object out = inside.attr("copy")();
  size_t i = 0;
  for (py::handle key : plain_list(inside)) out[key] = items[i++];
  return out;
}

std::optional<Heap::Given> Heap::begin_rehearsal(const Arguments& given) {
  Given all;
  const auto add = [&](auto& self, py::handle o) -> void {
    PyObject* p = o.ptr();
    const bool sequence = PyTuple_Check(p) || PyList_Check(p);
    if ((!sequence && !PyDict_Check(p)) || !all.insert(p).second) return;
    const py::object inside = contents(o);
    for (py::handle item : sequence ? plain_list(inside) : values_of(inside)) self(self, item);
  };
  for (const py::object& a : given) {
    deep_contents(a);
    add(add, a);
  }
  return std::exchange(given_, std::move(all));
}

void Heap::note_handed_out(py::handle container) {
  PyObject* p = container.ptr();
  if (!given_ || is_tensor_object(p) || given_->contains(p)) return;
  // Containers in it are handed out on their own, tuples and methods as a part of it.
  const auto has_tensor = [](auto& self, py::handle o) -> bool {
    const auto inside = [&](py::handle item) { return self(self, item); };
    if (PyTuple_Check(o.ptr())) return std::ranges::any_of(plain_list(o), inside);
    return is_tensor_object(o.ptr()) || (is_bound_method(o.ptr()) && inside(o.attr("__self__")));
  };
  const py::list items = PyDict_Check(p)   ? values_of(container)
                         : PyList_Check(p) ? plain_list(container)
                                           : py::list(tuple_of(Arguments{borrow(p)}));
  if (std::ranges::any_of(items, [&](py::handle item) { return has_tensor(has_tensor, item); }))
    met_tensors_++;
}

// A list, dict or set that was there before, with its items wrapped; guards its keys or its length.
py::object Heap::contents(py::handle o) {
  PyObject* p = o.ptr();
  if (!exists(o)) return borrow(p);
  calls().refuse_told_late(p);
  if (is_derived_value(p)) return plain_value(p);  // which is guarded
  if (const py::object dict = objects().class_dict(o))
    return steal(PyDictProxy_New(contents(dict).ptr()));
  if (tracked(o)->shadow) {
    if (given_ && !given_->contains(p)) note_handed_out(tracked(o)->shadow);
    return tracked(o)->shadow;
  }
  numbers().takes = Takes::Read;  // what is asked for next is one of its items
  py::object shadow;
  if (PyList_Check(p)) {
    shadow = items_of(o);
  } else if (PyDict_Check(p)) {
    shadow = dict_items(o);
  } else if (PySet_Check(p)) {
    shadow = set_items(o);
  } else if (is_deque(o)) {
    const py::list items = items_of(o);
    const py::object limit =
        with_numbers(numbers().read(objects().load_attr(o, py::str("maxlen"))));
    shadow = type_object(builtin_base(Py_TYPE(p)))(items, limit);
  } else {
    throw Break(BreakId::builtin_on_existing, "a ", Py_TYPE(p)->tp_name);
  }
  tracked(o)->shadow = shadow;
  shadowed_[shadow.ptr()] = p;
  return shadow;
}

// ---------------------------------------------------------------------------- which are one object
//
// Guards look at the values of strings, numbers and tuples alone; where captured code asks whether
// two of them are one object, or hands one on, the answer of this call is guarded as well.

// Whether other calls may have an equal value in another object.
bool may_be_another(PyObject* p) {
  if (PyLong_CheckExact(p)) return !is_shared_int(p);
  if (PyUnicode_CheckExact(p)) return !is_shared_text(p);
  if (PyBytes_CheckExact(p)) return PyBytes_GET_SIZE(p) > 1;
  if (PyTuple_Check(p)) return PyTuple_GET_SIZE(p) > 0 || !PyTuple_CheckExact(p);
  return PyFloat_CheckExact(p) || PyComplex_CheckExact(p) || THPDevice_Check(p) ||
         PySlice_Check(p) || PyFunction_Check(p) || is_bound_method(p) ||
         Py_TYPE(p) == &PySuper_Type;
}

// Where the object comes from, in the order in which it was found: sources, keys of dicts and items
// of sets, and as a pinned one the code itself and what is guarded by its identity.
std::vector<SourceId> Heap::places_of(py::handle o) {
  std::vector<SourceId> out;
  for (const auto& [source, found] : by_source_)
    if (found.is(o)) out.push_back(source);
  std::ranges::sort(out, [](SourceId a, SourceId b) { return a.index < b.index; });
  for (const Guard& g : guards.guards()) {
    if (g.kind != GuardKind::Keys) continue;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(g.expected.ptr()); i++)
      if (PyTuple_GET_ITEM(g.expected.ptr(), i) == o.ptr()) out.push_back(sources.key(g.source, i));
  }
  auto has = [&](PyObject* constants) { return has_constant(constants, o.ptr()); };
  if (std::ranges::any_of(frames().codes(), has, &PyCodeObject::co_consts) ||
      std::ranges::any_of(fixed_, has))
    out.push_back(sources.pinned(o, "constant"));
  return out;
}

// Wherever a later call finds `o`, it is one object.
void Heap::guard_one_object(py::handle o) {
  const std::vector<SourceId> places = places_of(o);
  for (size_t i = 1; i < places.size(); i++) guard_pair(GuardKind::SameAs, places[i], places[0]);
}

// a and b are two objects, and the guards on their values do not say so.
void Heap::guard_two_objects(py::handle a, py::handle b) {
  PyObject *p = a.ptr(), *q = b.ptr();
  if (Py_TYPE(p) != Py_TYPE(q)) return;
  if (is_array(a))
    if (const SourceId here = arrays().source_of_array(a), there = arrays().source_of_array(b);
        here.valid() && there.valid())
      return guard_pair(GuardKind::NotSameAs, here, there);
  auto guard_places = [this](SourceId here, SourceId there) {
    const bool both_stay =
        sources[here].kind == SourceKind::Pinned && sources[there].kind == SourceKind::Pinned;
    if (!both_stay) guard_pair(GuardKind::NotSameAs, here, there);
  };
  if (!may_be_another(p)) {
    if (exists(a) && exists(b)) guard_places(source_of(a), source_of(b));
  } else if (!is_constant(p) || same_constant(p, q)) {
    for (SourceId here : places_of(a))
      for (SourceId there : places_of(b)) guard_places(here, there);
  }
}

// `a is b`, and the guards by which it is so at a hit.
bool Heap::is_same(py::handle a, py::handle b) {
  if (is_symbolic(a) && a.is(b)) return true;
  if (is_symbolic(a) || is_symbolic(b)) {
    if (a.is_none() || b.is_none()) return false;
    return is_same(with_numbers(borrow(a)), with_numbers(borrow(b)));
  }
  if (!a.is(b)) return guard_two_objects(a, b), false;
  if (may_be_another(a.ptr())) guard_one_object(a);
  return true;
}

// id() for the table that copy.deepcopy keeps: what it has met before must be met again, and
// nothing else.
py::object Heap::id_of(const py::object& o) {
  constexpr size_t kMost = 64;
  PyObject* p = o.ptr();
  const bool by_value = THPDevice_Check(p) || (PyTuple_Check(p) && may_be_another(p));
  if (by_value) guard_one_object(o);
  if (by_value || exists(o)) {
    std::vector<py::object>& met = identified_[Py_TYPE(p)];
    const bool again = std::ranges::any_of(met, [&](const auto& m) { return m.is(o); });
    if (!again && met.size() == kMost) throw Break(BreakId::builtin_call, "id() of many objects");
    for (const py::object& other : met)
      if (!again) guard_two_objects(o, other);
    if (!again) met.push_back(o);
  }
  return py::int_(reinterpret_cast<uintptr_t>(p));
}

// What a dict or set finds by its hash: where that and the comparison are by identity, itself or in
// a key that holds it, its class does not come to say otherwise, and two keys do not come as one.
void Heap::guard_key(py::handle o, int depth) {
  constexpr int kMaxDepth = 50;
  PyObject* p = o.ptr();
  if (is_one_for_all(o) || is_array(o) || are_keys_.contains(p)) return;
  if (is_tensor_object(p) && !exists(o)) return;
  if (depth > kMaxDepth)
    throw Break(BreakId::builtin_call, "keys that lie in each other too deeply");
  const auto guard_part = [&](const char* name) { guard_key(o.attr(name), depth + 1); };
  if (is_bound_method(p)) return guard_part("__self__");
  if (PyWeakref_CheckRefExact(p)) guard_key(borrow(PyWeakref_GET_OBJECT(p)), depth + 1);
  if (Py_TYPE(p) == &Py_GenericAliasType) return guard_part("__args__");
  if (PyTypeObject* type = Py_TYPE(p); is_changeable_class(type))
    for (const char* method : {"__hash__", "__eq__"}) objects().type_member(type, py::str(method));
  if (PyTuple_Check(p) || PyFrozenSet_Check(p)) {
    for (py::handle item : plain_list(o)) guard_key(item, depth + 1);
  } else if (PySlice_Check(p)) {
    for (const char* part : {"start", "stop", "step"}) guard_part(part);
  } else if (exists(o)) {
    are_keys_.insert(p);
    keys_.push_back(borrow(p));
  }
}

// No two keys of one type are one object at a hit.
void Heap::guard_keys_apart() {
  std::unordered_set<PyTypeObject*> seen;
  for (const py::object& key : keys_) {
    PyTypeObject* type = Py_TYPE(key.ptr());
    if (!seen.insert(type).second) continue;
    std::vector<SourceId> all;
    for (const py::object& other : keys_)
      if (Py_TYPE(other.ptr()) == type) all.push_back(tracked(other)->source);
    std::ranges::sort(all, {}, &SourceId::index);
    if (all.size() == 2)
      guard_pair(GuardKind::NotSameAs, all[0], all[1]);
    else if (all.size() > 2)
      guards.add({GuardKind::Apart, all[0], {}, 0, all.back(), frames().user_stack(), all});
  }
}

void Heap::guard_nothing_handled() {
  const SourceId asked = sources.pinned(member_of<"sys", "exc_info">(), "sys.exc_info");
  guard(GuardKind::IdIs, sources.handled(asked), py::none());
}

// What CPython compares by identity first was not the same object: it must not be at a hit either.
// Of NaN it must be as it was. What has no __eq__ must have none.
void Heap::guard_apart(py::handle a, py::handle b, int depth) {
  constexpr int kMaxDepth = 20;
  if (is_nan(a.ptr()) && is_nan(b.ptr())) is_same(a, b);
  if (a.is(b)) return;
  const auto guard_parts = [&](const char* name) {
    guard_apart(a.attr(name), b.attr(name), depth + 1);
  };
  if (depth > kMaxDepth)
    throw Break(BreakId::builtin_call, "a comparison of containers in containers");
  PyObject *p = a.ptr(), *q = b.ptr();
  if (PyDictItems_Check(p) && PyDictItems_Check(q)) {
    for (py::handle item : a)
      for (py::handle other : b) guard_apart(item, other, depth + 1);
    return;
  }
  if (std::string_view(Py_TYPE(p)->tp_name) == "types.SimpleNamespace" &&
      Py_TYPE(p) == Py_TYPE(q) && !exists(a) && !exists(b))
    return guard_apart(a.attr("__dict__"), b.attr("__dict__"), depth + 1);
  if (is_deque(a) && is_deque(b)) {
    const py::list items = plain_list(a), others = plain_list(b);
    for (size_t i = 0; i < std::min(items.size(), others.size()); i++)
      guard_apart(items[i], others[i], depth + 1);
    return;
  }
  if (PySlice_Check(p) && PySlice_Check(q)) {
    for (const char* part : {"start", "stop", "step"}) guard_parts(part);
    return;
  }
  if (is_bound_method(p) && is_bound_method(q)) {
    is_same(a.attr("__self__"), b.attr("__self__"));
    if (PyMethod_Check(p) && PyMethod_Check(q)) guard_parts("__func__");
    return;
  }
  if (Py_TYPE(p) == &Py_GenericAliasType && Py_TYPE(q) == &Py_GenericAliasType)
    return guard_parts("__args__");
  if (PyWeakref_CheckRefExact(p) && PyWeakref_CheckRefExact(q))
    guard_apart(borrow(PyWeakref_GET_OBJECT(p)), borrow(PyWeakref_GET_OBJECT(q)), depth + 1);
  if ((PyTuple_Check(p) && PyTuple_Check(q)) || (PyList_Check(p) && PyList_Check(q))) {
    const Py_ssize_t n = std::min(PySequence_Fast_GET_SIZE(p), PySequence_Fast_GET_SIZE(q));
    for (Py_ssize_t i = 0; i < n; i++)
      guard_apart(PySequence_Fast_GET_ITEM(p, i), PySequence_Fast_GET_ITEM(q, i), depth + 1);
    return;
  }
  if (PyDict_Check(p) && PyDict_Check(q)) {
    for (py::handle dict : {a, b})
      for (py::handle key : plain_list(dict)) arrays().as_key(borrow(key));
    py::list others;  // under keys that may be equal to any other
    for (py::handle key : plain_list(b))
      if (!is_plain_key(key.ptr())) others.append(held_at(b, key));
    for (py::handle key : plain_list(a)) {
      const py::handle held = held_at(a, key);
      if (!is_plain_key(key.ptr()))
        for (py::handle other : others) guard_apart(held, other, depth + 1);
      else if (const py::object there = item_in(b, key))
        guard_apart(held, there, depth + 1);
    }
    return;
  }
  for (py::handle o : {a, b})
    if (!is_array(o)) arrays().as_key(borrow(o));
  if (Py_TYPE(p) == Py_TYPE(q) && exists(a) && exists(b) && !is_constant(p))
    guard_pair(GuardKind::NotSameAs, source_of(a), source_of(b));
}

}  // namespace oxy::python
