// Marks on tensors, numbers that become inputs, what is wanted of sizes.
#include "python/capture/sizes.h"

#include <torch/csrc/utils/python_symnode.h>

#include "python/capture/capture.h"
#include "python/capture/size_float.h"
#include "torch_bridge/input_signature.h"

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

}  // namespace

static constexpr int kMostNesting = 20;  // one that holds itself has no end

static py::object from_torch_inside(const py::object& o, int depth) {
  if (is_symbolic(o) || depth > kMostNesting) return o;
  // By type: isinstance would ask the object, whose class may answer with Python code.
  auto is = [&](py::handle type) { return PyObject_TypeCheck(o.ptr(), as_type(type)) != 0; };
  if (is(member_of<"torch", "SymInt">())) {
    const auto s = o.cast<c10::SymInt>();
    if (auto constant = s.maybe_as_int()) return py::int_(*constant);
    return symbolic_int(bridge::expr_of(s), bridge::facts_of(s));
  }
  if (is(member_of<"torch", "SymBool">()) && !is_symbolic_bool(o)) {
    const auto s = o.cast<c10::SymBool>();
    if (auto constant = s.maybe_as_bool()) return py::bool_(*constant);
    const sym::Condition c = bridge::condition_of(s);
    return symbolic_bool(c, sym::print(c), bridge::facts_of(s));
  }
  if (!PyTuple_Check(o.ptr()) && !PyList_CheckExact(o.ptr())) return o;
  bool same = true;  // then it is the object itself, to which captured code may write
  py::object out = with_items(o, [&](const py::object& item) {
    py::object made = from_torch_inside(item, depth + 1);
    same &= made.is(item);
    return made;
  });
  return same ? o : out;
}

py::object from_torch(const py::object& o) { return from_torch_inside(o, 0); }

bool mentions_symbolic_int(py::handle o) {
  return mentions(o, [](py::handle p) { return is_symbolic(p); }, true);
}

static py::object with_numbers_inside(const py::object& o, int depth) {
  if (is_symbolic(o)) return guarded_number(o);
  if (!mentions_symbolic_int(o)) return o;
  if (depth > kMostNesting)
    throw Break(BreakId::builtin_on_existing, "containers in containers, without end");
  return with_items(o,
                    [&](const py::object& item) { return with_numbers_inside(item, depth + 1); });
}

py::object with_numbers(const py::object& o) { return with_numbers_inside(o, 0); }

// What an optimizer keeps for a parameter, of its sizes; where it stands in a capture is no name
// for the next one.
static bool is_kept_for_tensor(const SourceTable& sources, SourceId source) {
  for (; source.valid(); source = sources[source].base)
    if (sources[source].kind == SourceKind::DictItem && sources[source].key &&
        THPVariable_Check(sources[source].key.ptr()))
      return true;
  return false;
}

