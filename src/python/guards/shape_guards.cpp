// The layouts and facts of a recording as a size check, and its run on the inputs of a call.
#include "python/guards/shape_guards.h"

#include <torch/csrc/autograd/python_variable.h>

#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

using pipeline::Reading;
using pipeline::SizeCheck;
using runtime::SizeOp;

// The numbers of an input, with what they are called.
void add_readings(uint32_t input, const ir::Type& type, const std::string& name, bool offsets,
                  std::vector<Reading>& readings, std::vector<std::string>& names) {
  auto add = [&](sym::Expr e, SizeOp op, size_t dimension, std::string what) {
    readings.push_back({e, op, input, dimension});
    names.push_back(std::move(what));
  };
  if (!type.is_tensor()) return add(type.expr, SizeOp::InputNumber, 0, name);
  const ir::TensorType& t = type.tensor;
  for (size_t d = 0; d < t.sizes.size(); d++)
    add(t.sizes[d], SizeOp::InputSize, d, cat(name, ".size(", d, ")"));
  for (size_t d = 0; d < t.strides.size(); d++)
    add(t.strides[d], SizeOp::InputStride, d, cat(name, ".stride(", d, ")"));
  if (offsets) add(t.offset, SizeOp::InputOffset, 0, cat(name, ".storage_offset()"));
}

std::string range_text(sym::Expr symbol) {
  const sym::Range r = sym::range_of(symbol);
  return cat(r.lo == INT64_MIN ? "" : cat(r.lo, " <= "), symbol,
             r.hi == INT64_MAX ? "" : cat(" <= ", r.hi));
}

std::string innermost_line(const std::string& stack) {
  size_t at = stack.rfind("  File ");
  if (at == std::string::npos) return "";
  std::string line = stack.substr(at + 2);
  for (size_t end; (end = line.find('\n')) != std::string::npos;) line.replace(end, 1, " ");
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::string dimension_text(const std::string& what, sym::Expr e, const sym::ShapeFacts& facts) {
  if (e.is_const()) return cat(what, " = ", e, ", static");
  const sym::Expr now = facts.simplify(e);
  if (sym::origin_of(now) != sym::Origin::Hinted) return cat(what, " = ", now, ", unbacked");
  if (!now.is_const())
    return cat(what, " = ", now, ", symbolic, ", sym::hint(e), " in the call that was captured");
  std::string out = cat(what, " = ", now, ", specialized");
  std::vector<sym::Expr> symbols;
  sym::collect_symbols(e, symbols);
  for (const sym::ShapeFacts::Fact& f : facts.facts())
    if (sym::equates(f.condition, symbols))
      cat_to(out, "; ", sym::print(f.condition), " by ", f.op, f.op.empty() ? "" : ", ",
             innermost_line(f.where));
  return out;
}

// What these sizes are, by the first inputs, so many.
SizeCheck sizes_of_inputs(std::span<const Reading> readings, uint32_t inputs,
                          std::span<const sym::Expr> sizes) {
  std::vector<sym::Expr> symbols;
  for (const sym::Expr e : sizes) sym::collect_symbols(e, symbols);
  std::vector<Reading> known, needed;
  for (const Reading& r : readings) {
    if (r.input >= inputs) continue;
    known.push_back(r);
    if (std::erase(symbols, r.value) != 0) needed.push_back(r);
  }
  return pipeline::make_size_check(symbols.empty() ? needed : known, {}, sizes);
}

}  // namespace

ShapeGuards::ShapeGuards(std::span<const Input> inputs, const sym::ShapeFacts& facts,
                         std::span<const sym::Expr> wanted, std::vector<Computed> computed,
                         std::vector<NumberGuard> numbers, bool offsets)
    : computed_(std::move(computed)), numbers_(std::move(numbers)) {
  std::vector<Reading> readings;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < inputs.size(); i++) {
    add_readings(i, inputs[i].type, inputs[i].name, offsets, readings, names);
    inputs_.push_back({inputs[i].fetched, inputs[i].type.is_tensor()});
  }
  for (const Input& in : inputs) {
    if (!in.type.is_tensor()) {
      dimensions_.push_back(dimension_text(in.name, in.type.expr, facts));
      continue;
    }
    for (size_t d = 0; d < in.type.tensor.sizes.size(); d++)
      dimensions_.push_back(
          dimension_text(cat(in.name, ".size()[", d, "]"), in.type.tensor.sizes[d], facts));
  }
  std::vector<sym::Condition> conditions;
  std::vector<std::string> asked_by;
  for (const sym::ShapeFacts::Fact& f : facts.facts()) {
    if (sym::origin_of(f.condition) != sym::Origin::Hinted)
      continue;  // calls check it on their way
    conditions.push_back(f.condition);
    asked_by.push_back(f.where);
  }
  check_ = pipeline::make_size_check(readings, conditions, wanted);
  for (const Computed& c : computed_)
    computed_sizes_.push_back(sizes_of_inputs(readings, c.input, c.sizes));
  std::vector<sym::Expr> symbols;
  for (const Reading& r : readings) sym::collect_symbols(r.value, symbols);
  auto symbol = [&](size_t index) {
    return *std::ranges::find(symbols, index, [](sym::Expr s) { return s.symbol_index(); });
  };
  for (const SizeCheck::Check& c : check_.checks) {
    if (c.kind == SizeCheck::Check::Kind::Reading)
      texts_.push_back({cat(names[c.index], " == ", readings[c.index].value), ""});
    else if (c.kind == SizeCheck::Check::Kind::Range)
      texts_.push_back({range_text(symbol(c.index)), ""});
    else
      texts_.push_back({sym::print(conditions[c.index]), asked_by[c.index]});
  }
  for (const NumberGuard& g : numbers_) texts_.push_back({g.text, g.where});
}

