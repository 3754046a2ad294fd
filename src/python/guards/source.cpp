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

// By kind: % is the base's text, # the index, $ and @ the key's str and repr, * those of a tuple's
// items.
constexpr const char* kTexts[] = {"L[@]",
                                  nullptr,
                                  "%.__dict__",
                                  "%.$",
                                  "%.$",
                                  nullptr,
                                  "%[#]",
                                  "%.cell_contents",
                                  "%.__closure__[#]",
                                  "%.__defaults__[#]",
                                  "%.__kwdefaults__[@]",
                                  "%.__code__",
                                  "what %.pop() takes",
                                  "item # of %",
                                  "%()",
                                  "%.get()",
                                  "%()[1]",
                                  "key # of %",
                                  "part # of %",
                                  "%(*)",
                                  "torch.from_numpy(%)"};
static_assert(std::size(kTexts) == static_cast<size_t>(SourceKind::ArrayTensor) + 1);

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
  return !s.empty() && std::ranges::all_of(s, [](char c) { return c >= '0' && c <= '9'; });
}

// The item of a dict: as an attribute where getattr would find it so.
std::string item_text(const SourceTable& table, const Source& s) {
  const Source& base = table[s.base];
  if (base.kind == SourceKind::InstanceDict && is_identifier(s.key))
    return cat(table.text(base.base), ".", str_of(s.key));
  if (is_module_table(base, table) && PyUnicode_CheckExact(s.key.ptr())) {
    std::string owner = table.text(table[base.base].base), name = str_of(s.key);
    if (is_number(name)) return cat(owner, "[", name, "]");
    if (is_identifier(s.key)) return cat(owner, ".", name);
  }
  return cat(table.text(s.base), "[", str_of(py::repr(s.key)), "]");
}

}  // namespace

SourceId SourceTable::add(SourceKind kind, SourceId base, int64_t index, py::handle key) {
  bool root = kind == SourceKind::Local || kind == SourceKind::Pinned;
  OXY_CHECK(root ? !base.valid() : sources_.contains(base), "base of a source");
  Source source{kind, base, borrow(key), index};
  size_t hash = hash_of(source);
  auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it)
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
  if (s.kind == SourceKind::DictItem) return item_text(*this, s);
  std::string out;
  for (const char c : std::string_view(kTexts[static_cast<size_t>(s.kind)]))
    if (c == '%')
      out += text(s.base);
    else if (c == '#')
      cat_to(out, s.index);
    else if (c == '$')
      out += str_of(s.key);
    else if (c == '@')
      out += str_of(py::repr(s.key));
    else if (c == '*')
      out += join(py::tuple(s.key), ", ",
                  [](std::string& o, py::handle a) { o += str_of(py::repr(a)); });
    else
      out += c;
  return out;
}

}  // namespace oxy::python