std::vector<bridge::DynamicDim> Sizes::dims_of(py::handle tensor, SourceId source) {
  if (policy_ == nullptr || policy_->off()) return {};
  std::set<int64_t> dims = marked_dims(tensor, "_dynamo_dynamic_indices");
  dims.merge(marked_dims(tensor, "_dynamo_weak_dynamic_indices"));
  std::set<int64_t> unbacked = marked_dims(tensor, "_dynamo_unbacked_indices");
  const bool state = heap().is_module_state(source);
  if (state && policy_->static_state == true && dims.empty() && unbacked.empty()) return {};
  if (!symbolic()) {
    if (!dims.empty() || !unbacked.empty()) throw WithSymbols{};
    return {};
  }
  const int64_t rank = THPVariable_Unpack(tensor.ptr()).dim();
  if (policy_->all() && (!state || policy_->static_state == false))
    for (int64_t d = 0; d < rank; d++) dims.insert(d);
  const std::string name = heap().sources.text(source);
  std::set<int64_t> alike;  // of several of a size, mostly one varies: those have symbols apart
  if (auto it = policy_->changed.find(name); it != policy_->changed.end()) {
    dims.insert(it->second.begin(), it->second.end());
  } else if (!policy_->known.contains(name) && !state &&
             !is_kept_for_tensor(heap().sources, source)) {
    std::map<int64_t, int64_t> first;  // dimension of a size
    for (int64_t d = 0; d < rank; d++) {
      const int64_t size = THPVariable_Unpack(tensor.ptr()).size(d);
      if (!policy_->sizes_before.contains(size)) continue;
      dims.insert(d);
      if (const auto [it, is_new] = first.emplace(size, d); !is_new)
        alike.merge(std::set{d, it->second});
    }
  }
  for (const int64_t d : marked_dims(tensor, "_dynamo_static_indices"))
    dims.erase(d), unbacked.erase(d);
  std::vector<bridge::DynamicDim> out;
  const auto group_of = [&](int64_t d) {
    if (!policy_->duck) return cat(name, ' ', d);
    return alike.contains(d) ? cat("dimension ", d) : std::string();
  };
  auto add = [&](const std::set<int64_t>& some, bridge::DynamicDim::Kind kind) {
    for (const int64_t d : some)
      if (d >= -rank && d < rank)  // else a mark of what it was before
        out.push_back({d, group_of(d), kind});
  };
  add(dims, bridge::DynamicDim::Kind::Size);
  add(unbacked, bridge::DynamicDim::Kind::Unbacked);
  if (auto it = policy_->changed_strides.find(name); it != policy_->changed_strides.end())
    add(it->second, bridge::DynamicDim::Kind::Stride);
  return out;
}

bridge::OfData Sizes::of_data() const {
  return policy_ != nullptr && policy_->takes_data() ? policy_->of_data : bridge::OfData();
}

py::object Sizes::number_in(const py::object& tensor) {
  return of_data().numbers ? recorded_item(tensor) : py::object();
}

py::object Sizes::number_in_argument(const py::object& tensor) {
  if (!of_data().numbers || policy_->unasked.numbers || policy_->off() ||
      graphs().inner() != nullptr || !numbers().is_unwritten(tensor))
    return {};
  const auto dtype = THPVariable_Unpack(tensor.ptr()).scalar_type();
  if (!at::isIntegralType(dtype, false) && dtype != at::kDouble) return {};  // as TorchDynamo's
  const Tracked& k = *heap().tracked(tensor);
  const py::object value = python::number_in(k.original.ptr());
  if (!value) return {};
  met_argument = true;
  if (!policy_->reads_arguments) return {};
  const SourceId source = heap().sources.number_in(k.source);
  if (!PyLong_CheckExact(value.ptr())) return heap().wrap(value, source);
  auto [known, is_new] = in_arguments_.try_emplace(source);
  if (is_new) known->second = add_number(value, source, heap().sources.text(source));
  return known->second;
}

py::object Sizes::recorded_item(const py::object& tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (graphs().inner() != nullptr || !at::isIntegralType(t.scalar_type(), false)) return {};
  met_number = true;
  return graphs().record(ir::NodeKind::CallMethod, "item", {}, {tensor}, {});
}

py::object Sizes::list_of(const py::object& tensor) {
  constexpr int64_t kMost = 256;
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (t.dim() == 0) return number_in(tensor);
  const sym::Expr count = bridge::expr_of(t.sym_size(0)), all = bridge::expr_of(t.sym_numel());
  if (!of_data().numbers || sym::origin_of(all) != sym::Origin::Hinted || sym::hint(all) > kMost ||
      !at::isIntegralType(t.scalar_type(), false))
    return {};
  py::list out;
  const int64_t items = count.is_const() ? count.value() : graphs().recorder().facts()->pin(count);
  for (int64_t i = 0; i < items; i++) {
    const py::object item =
        list_of(calls().call_method(tensor, "select", {py::int_(0), py::int_(i)}, {}));
    if (!item) return {};
    out.append(item);
  }
  return std::move(out);
}

