// The table of sources: one id for equal sources, and how a source prints.
#include "python/guards/source.h"

#include <algorithm>

#include "python/guards/constants.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

size_t mix(size_t seed, size_t v) { return (seed ^ v) * 0x9e3779b97f4a7c15ull; }

size_t hash_of(const Source& s) {
  size_t h = mix(static_cast<size_t>(s.kind), s.base.index);
  h = mix(h, static_cast<size_t>(s.index));
  if (!s.key) return h;
  bool identity = s.kind == SourceKind::Pinned;
  return mix(h, identity ? reinterpret_cast<size_t>(s.key.ptr()) : constant_hash(s.key.ptr()));
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

// The dicts of a module in which getattr looks: their items print as attributes.
bool is_module_table(const Source& s, const SourceTable& table) {
  if (s.kind != SourceKind::DictItem || table[s.base].kind != SourceKind::InstanceDict ||
      !PyUnicode_CheckExact(s.key.ptr())) {
    return false;
  }
  std::string name = str_of(s.key);
  return name == "_modules" || name == "_parameters" || name == "_buffers";
}

bool is_number(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The item of a dict: as an attribute where getattr would find it so.
std::string item_text(const SourceTable& table, const Source& s) {
  const Source& base = table[s.base];
  if (base.kind == SourceKind::InstanceDict && is_identifier(s.key)) {
    return cat(table.text(base.base), ".", str_of(s.key));
  }
  if (is_module_table(base, table) && PyUnicode_CheckExact(s.key.ptr())) {
    std::string owner = table.text(table[base.base].base), name = str_of(s.key);
    if (is_number(name)) return cat(owner, "[", name, "]");
    if (is_identifier(s.key)) return cat(owner, ".", name);
  }
  return cat(table.text(s.base), "[", str_of(py::repr(s.key)), "]");
}

}  // namespace

SourceId SourceTable::add(SourceKind kind, SourceId base, py::object key, int64_t index) {
  bool root = kind == SourceKind::Local || kind == SourceKind::Pinned;
  OXY_CHECK(root ? !base.valid() : sources_.contains(base), "base of a source");
  Source source{kind, base, std::move(key), index};
  size_t hash = hash_of(source);
  auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (same_source(sources_[it->second], source)) return it->second;
  }
  SourceId id = sources_.add(std::move(source));
  by_hash_.emplace(hash, id);
  return id;
}

SourceId SourceTable::local(int64_t index, const std::string& name) {
  return add(SourceKind::Local, {}, py::str(name), index);
}

SourceId SourceTable::pinned(py::handle object, std::string_view name) {
  SourceId& id = pinned_[object.ptr()];
  if (!id.valid()) {
    id = add(SourceKind::Pinned, {}, py::reinterpret_borrow<py::object>(object), 0);
    names_.emplace(id.index, name);
  }
  return id;
}

std::optional<SourceId> SourceTable::find_pinned(py::handle object) const {
  auto it = pinned_.find(object.ptr());
  return it == pinned_.end() ? std::nullopt : std::optional(it->second);
}

SourceId SourceTable::instance_dict(SourceId base) {
  return add(SourceKind::InstanceDict, base, {}, 0);
}

SourceId SourceTable::type_attribute(SourceId base, py::handle name) {
  return add(SourceKind::TypeAttribute, base, py::reinterpret_borrow<py::object>(name), 0);
}

SourceId SourceTable::attribute(SourceId base, py::handle name) {
  return add(SourceKind::Attribute, base, py::reinterpret_borrow<py::object>(name), 0);
}

SourceId SourceTable::dict_item(SourceId base, py::handle key) {
  return add(SourceKind::DictItem, base, py::reinterpret_borrow<py::object>(key), 0);
}

SourceId SourceTable::item(SourceId base, int64_t index) {
  return add(SourceKind::Item, base, {}, index);
}

SourceId SourceTable::cell_contents(SourceId base) {
  return add(SourceKind::CellContents, base, {}, 0);
}

