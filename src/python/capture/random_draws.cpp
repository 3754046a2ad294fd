// Draws of random numbers by Python: each call makes them in front of its graph (draws.h). A float
// is an input of the graph, an int a symbol; where the code looks at one, the answer is guarded,
// and a call in which it is another one has another capture.
#include "python/capture/random_draws.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/capture/capture.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {
namespace {

// Methods of generators that give numbers, or set the state.
constexpr std::string_view kOfRandom =
    "random getrandbits uniform triangular randint randrange normalvariate gauss lognormvariate "
    "expovariate vonmisesvariate gammavariate betavariate paretovariate weibullvariate "
    "binomialvariate _randbelow_with_getrandbits seed";
constexpr std::string_view kOfNumPy =
    "random rand randn uniform normal standard_normal randint integers random_sample exponential "
    "beta gamma poisson binomial laplace lognormal permutation seed";
constexpr std::string_view kOfTorch = "manual_seed";
// Those of random.Random that change what they are given, or look at each number that they draw.
constexpr std::string_view kByPython = "shuffle sample choices randbytes getstate setstate";
// Functions of torch that take a generator by name, and no tensor.
constexpr std::string_view kFunctions =
    "torch.rand torch.randn torch.randint torch.randperm torch.normal";
// Methods of tensors that take one, and no tensor.
constexpr std::string_view kFills =
    "normal_ uniform_ exponential_ random_ bernoulli_ geometric_ cauchy_ log_normal_";

bool is_of_python(py::handle generator) {
  return py::type::handle_of(generator).is(member_of<"random", "Random">());
}

bool makes_generator(py::handle callable) {
  PyObject* p = callable.ptr();
  if (PyType_Check(p))
    return callable.is(member_of<"random", "Random">()) ||
           callable.is(member_of<"torch", "Generator">()) ||
           std::string_view(as_type(callable)->tp_name) == "numpy.random.mtrand.RandomState";
  return std::string_view(Py_TYPE(p)->tp_name).ends_with("cython_function_or_method") &&
         name_of(callable) == "default_rng";
}

Keywords without_generator(Keywords kwargs) {
  std::erase_if(kwargs, [](const auto& item) { return is_text(item.first.ptr(), "generator"); });
  return kwargs;
}

bool is_array_result(py::handle o) {
  return std::string_view(Py_TYPE(o.ptr())->tp_name).starts_with("numpy.");
}

}  // namespace

bool RandomDraws::is_drawn(SourceId source) const {
  if (draws_.empty() || !source.valid()) return false;
  const Source& root = heap().root_of(source);
  return root.kind == SourceKind::Local && root.index >= static_cast<int64_t>(arguments_);
}

void RandomDraws::note_look(SourceId source) const {
  if (may_be_looked_at || !is_drawn(source)) return;
  throw DrawLookedAt{static_cast<size_t>(heap().root_of(source).index) - arguments_};
}

Draws RandomDraws::taken() const { return {draws_, arguments_, heap().sources, heap().guards}; }

py::object RandomDraws::plain_argument(const std::string& name, const py::object& o) {
  const py::object out = heap().deep_contents(with_numbers(numbers().read(o)));
  const bool plain = !mentions(
      out,
      [](py::handle p) {
        return !is_constant(p.ptr()) && !PyTuple_Check(p.ptr()) && !PyList_CheckExact(p.ptr());
      },
      true);
  if (!plain) throw Break(BreakId::random_number, name, " of a ", Py_TYPE(out.ptr())->tp_name);
  return out;
}

// Behind those that it has.
void RandomDraws::give(Draw& draw, const std::string& name, std::span<const py::object> args,
                       const Keywords& kwargs) {
  py::list all(draw.args);
  for (const py::object& a : args) all.append(plain_argument(name, a));
  draw.args = py::tuple(all);
  for (const auto& [key, value] : kwargs) draw.kwargs[key] = plain_argument(name, value);
}

Done RandomDraws::call(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (makes_generator(callable)) return make(callable, args, kwargs);
  py::object generator;
  size_t first = 0;
  Draw draw;
  if (PyCFunction_Check(p)) {
    generator = borrow(PyCFunction_GET_SELF(p));
    if (!generator || !GeneratorStates::knows(generator)) return std::nullopt;
    draw.function = borrow(method_descriptor(p));
  } else if (!args.empty() && GeneratorStates::knows(args[0])) {
    generator = args[0];
    draw.function = borrow(p);
    first = 1;
  }
  if (!draw.function || !heap().exists(generator)) return std::nullopt;
  const std::string name = name_of(callable);
  if (is_of_python(generator)) {
    const bool known = has_word(kOfRandom, name), by_python = has_word(kByPython, name);
    const py::object own = py::getattr(member_of<"random", "Random">(), name.c_str(), py::none());
    if ((!known && !by_python) || !own.is(draw.function)) return std::nullopt;
    if (by_python) throw Break(BreakId::random_number, name);
  } else if (!has_word(GeneratorStates::is_of_torch(generator) ? kOfTorch : kOfNumPy, name)) {
    return std::nullopt;
  }
  if (PyFunction_Check(p)) objects().guard_code(callable);
  give(draw, name, std::span(args).subspan(first), kwargs);
  if (draw.args.empty() && draw.kwargs.empty() && name == "seed")
    throw Break(BreakId::random_number, "seed() by the system's entropy");
  py::object out = this->draw(name, std::move(draw), generator);
  return name == "manual_seed" ? generator : out;
}