// Of what a tensor is indexed with: lists of ints as tensors, where there are symbols in them.
py::object Sizes::with_index_tensors(const py::object& key) {
  if (!symbolic()) return key;
  auto is_whole = [](py::handle i) {
    return PyLong_CheckExact(i.ptr()) || (is_symbolic_int(i) && has_hint(i));
  };
  auto made = [&](const py::object& o) {
    if (!PyList_CheckExact(o.ptr())) return o;
    const py::list items(heap().contents(o));
    if (std::ranges::none_of(items, is_symbolic_int) || !std::ranges::all_of(items, is_whole))
      return o;
    return calls().call(member_of<"torch", "tensor">(),
                        {items[py::slice(py::none(), py::none(), py::none())]}, {});
  };
  if (!PyTuple_CheckExact(key.ptr())) return made(key);
  py::tuple out(py::len(key));
  for (size_t i = 0; i < out.size(); i++) out[i] = made(py::tuple(key)[i]);
  return std::move(out);
}

namespace {

// How many dimensions an item of an index takes; nothing of one that is not looked into.
std::optional<size_t> dimensions_of(py::handle item) {
  PyObject* p = item.ptr();
  if (item.is_none() || p == Py_Ellipsis) return 0;
  if (PySlice_Check(p) || PyLong_CheckExact(p) || is_symbolic_int(item)) return 1;
  if (!is_tensor_object(p)) return std::nullopt;
  const at::Tensor& t = THPVariable_Unpack(p);
  if (t.dim() == 0) return std::nullopt;
  const bool mask = t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
  return mask ? static_cast<size_t>(t.dim()) : 1;
}

}  // namespace

// A view of all of these dimensions, from which they are selected then; tensors index what is left.
std::optional<Sizes::Selected> Sizes::select(const py::object& tensor, const py::object& key) {
  const py::list items = PyTuple_Check(key.ptr()) ? py::list(key) : py::list(py::make_tuple(key));
  if (std::ranges::none_of(items, is_symbolic_int)) return std::nullopt;
  size_t indexed = 0;
  for (py::handle i : items) {
    const auto taken = dimensions_of(i);
    if (!taken) return std::nullopt;
    indexed += *taken;
  }
  const auto rank = static_cast<size_t>(THPVariable_Unpack(tensor.ptr()).dim());
  const py::object whole = py::slice(py::none(), py::none(), py::none());
  py::list all, left;
  bool any_tensors = false;
  std::vector<std::pair<size_t, py::object>> selected;
  size_t dim = 0;
  for (py::handle i : items) {
    const bool wide = i.ptr() == Py_Ellipsis, number = PyLong_CheckExact(i.ptr()) != 0;
    const bool by_tensor = is_tensor_object(i.ptr());
    any_tensors |= by_tensor;
    if (is_symbolic_int(i)) selected.emplace_back(dim, borrow(i));
    if (by_tensor || is_symbolic_int(i))
      for (size_t k = 0; k < *dimensions_of(i); k++) all.append(whole);
    else
      all.append(i);
    if (by_tensor || wide)
      left.append(i);
    else if (!number && !is_symbolic_int(i))
      left.append(whole);
    if (wide)
      dim += indexed < rank ? rank - indexed : 0;
    else if (!number)
      dim += i.is_none() ? 1 : *dimensions_of(i);
  }
  py::object out = objects().subscript(tensor, py::tuple(all));
  while (!selected.empty()) {
    const auto& [at, number] = selected.back();
    out = calls().call_method(out, "select", {py::int_(at), number}, {});
    selected.pop_back();
  }
  return Selected{out, any_tensors ? py::object(py::tuple(left)) : py::object()};
}

bool Sizes::assume(py::handle condition, bool holds) {
  if (!is_symbolic_bool(condition)) return false;
  const sym::Condition c = condition_of(condition);
  return graphs().recorder().facts()->assume(holds ? c : sym::negate(c));
}

void Sizes::add_tensor(py::handle real, const ir::TensorType& type) {
  const auto fetched = static_cast<uint32_t>(graphs().fetch.size() - 1);
  const std::string name = heap().sources.text(graphs().fetch.back());
  inputs_.push_back({fetched, ir::Type::of(type), name});
  const size_t first_mark = marked_.size();
  for (const int64_t d : marked_dims(real, "_dynamo_dynamic_indices"))
    if (const auto i = static_cast<size_t>(d); i < type.sizes.size())
      marked_.push_back({.name = cat(name, ".size()[", d, "]"),
                         .dim = i,
                         .hint = THPVariable_Unpack(real.ptr()).size(d),
                         .size = type.sizes[i]});
  limit(real, type, first_mark);
}

