// The tables of sources and guards: equal ones once; how a source prints; links of frames.
#include "python/guards/guard.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/guards/evaluate.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

size_t mix(size_t seed, size_t v) { return (seed ^ v) * 0x9e3779b97f4a7c15ull; }

size_t hash_of(const Source& s) {
  const size_t h =
      mix(mix(static_cast<size_t>(s.kind), s.base.index), static_cast<size_t>(s.index));
  if (!s.key) return h;
  return mix(h, s.kind == SourceKind::Pinned ? reinterpret_cast<size_t>(s.key.ptr())
                                             : constant_hash(s.key.ptr()));
}

bool same_source(const Source& a, const Source& b) {
  if (a.kind != b.kind || a.base != b.base || a.index != b.index) return false;
  if (!a.key || !b.key || a.kind == SourceKind::Pinned) return a.key.is(b.key);
  return same_constant(a.key.ptr(), b.key.ptr());
}

bool is_identifier(const py::object& key) {
  return PyUnicode_CheckExact(key.ptr()) && PyUnicode_IsIdentifier(key.ptr()) == 1;
}

std::string str_of(const py::object& key) { return py::cast<std::string>(py::str(key)); }

// As repr, but for the members of enums, whose class may have one of the user's.
std::string text_of_constant(py::handle o) {
  if (PyTuple_CheckExact(o.ptr())) {
    const auto item = [](std::string& out, py::handle a) { out += text_of_constant(a); };
    const bool single = PyTuple_GET_SIZE(o.ptr()) == 1;
    return cat("(", join(py::reinterpret_borrow<py::tuple>(o), ", ", item), single ? ",)" : ")");
  }
  static PyObject* const kind =
      py::object(py::module_::import("enum").attr("EnumMeta")).release().ptr();
  if (PyObject_TypeCheck(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())),
                         reinterpret_cast<PyTypeObject*>(kind)) == 0)
    return py::repr(o).cast<std::string>();
  const auto name = owned(PyObject_GenericGetAttr(o.ptr(), py::str("_name_").ptr()));
  PyErr_Clear();
  return cat(Py_TYPE(o.ptr())->tp_name, ".", name ? str_of(name) : "?");
}

constexpr const char* kSourceTexts[] = {
    "L[@]",
    nullptr,
#define OXY_SOURCE(kind, method, parameter, text) text,
#include "python/guards/kinds.def"
};

// The dicts of a module in which getattr looks: their items print as attributes.
bool is_module_table(const Source& s, const SourceTable& table) {
  PyObject* name = s.key.ptr();
  return s.kind == SourceKind::DictItem && table[s.base].kind == SourceKind::InstanceDict &&
         (is_text(name, "_modules") || is_text(name, "_parameters") || is_text(name, "_buffers"));
}

bool is_number(const std::string& s) {
  return !s.empty() && std::ranges::all_of(s, [](char c) { return c >= '0' && c <= '9'; });
}

// The item of a dict: as an attribute where getattr would find it so.
std::string item_text(const SourceTable& table, const Source& s, SourceId id) {
  const Source& base = table[s.base];
  if (base.kind == SourceKind::InstanceDict && is_identifier(s.key))
    return cat(table.text(base.base), ".", str_of(s.key));
  if (is_module_table(base, table) && PyUnicode_CheckExact(s.key.ptr())) {
    std::string owner = table.text(table[base.base].base), name = str_of(s.key);
    if (is_number(name)) return cat(owner, "[", name, "]");
    if (is_identifier(s.key)) return cat(owner, ".", name);
  }
  if (THPVariable_Check(s.key.ptr())) return cat(table.text(s.base), "[tensor ", id.index, "]");
  return cat(table.text(s.base), "[", text_of_constant(s.key), "]");
}

constexpr bool kByValue[] = {
#define OXY_GUARD(kind, by_value, text, failure) by_value,
#include "python/guards/kinds.def"
};
bool by_value(GuardKind kind) { return kByValue[static_cast<size_t>(kind)]; }

// A source that has many names guarded, such as the dict of a module, has them apart.
size_t hash_of_expected(const Guard& g) {
  PyObject* p = g.expected.ptr();
  if (!by_value(g.kind)) return reinterpret_cast<size_t>(p);
  return p != nullptr && PyUnicode_CheckExact(p) ? static_cast<size_t>(PyObject_Hash(p)) : 0;
}