// A generator of the call's own, which each call makes.
py::object RandomDraws::make(py::handle type, const Arguments& args, const Keywords& kwargs) {
  const std::string name = name_of(type);
  Draw draw;
  draw.function = borrow(type);
  give(draw, name, args, kwargs);
  return this->draw(name, std::move(draw), {});
}

// torch.manual_seed, where the graph has drawn nothing yet.
py::object RandomDraws::seed_torch(const Arguments& args, const Keywords& kwargs) {
  if (args.size() + kwargs.size() != 1 || bridge::heard().draws != Attempt::current().before.draws)
    throw Break(BreakId::random_number, "torch.manual_seed behind an op that draws");
  const py::object& generator = member_of<"torch", "default_generator">();
  Draw draw;
  draw.function = own_function("oxyfuel.random_draws", "seeded");
  draw.of_default = true;
  draw.args = py::make_tuple(
      plain_argument("torch.manual_seed", args.empty() ? kwargs[0].second : args[0]));
  return this->draw("torch.manual_seed", std::move(draw), generator);
}

// The generator of before the call among the arguments, which loses one that is torch's own by
// itself; null where there is none.
py::object RandomDraws::generator_in(Keywords& kwargs) {
  const auto found = std::ranges::find_if(kwargs, [this](const auto& item) {
    return is_text(item.first.ptr(), "generator") && GeneratorStates::is_of_torch(item.second) &&
           heap().exists(item.second);
  });
  if (found == kwargs.end()) return {};
  const py::object generator = found->second;
  if (GeneratorStates::is_default(generator)) {
    heap().guard(GuardKind::IdIs, heap().source_of(generator), generator);
    kwargs.erase(found);
  }
  return generator;
}

Done RandomDraws::call_torch(const std::string& name, py::handle callable, const Arguments& args,
                             Keywords& kwargs) {
  const py::object generator = generator_in(kwargs);
  if (!generator || GeneratorStates::is_default(generator) || !GeneratorStates::knows(generator) ||
      !has_word(kFunctions, name) || any_argument(args, kwargs, mentions_tensor))
    return std::nullopt;
  Draw draw;
  draw.function = borrow(callable);
  draw.keyword = "generator";
  give(draw, name, args, without_generator(kwargs));
  return this->draw(name, std::move(draw), generator);
}

// What is drawn is copied to the tensor.
Done RandomDraws::fill(py::handle tensor, const std::string& name, const Arguments& args,
                       const Keywords& kwargs) {
  Keywords rest = kwargs;
  const py::object generator = has_word(kFills, name) ? generator_in(rest) : py::object();
  if (!generator) return std::nullopt;
  if (GeneratorStates::is_default(generator)) return calls().call_method(tensor, name, args, rest);
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (!GeneratorStates::knows(generator) || bridge::is_symbolic(t) || !t.device().is_cpu() ||
      any_argument(args, kwargs, mentions_tensor))
    return std::nullopt;
  Draw draw;
  draw.function = own_function("oxyfuel.random_draws", "filled");
  draw.args = py::make_tuple(name, py::tuple(py::cast(t.sizes().vec())),
                             py::tuple(py::cast(t.strides().vec())), tensor.attr("dtype"));
  give(draw, name, args, without_generator(rest));
  const py::object drawn = this->draw(name, std::move(draw), generator);
  return calls().call_method(tensor, "copy_", {drawn}, {});
}

py::object RandomDraws::draw(const std::string& name, Draw draw, const py::object& generator) {
  if (looked_at.contains(draws_.size())) throw Break(BreakId::random_number, name);
  if (graphs().inner() != nullptr || is_transformed() || c10::InferenceMode::is_enabled())
    throw Break(BreakId::random_number, name, " in a branch, a transform or inference mode");
  if (generator) before_.keep(generator);
  py::object value;
  try {
    const RefusedFrames allowed(nullptr);
    value = draw.value(generator);
  } catch (const py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    throw Break(BreakId::random_number, name, " raises ", one_line(e));
  }
  const bool is_float = PyFloat_CheckExact(value.ptr()), is_int = PyLong_CheckExact(value.ptr());
  const bool is_nothing = value.is_none() || value.is(generator);
  const bool is_made = !generator && GeneratorStates::knows(value);
  const bool is_tensor =
      THPVariable_CheckExact(value.ptr()) && !THPVariable_Unpack(value.ptr()).requires_grad();
  if (!is_float && !is_int && !is_nothing && !is_tensor && !is_made && !is_array_result(value))
    throw Break(BreakId::random_number, name, " gives a ", Py_TYPE(value.ptr())->tp_name);
  if (is_int && !may_be_looked_at) throw Break(BreakId::random_number, name);
  if (is_int && !sizes().symbolic() && sizes().may_be_symbolic()) throw WithSymbols{};
  const SourceId source = heap().sources.local(static_cast<int64_t>(arguments_ + draws_.size()),
                                               cat(name, "() ", draws_.size()));
  if (generator) draw.generator = heap().source_of(generator, name);
  draws_.push_back(std::move(draw));
  heap().hold(value);
  if (is_nothing) return value;
  if (is_float) {
    numbers().varying.insert(heap().sources.text(source));
    return numbers().deferred_number(value, source);
  }
  return heap().wrap(value, source);
}

}  // namespace oxy::python