void Sizes::limit(py::handle tensor, const ir::TensorType& type, size_t first_mark) {
  PyObject** dict = _PyObject_GetDictPtr(tensor.ptr());
  auto kept = [&](const char* name) {
    return dict && *dict ? PyDict_GetItemString(*dict, name) : nullptr;
  };
  const auto facts = graphs().recorder().facts();
  if (PyObject* bounds = kept("_dynamo_unbacked_bounds"))
    for (auto [key, pair] : py::reinterpret_borrow<py::dict>(bounds)) {
      const auto d = key.cast<int64_t>();
      const auto dim = static_cast<size_t>(d < 0 ? d + type.dim() : d);
      const py::tuple ends(borrow(pair));
      if (dim >= type.sizes.size()) continue;
      if (!ends[0].is_none()) facts->assume(sym::at_most(ends[0].cast<int64_t>(), type.sizes[dim]));
      if (!ends[1].is_none()) facts->assume(sym::at_most(type.sizes[dim], ends[1].cast<int64_t>()));
    }
  PyObject* ranges = kept("_dynamo_dynamic_range");
  if (ranges == nullptr) return;
  for (py::handle range : py::list(borrow(ranges))) {
    const auto dim = range.attr("dim").cast<size_t>();
    const py::object least = range.attr("min"), most = range.attr("max");
    if (dim >= type.sizes.size()) continue;
    const sym::Expr size = type.sizes[dim];
    if (!least.is_none()) facts->decide(sym::at_most(least.cast<int64_t>(), size));
    if (!most.is_none()) facts->decide(sym::at_most(size, most.cast<int64_t>()));
    for (Marked& m : std::span(marked_).subspan(first_mark)) {
      if (m.dim != dim) continue;
      if (!least.is_none()) m.least = least.cast<int64_t>();
      if (!most.is_none()) m.most = most.cast<int64_t>();
    }
  }
}

std::vector<std::string> Sizes::checks() const {
  std::vector<std::string> out;
  if (!symbolic()) return out;
  for (const sym::ShapeFacts::Fact& f : graphs().recorder().facts()->checked_facts())
    out.push_back(cat(sym::print(f.condition), " is checked by each call",
                      f.op.empty() ? "" : cat(", for ", f.op), f.where.empty() ? "" : "\n",
                      f.where));
  return out;
}

bool Sizes::share_written_storage() const {
  std::unordered_map<const void*, size_t> inputs;  // by storage
  auto storage = [&](size_t i) {
    const py::object& o = graphs().example_inputs[i];
    return THPVariable_Check(o.ptr())
               ? bridge::storage_of(*THPVariable_Unpack(o.ptr()).unsafeGetTensorImpl())
               : nullptr;
  };
  for (size_t i = 0; i < graphs().example_inputs.size(); i++) inputs[storage(i)]++;
  return std::ranges::any_of(inputs_, [&](const ShapeGuards::Input& in) {
    const void* s = storage(in.fetched);
    return s != nullptr && inputs[s] > 1 && std::ranges::count(graphs().written_storages, s);
  });
}

// The facts that make the symbols what they are, from one symbol to the next.
static std::string chain_of_facts(const sym::ShapeFacts& facts, std::vector<sym::Expr> symbols) {
  std::vector<const sym::ShapeFacts::Fact*> chain;
  for (bool grows = true; grows;) {
    const size_t before = symbols.size();
    chain.clear();
    for (const sym::ShapeFacts::Fact& f : facts.facts())
      if (sym::equates(f.condition, symbols)) {
        chain.push_back(&f);
        sym::collect_symbols(f.condition.difference, symbols);
      }
    grows = symbols.size() != before;
  }
  std::string out;
  for (const sym::ShapeFacts::Fact* f : chain) {
    cat_to(out, "\n    ", sym::print(f->condition), "\n", f->where);
    while (out.ends_with("\n")) out.pop_back();
  }
  return out;
}