std::optional<size_t> ShapeGuards::first_failure(const SizeCheck& check, size_t inputs,
                                                 std::span<PyObject* const> fetched,
                                                 Slots& slots) const {
  slots.resize_for_overwrite(check.program.instructions.size());
  c10::SmallVector<runtime::SizeInput, 8> read;
  for (const Read& in : std::span(inputs_).first(inputs)) {
    PyObject* o = fetched[in.fetched];
    if (in.tensor) {
      const c10::TensorImpl& t = *THPVariable_Unpack(o).unsafeGetTensorImpl();
      read.push_back({t.sizes().data(), t.strides().data(), t.storage_offset()});
      continue;
    }
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow != 0) return 0;
    read.push_back({nullptr, nullptr, value});
  }
  return pipeline::first_failure(check, {read.data(), read.size()}, slots.data());
}

static void add_sizes(const SizeCheck& check, std::span<const int64_t> slots, Fetched& fetched) {
  for (const runtime::Slot s : check.wanted) fetched.take(PyLong_FromLongLong(slots[s.index]));
}

// False where there is no such int.
bool ShapeGuards::compute(Fetched& fetched) const {
  const size_t given = fetched.objects().size();
  for (size_t i = 0; i < computed_.size(); i++) {
    const Computed& c = computed_[i];
    if (!c.sizes.empty()) {
      Slots slots;
      if (first_failure(computed_sizes_[i], c.input, fetched.objects(), slots)) return false;
      add_sizes(computed_sizes_[i], slots, fetched);
    }
    const py::object number = c.number.value(fetched.objects());
    fetched.shrink(given);
    if (!number || !PyLong_CheckExact(number.ptr())) return false;
    fetched.replace(c.fetched, number.ptr());
  }
  return true;
}

bool ShapeGuards::check(Fetched& fetched) const {
  if (!compute(fetched)) return false;
  Slots slots;
  if (first_failure(check_, inputs_.size(), fetched.objects(), slots)) return false;
  add_sizes(check_, slots, fetched);
  return std::ranges::all_of(numbers_,
                             [&](const NumberGuard& g) { return g.holds(fetched.objects()); });
}

bool ShapeGuards::fits(Fetched& fetched) const {
  if (!compute(fetched)) return false;
  Slots slots;
  return !first_failure(check_, inputs_.size(), fetched.objects(), slots);
}

std::optional<ShapeGuards::Failure> ShapeGuards::why_not(std::span<PyObject* const> found) const {
  Fetched fetched;
  for (PyObject* o : found) fetched.add(o);
  if (!compute(fetched)) return Failure{"a number is no int", ""};
  Slots slots;
  if (const auto failed = first_failure(check_, inputs_.size(), fetched.objects(), slots)) {
    if (*failed == check_.checks.size()) return Failure{"a size beyond 64 bits", ""};
    return Failure{cat("not ", texts_[*failed].text), texts_[*failed].where};
  }
  add_sizes(check_, slots, fetched);
  const auto other = std::ranges::find_if(
      numbers_, [&](const NumberGuard& g) { return !g.holds(fetched.objects()); });
  if (other == numbers_.end()) return std::nullopt;
  return Failure{cat("not ", other->text), other->where};
}

int ShapeGuards::traverse(visitproc visit, void* arg) const {
  for (const Computed& c : computed_)
    if (int stop = c.number.traverse(visit, arg)) return stop;
  for (const NumberGuard& g : numbers_)
    if (int stop = g.question.traverse(visit, arg)) return stop;
  return 0;
}

}  // namespace oxy::python