size_t hash_of(const Guard& g) {
  size_t h = static_cast<size_t>(g.kind) * 31 + g.source.index;
  h = h * 31 + hash_of_expected(g);
  h = h * 31 + g.other.index;
  h = h * 31 + static_cast<size_t>(g.number);
  return h * 0x9e3779b97f4a7c15ull;
}

bool same_guard(const Guard& a, const Guard& b) {
  if (a.kind != b.kind || a.source != b.source || a.other != b.other || a.number != b.number ||
      a.all != b.all)
    return false;
  if (a.expected.is(b.expected)) return true;
  return by_value(a.kind) && a.expected && b.expected &&
         same_constant(a.expected.ptr(), b.expected.ptr());
}

}  // namespace

SourceId SourceTable::add(SourceKind kind, SourceId base, int64_t index, py::handle key) {
  bool root = kind == SourceKind::Local || kind == SourceKind::Pinned;
  OXY_CHECK(root ? !base.valid() : sources_.contains(base), "base of a source");
  Source source{kind, base, borrow(key), index};
  const size_t hash = hash_of(source);
  for (auto [it, last] = by_hash_.equal_range(hash); it != last; ++it)
    if (same_source(sources_[it->second], source)) return it->second;
  SourceId id = sources_.add(std::move(source));
  by_hash_.emplace(hash, id);
  return id;
}

SourceId SourceTable::pinned(py::handle object, std::string_view name) {
  SourceId& id = pinned_[object.ptr()];
  if (!id.valid()) {
    id = add(SourceKind::Pinned, {}, 0, object);
    names_.emplace(id.index, name);
  }
  return id;
}

std::optional<SourceId> SourceTable::find_pinned(py::handle object) const {
  auto it = pinned_.find(object.ptr());
  return it == pinned_.end() ? std::nullopt : std::optional(it->second);
}

int SourceTable::traverse(visitproc visit, void* arg) const {
  for (const Source& s : sources_) Py_VISIT(s.key.ptr());
  return 0;
}

std::string SourceTable::text(SourceId id) const {
  const Source& s = sources_[id];
  if (s.kind == SourceKind::Pinned) return names_.at(id.index);
  if (s.kind == SourceKind::DictItem) return item_text(*this, s, id);
  std::string out;
  for (const char c : std::string_view(kSourceTexts[static_cast<size_t>(s.kind)]))
    if (c == '%')
      out += text(s.base);
    else if (c == '#')
      cat_to(out, s.index);
    else if (c == '$')
      out += str_of(s.key);
    else if (c == '@')
      out += text_of_constant(s.key);
    else if (c == '*')
      out += join(py::tuple(s.key), ", ",
                  [](std::string& o, py::handle a) { o += text_of_constant(a); });
    else
      out += c;
  return out;
}

struct UserStack::Place {
  UserStack caller;
  py::object code;
  ir::Frame frame;  // what is known of it already
};

UserStack::UserStack(const UserStack& caller, PyCodeObject* code, int32_t line)
    : place_(std::make_shared<const Place>(caller, borrow(reinterpret_cast<PyObject*>(code)),
                                           ir::Frame{{}, line, {}, {}})) {}

UserStack::UserStack(std::vector<ir::Frame> frames) {
  for (ir::Frame& f : frames) {
    UserStack caller = std::move(*this);
    place_ = std::make_shared<const Place>(std::move(caller), py::object(), std::move(f));
  }
}

UserStack UserStack::caller() const { return place_->caller; }

ir::Frame UserStack::innermost() const {
  ir::Frame frame = place_->frame;
  if (place_->code) {
    auto* code = reinterpret_cast<PyCodeObject*>(place_->code.ptr());
    frame.file = py::handle(code->co_filename).cast<std::string>();
    frame.function = py::handle(code->co_name).cast<std::string>();
  }
  return frame;
}

std::vector<ir::Frame> UserStack::frames() const {
  std::vector<ir::Frame> out;
  for (UserStack s = *this; !s.empty(); s = s.caller()) out.push_back(s.innermost());
  std::ranges::reverse(out);
  return out;
}

void GuardSet::add(Guard guard) {
  const size_t hash = hash_of(guard);
  for (auto [it, last] = by_hash_.equal_range(hash); it != last; ++it)
    if (same_guard(guards_[it->second], guard)) return;
  by_hash_.emplace(hash, guards_.size());
  guards_.push_back(std::move(guard));
}

}  // namespace oxy::python