std::string Sizes::narrowed(const Marked& m) const {
  constexpr int64_t kFirstSymbol = 2;
  const auto& facts = *graphs().recorder().facts();
  const sym::Expr size = facts.simplify(m.size);
  const bool from_above =
      m.least && facts.known(sym::less(std::max(*m.least, kFirstSymbol), size)) == true;
  if (!from_above && !(m.most && facts.known(sym::less(size, *m.most)) == true)) return {};
  std::vector<sym::Expr> symbols;
  sym::collect_symbols(m.size, symbols);
  std::string out;
  for (const sym::ShapeFacts::Fact& f : facts.facts()) {
    std::vector<sym::Expr> in_fact;
    sym::collect_symbols(f.condition.difference, in_fact);
    if (in_fact == symbols) cat_to(out, "\n    ", sym::print(f.condition), "\n", f.where);
  }
  while (out.ends_with("\n")) out.pop_back();
  return out;
}

std::string Sizes::violations() const {
  std::string out, names;
  for (const Marked& m : marked_) {
    const auto& facts = *graphs().recorder().facts();
    std::vector<sym::Expr> symbols;
    sym::collect_symbols(m.size, symbols);
    if (symbols.empty()) continue;  // of 0 or 1, which are numbers
    const auto range = [&] {
      return cat("in the range [", m.least ? cat(*m.least) : "2", ", ",
                 m.most ? cat(*m.most) : "inf", "] of its mark");
    };
    std::string what;
    if (!m.holds(m.hint))
      what = cat("\n  - ", m.name, ": ", m.hint, " is not ", range());
    else if (facts.simplify(m.size).is_const())
      what = cat("\n  - You marked ", m.name,
                 " as dynamic but your code specialized it to be a constant (", m.hint,
                 "). Either remove the mark or use maybe_mark_dynamic. It was specialized here:",
                 chain_of_facts(facts, std::move(symbols)));
    else if (const std::string left = narrowed(m); !left.empty())
      what = cat("\n  - Not all values of ", m.name, " ", range(), " are left by your code:", left);
    if (what.empty()) continue;
    cat_to(names, names.empty() ? "" : ", ", m.name);
    out += what;
  }
  if (out.empty()) return out;
  return cat("Constraints violated (", names,
             ")! For more information, set the log dynamic (OXYFUEL_LOGS=dynamic).", out);
}

bool Sizes::is_static_int(SourceId source) const {
  if (policy_ == nullptr || !policy_->static_module_ints) return false;
  const Source& item = heap().sources[source];
  if (item.kind != SourceKind::DictItem) return false;
  const Source& dict = heap().sources[item.base];
  const auto owner = heap().by_source().find(dict.base);
  if (dict.kind != SourceKind::InstanceDict || owner == heap().by_source().end()) return false;
  if (!PyObject_TypeCheck(owner->second.ptr(), as_type(member_of<"torch.nn", "Module">())))
    return false;
  const py::object value = item_in(owner->second.attr("__dict__"), item.key);
  return value && PyLong_CheckExact(value.ptr());
}

bool Sizes::varies(py::handle real, SourceId source) const {
  return source.valid() && PyLong_CheckExact(real.ptr()) && symbolic() && !policy_->off() &&
         !is_static_int(source) &&
         (draws().is_drawn(source) || policy_->numbers.contains(heap().sources.text(source))) &&
         integer_expr(real);
}

py::object Sizes::number(py::handle real, SourceId source) {
  if (!varies(real, source)) return {};
  heap().guard(GuardKind::TypeIs, source, py::type::of(real));
  return add_number(real, source, heap().sources.text(source));
}

py::object Sizes::add_number(py::handle real, SourceId source, std::string what) {
  const int64_t value = integer_expr(real)->value();
  const std::string name = cat("n", inputs_.size());
  const c10::SymInt s = graphs().recorder().add_symbolic_number(value, name, std::nullopt);
  const ir::Type type = ir::Type::integer(bridge::expr_of(s));
  graphs().ir->graph.add_input(name, type);
  graphs().fetch.push_back(source);
  graphs().example_inputs.push_back(borrow(real));
  graphs().ir->module_state.push_back(false);
  inputs_.push_back({static_cast<uint32_t>(graphs().fetch.size() - 1), type, std::move(what)});
  py::object out = symbolic_int(bridge::expr_of(s), bridge::facts_of(s));
  heap().hold(out);
  return out;
}