SourceId SourceTable::closure(SourceId base, int64_t index) {
  return add(SourceKind::Closure, base, {}, index);
}

SourceId SourceTable::default_(SourceId base, int64_t index) {
  return add(SourceKind::Default, base, {}, index);
}

SourceId SourceTable::kw_default(SourceId base, py::handle name) {
  return add(SourceKind::KwDefault, base, py::reinterpret_borrow<py::object>(name), 0);
}

SourceId SourceTable::code(SourceId base) { return add(SourceKind::Code, base, {}, 0); }

SourceId SourceTable::next_popped(SourceId base) {
  return add(SourceKind::NextPopped, base, {}, 0);
}

SourceId SourceTable::next_item(SourceId base, int64_t index) {
  return add(SourceKind::NextItem, base, {}, index);
}

SourceId SourceTable::referent(SourceId base) { return add(SourceKind::Referent, base, {}, 0); }

SourceId SourceTable::context_value(SourceId base, bool or_default) {
  return add(SourceKind::ContextValue, base, {}, or_default);
}

SourceId SourceTable::handled(SourceId base) { return add(SourceKind::Handled, base, {}, 0); }

SourceId SourceTable::key(SourceId base, int64_t index) {
  return add(SourceKind::Key, base, {}, index);
}

SourceId SourceTable::iterator_part(SourceId base, int64_t index) {
  return add(SourceKind::IteratorPart, base, {}, index);
}

SourceId SourceTable::answer(SourceId base, const py::tuple& args) {
  return add(SourceKind::Answer, base, args, 0);
}

SourceId SourceTable::array_tensor(SourceId base) {
  return add(SourceKind::ArrayTensor, base, {}, 0);
}

int SourceTable::traverse(visitproc visit, void* arg) const {
  for (const Source& s : sources_) Py_VISIT(s.key.ptr());
  return 0;
}

std::string SourceTable::text(SourceId id) const {
  const Source& s = sources_[id];
  switch (s.kind) {
    case SourceKind::Local:
      return cat("L[", str_of(py::repr(s.key)), "]");
    case SourceKind::Pinned:
      return names_.at(id.index);
    case SourceKind::InstanceDict:
      return cat(text(s.base), ".__dict__");
    case SourceKind::TypeAttribute:
    case SourceKind::Attribute:
      return cat(text(s.base), ".", str_of(s.key));
    case SourceKind::DictItem:
      return item_text(*this, s);
    case SourceKind::Item:
      return cat(text(s.base), "[", s.index, "]");
    case SourceKind::CellContents:
      return cat(text(s.base), ".cell_contents");
    case SourceKind::Closure:
      return cat(text(s.base), ".__closure__[", s.index, "]");
    case SourceKind::Default:
      return cat(text(s.base), ".__defaults__[", s.index, "]");
    case SourceKind::KwDefault:
      return cat(text(s.base), ".__kwdefaults__[", str_of(py::repr(s.key)), "]");
    case SourceKind::Code:
      return cat(text(s.base), ".__code__");
    case SourceKind::NextPopped:
      return cat("what ", text(s.base), ".pop() takes");
    case SourceKind::NextItem:
      return cat("item ", s.index, " of ", text(s.base));
    case SourceKind::Referent:
      return cat(text(s.base), "()");
    case SourceKind::Handled:
      return cat(text(s.base), "()[1]");
    case SourceKind::ContextValue:
      return cat(text(s.base), ".get()");
    case SourceKind::Key:
      return cat("key ", s.index, " of ", text(s.base));
    case SourceKind::IteratorPart:
      return cat("part ", s.index, " of ", text(s.base));
    case SourceKind::Answer:
      return cat(
          text(s.base), "(",
          join(py::tuple(s.key), ", ",
               [](std::string& out, py::handle a) { out += py::repr(a).cast<std::string>(); }),
          ")");
    case SourceKind::ArrayTensor:
      return cat("torch.from_numpy(", text(s.base), ")");
  }
  OXY_FAIL("source kind");
}

}  // namespace oxy::python
