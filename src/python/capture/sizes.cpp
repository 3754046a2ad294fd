// Marks on tensors, numbers that become inputs, what is wanted of sizes.
#include "python/capture/sizes.h"

#include <torch/csrc/utils/python_symnode.h>

#include "python/capture/capture.h"

namespace oxy::python {
namespace {

// The dimensions in the set that torch._dynamo.mark_dynamic and its kind keep with a tensor.
std::set<int64_t> marked_dims(py::handle tensor, const char* mark) {
  PyObject** dict = _PyObject_GetDictPtr(tensor.ptr());
  if (dict == nullptr || *dict == nullptr) return {};
  const py::object found = borrow(PyDict_GetItemString(*dict, mark));
  std::set<int64_t> out;
  if (found)
    for (py::handle d : py::list(found)) out.insert(d.cast<int64_t>());
  return out;
}

// Whether it tells something of one of the symbols that others make a number.
bool mentions(const sym::Condition& c, std::span<const sym::Expr> symbols) {
  if (c.kind == sym::Condition::Kind::Equal)
    return std::ranges::any_of(symbols,
                               [&](sym::Expr s) { return sym::contains(c.difference, s); });
  return std::ranges::any_of(c.parts, [&](const auto& part) { return mentions(part, symbols); });
}

}  // namespace

py::object from_torch(const py::object& o) {
  // By type: isinstance would ask the object, whose class may answer with Python code.
  if (PyObject_TypeCheck(o.ptr(), as_type(member_of<"torch", "SymInt">()))) {
    const auto s = o.cast<c10::SymInt>();
    if (auto constant = s.maybe_as_int()) return py::int_(*constant);
    return symbolic_int(bridge::expr_of(s), bridge::facts_of(s));
  }
  if (!PyTuple_Check(o.ptr()) && !PyList_CheckExact(o.ptr())) return o;
  return with_items(o, from_torch);
}

bool mentions_symbolic_int(py::handle o) {
  return mentions(o, [](py::handle p) { return is_symbolic_int(p); }, true);
}

py::object with_numbers(const py::object& o) {
  if (is_symbolic_int(o)) return number_of(o, true);
  return mentions_symbolic_int(o) ? with_items(o, with_numbers) : o;
}

std::vector<bridge::DynamicDim> Sizes::dims_of(py::handle tensor, SourceId source) {
  if (policy_ == nullptr || policy_->mode == DynamicShapes::Mode::Never || policy_->refused)
    return {};
  std::set<int64_t> dims = marked_dims(tensor, "_dynamo_dynamic_indices");
  dims.merge(marked_dims(tensor, "_dynamo_weak_dynamic_indices"));
  dims.merge(marked_dims(tensor, "_dynamo_unbacked_indices"));
  if (!symbolic()) {
    if (!dims.empty()) throw WithSymbols{};
    return {};
  }
  const int64_t rank = THPVariable_Unpack(tensor.ptr()).dim();
  if (policy_->all() && !heap().is_module_state(source))
    for (int64_t d = 0; d < rank; d++) dims.insert(d);
  const std::string name = heap().sources.text(source);
  if (auto it = policy_->changed.find(name); it != policy_->changed.end())
    dims.insert(it->second.begin(), it->second.end());
  else if (!policy_->known.contains(name) && !heap().is_module_state(source))
    for (int64_t d = 0; d < rank; d++)
      if (policy_->sizes_before.contains(THPVariable_Unpack(tensor.ptr()).size(d))) dims.insert(d);
  for (const int64_t d : marked_dims(tensor, "_dynamo_static_indices")) dims.erase(d);
  std::erase_if(dims, [rank](int64_t d) { return d >= rank; });  // a mark of what it was before
  std::vector<bridge::DynamicDim> out;
  for (const int64_t d : dims) out.push_back({d});
  return out;
}

void Sizes::add_tensor(py::handle real, const ir::TensorType& type) {
  const auto fetched = static_cast<uint32_t>(graphs().fetch.size() - 1);
  const std::string name = heap().sources.text(graphs().fetch.back());
  inputs_.push_back({fetched, ir::Type::of(type), name});
  for (const int64_t d : marked_dims(real, "_dynamo_dynamic_indices"))
    if (const auto i = static_cast<size_t>(d); i < type.sizes.size())
      marked_.push_back(
          {cat(name, ".size()[", d, "]"), THPVariable_Unpack(real.ptr()).size(d), type.sizes[i]});
  limit(real, type);
}

void Sizes::limit(py::handle tensor, const ir::TensorType& type) {
  PyObject** dict = _PyObject_GetDictPtr(tensor.ptr());
  PyObject* ranges = dict && *dict ? PyDict_GetItemString(*dict, "_dynamo_dynamic_range") : nullptr;
  if (ranges == nullptr) return;
  const auto facts = graphs().recorder().facts();
  for (py::handle range : py::list(borrow(ranges))) {
    const auto dim = range.attr("dim").cast<size_t>();
    const py::object least = range.attr("min"), most = range.attr("max");
    if (dim >= type.sizes.size()) continue;
    const sym::Expr size = type.sizes[dim];
    if (!least.is_none()) facts->decide(sym::at_most(least.cast<int64_t>(), size));
    if (!most.is_none()) facts->decide(sym::at_most(size, most.cast<int64_t>()));
  }
}

std::string Sizes::violations() const {
  std::string out;
  for (const Marked& m : marked_) {
    const auto& facts = *graphs().recorder().facts();
    if (!facts.simplify(m.size).is_const()) continue;
    cat_to(out, out.empty() ? "" : "\n", "  - You marked ", m.name,
           " as dynamic but your code specialized it to be a constant (", m.hint, "). ");
    std::vector<sym::Expr> symbols;
    sym::collect_symbols(m.size, symbols);
    if (symbols.empty()) {
      out += "A size of 0 or 1 is captured for itself: call it with another one first.";
      continue;
    }
    out += "Remove the mark or use maybe_mark_dynamic. It was specialized here:";
    for (const auto& f : facts.facts())
      if (mentions(f.condition, symbols))
        cat_to(out, "\n    ", sym::print(f.condition), "\n", f.where);
    while (out.ends_with("\n")) out.pop_back();
  }
  return out;
}

py::object Sizes::number(py::handle real, SourceId source) {
  if (!symbolic() || policy_->numbers.empty() ||
      !policy_->numbers.contains(heap().sources.text(source)))
    return {};
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(real.ptr(), &overflow);
  constexpr int64_t kMost = sym::Expr::kMaxConst / 4;
  if (overflow != 0 || value > kMost || value < -kMost) return {};
  heap().guard(GuardKind::TypeIs, source, py::type::of(real));
  const std::string name = cat("n", inputs_.size());
  const c10::SymInt s = graphs().recorder().add_symbolic_number(value, name, std::nullopt);
  const ir::Type type = ir::Type::integer(bridge::expr_of(s));
  graphs().ir->graph.add_input(name, type);
  graphs().fetch.push_back(source);
  graphs().example_inputs.push_back(borrow(real));
  graphs().ir->module_state.push_back(false);
  inputs_.push_back(
      {static_cast<uint32_t>(graphs().fetch.size() - 1), type, heap().sources.text(source)});
  py::object out = symbolic_int(bridge::expr_of(s), bridge::facts_of(s));
  heap().hold(out);
  return out;
}

py::object Sizes::extreme(const py::list& items, bool least) {
  std::optional<sym::Expr> out;
  std::shared_ptr<sym::ShapeFacts> facts;
  for (py::handle item : items) {
    sym::Expr e = 0;
    if (is_symbolic_int(item)) {
      e = expr_of(item);
      facts = graphs().recorder().facts();
    } else {
      int overflow = 1;
      const int64_t v =
          PyLong_CheckExact(item.ptr()) ? PyLong_AsLongLongAndOverflow(item.ptr(), &overflow) : 0;
      if (overflow != 0 || std::abs(v) > sym::Expr::kMaxConst / 4) return {};
      e = v;
    }
    out = !out ? e : least ? sym::min(*out, e) : sym::max(*out, e);
  }
  return facts ? symbolic_int(*out, facts) : py::object();
}

void Sizes::make_plain(Arguments& args, Keywords& kwargs) {
  if (!symbolic()) return;
  for (py::object& a : args) a = with_numbers(a);
  for (auto& [key, a] : kwargs) a = with_numbers(a);
}

uint32_t Sizes::wanted(py::handle symbolic) {
  const sym::Expr e = expr_of(symbolic);
  const auto found = std::ranges::find(wanted_, e);
  if (found == wanted_.end()) return wanted_.push_back(e), wanted_.size() - 1;
  return static_cast<uint32_t>(found - wanted_.begin());
}

std::shared_ptr<ShapeGuards> Sizes::guards() const {
  if (!symbolic()) return nullptr;
  return std::make_shared<ShapeGuards>(inputs_, *graphs().recorder().facts(), wanted_);
}

}  // namespace oxy::python