py::object Sizes::computed_number(NumberTree number, std::vector<sym::Expr> of_sizes,
                                  const py::object& of, const py::object& value) {
  SourceId source = numbers().first_source(of);
  if (!source.valid() && !graphs().fetch.empty())
    source = graphs().fetch.front();  // none of a number of sizes alone: any one will do
  if (policy_ == nullptr || policy_->off() || graphs().inner() != nullptr ||
      !PyLong_CheckExact(value.ptr()) || !integer_expr(value) || !source.valid())
    return {};
  if (!symbolic()) throw WithSymbols{};
  for (size_t i = 0; i < computed_.size(); i++)
    if (computed_[i].sizes == of_sizes && computed_[i].number.is_same(number))
      return computed_symbols_[i].second;
  py::object out = add_number(value, source, cat("a number of ", heap().sources.text(source)));
  computed_.push_back({static_cast<uint32_t>(inputs_.size() - 1), inputs_.back().fetched,
                       std::move(number), std::move(of_sizes)});
  computed_symbols_.emplace_back(of, out);
  return out;
}

void Sizes::read_computed() {
  for (size_t i = 0; i < computed_.size(); i++) {
    const auto& [of, symbol] = computed_symbols_[i];
    with_numbers(numbers().read(of));
    computed_[i].number = {.constant = number_of(symbol, false)};
    computed_[i].sizes.clear();
  }
}

void Sizes::shift_computed(uint32_t by, uint32_t sizes_by) {
  for (ShapeGuards::Computed& c : computed_) c.number.shift(by, sizes_by);
}

py::object Sizes::extreme(const py::list& items, bool least) {
  std::optional<sym::Expr> out;
  std::shared_ptr<sym::ShapeFacts> facts;
  for (py::handle item : items) {
    const auto e = integer_expr(item);
    if (!e) return {};
    if (is_symbolic_int(item)) facts = graphs().recorder().facts();
    out = !out ? *e : least ? sym::min(*out, *e) : sym::max(*out, *e);
  }
  return facts ? symbolic_int(*out, facts) : py::object();
}

py::object Sizes::rounds(const Arguments& args) {
  if (std::ranges::none_of(args, is_symbolic_int)) return {};
  std::vector<sym::Expr> given;
  for (py::handle a : args)
    if (const auto e = integer_expr(a); e && (!is_symbolic_int(a) || has_hint(a)))
      given.push_back(*e);
  if (given.size() != args.size() || given.size() > 3) return {};
  if (given.size() == 1) given.insert(given.begin(), 0);
  const sym::Expr first = given[0], step = given.size() == 3 ? given[2] : 1;
  if (!step.is_const() || step.is_const(0)) return {};
  constexpr int64_t kMost = 1 << 16;
  const int64_t by = step.value();
  const auto facts = graphs().recorder().facts();
  const sym::Expr length = by > 0 ? given[1] - first : first - given[1];
  if (facts->decide(sym::at_most(length, 0))) return py::tuple();
  const sym::Expr count = sym::ceildiv(length, by > 0 ? by : -by);
  if (!first.is_const()) {
    if (sym::hint(count) > kMost) return {};
    py::tuple out(facts->pin(count));
    for (size_t i = 0; i < out.size(); i++)
      out[i] = symbolic_int(first + sym::Expr(static_cast<int64_t>(i) * by), facts);
    return std::move(out);
  }
  const int64_t start = first.value(), end = start + facts->pin(count) * by;
  return member_of<"builtins", "range">()(start, end, by);
}

// Of a range of sizes: sums of what lies within fit an expression.
constexpr int64_t kLargestBound = int64_t{1} << 40;

// See use_range.
std::optional<Sizes::Range> Sizes::range_of(const Arguments& args) {
  if (args.size() > 3) return std::nullopt;
  std::vector<sym::Expr> given;
  for (py::handle a : args) {
    const auto e = integer_expr(a);
    if (!e || (is_symbolic_int(a) && !has_hint(a))) return std::nullopt;
    if (e->is_const() && std::abs(e->value()) > kLargestBound) return std::nullopt;
    given.push_back(*e);
  }
  Range r{given.size() == 1 ? sym::Expr(0) : given[0], given.size() == 3 ? given[2] : 1, 0};
  const sym::Expr end = given.size() == 1 ? given[0] : given[1];
  const auto facts = graphs().recorder().facts();
  const bool up = facts->decide(sym::less(0, r.step));
  if (!up && !facts->decide(sym::less(r.step, 0))) return std::nullopt;
  const sym::Expr length = up ? end - r.first : r.first - end;
  if (!facts->decide(sym::at_most(length, 0)))
    r.count = sym::ceildiv(length, up ? r.step : -r.step);
  return r;
}

py::object Sizes::count(const Arguments& args) {
  const auto r = range_of(args);
  return r ? symbolic_int(r->count, graphs().recorder().facts()) : py::object();
}

py::object Sizes::sum_of_range(const Arguments& args) {
  const auto r = range_of(args);
  if (!r) return {};
  const sym::Expr ends = 2 * r->first + (r->count - 1) * r->step;
  return symbolic_int(sym::floordiv(r->count * ends, 2), graphs().recorder().facts());
}

py::object Sizes::range_tensor(const Arguments& args) {
  const auto r = range_of(args);
  if (!r) return {};
  const auto facts = graphs().recorder().facts();
  const sym::Expr end = r->first + r->count * r->step;
  return calls().call(
      member_of<"torch", "arange">(),
      {symbolic_int(r->first, facts), symbolic_int(end, facts), symbolic_int(r->step, facts)}, {});
}

std::optional<bool> Sizes::is_in_range(py::handle number, const Arguments& args) {
  if (is_symbolic_int(number) ? !has_hint(number) : !PyLong_CheckExact(number.ptr()))
    return std::nullopt;
  const auto x = integer_expr(number);
  if (!x) return std::nullopt;
  const auto r = range_of(args);
  if (!r) return std::nullopt;
  const auto facts = graphs().recorder().facts();
  const bool up = facts->decide(sym::less(0, r->step));
  const sym::Expr behind = up ? *x - r->first : r->first - *x, step = up ? r->step : -r->step;
  return facts->decide(sym::at_most(0, behind)) &&
         facts->decide(sym::less(behind, r->count * step)) &&
         facts->decide(sym::equal(sym::mod(behind, step), 0));
}

std::optional<py::object> Sizes::square_root(py::handle x, Rounding how) {
  const auto e = integer_expr(x);
  if (!e || !is_symbolic_int(x)) return std::nullopt;
  const auto facts = graphs().recorder().facts();
  const auto root = SizeFloat::square_root(*e, facts);
  return root ? std::optional(symbolic_int(*root->rounded(how), facts)) : std::nullopt;
}

void Sizes::make_plain(Arguments& args, Keywords& kwargs) {
  if (!symbolic() && !numbers().any_deferred()) return;
  for (py::object& a : args) a = with_numbers(a);
  for (auto& [key, a] : kwargs) a = with_numbers(a);
}

uint32_t add_once(std::vector<sym::Expr>& list, sym::Expr e) {
  const auto found = std::ranges::find(list, e);
  const auto at = static_cast<uint32_t>(found - list.begin());
  if (found == list.end()) list.push_back(e);
  return at;
}

uint32_t Sizes::wanted(py::handle symbolic) { return add_once(wanted_, expr_of(symbolic)); }

std::vector<std::string> Sizes::wanted_texts() const {
  std::vector<std::string> out;
  for (const sym::Expr e : wanted_) out.push_back(sym::print(e));
  return out;
}

std::shared_ptr<ShapeGuards> Sizes::guards(bool offsets) const {
  std::shared_ptr<sym::ShapeFacts> facts = graphs().recorder().facts();
  if (!facts) {
    if (numbers().guards.empty()) return nullptr;
    facts = std::make_shared<sym::ShapeFacts>(std::make_shared<sym::ExprPool>());
  }
  return std::make_shared<ShapeGuards>(inputs_, *facts, wanted_, computed_, numbers().guards,
                                       offsets);
}

}  // namespace oxy::python
