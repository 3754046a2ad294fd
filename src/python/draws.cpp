// States of generators that are kept and put back, and the draws themselves.
#include "python/draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_set>

#include "python/cpython/boundary.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

bool is_random(py::handle o) { return py::type::handle_of(o).is(member_of<"random", "Random">()); }

bool is_numpy_generator(py::handle o) {
  return std::string_view(Py_TYPE(o.ptr())->tp_name) == "numpy.random._generator.Generator";
}

bool is_numpy_state(py::handle o) {
  return std::string_view(Py_TYPE(o.ptr())->tp_name) == "numpy.random.mtrand.RandomState";
}

std::span<char> memory_of(py::handle random) {
  return plain_memory_of(random.ptr(), as_type(member_of<"_random", "Random">()));
}

// NumPy's Mersenne Twister, as its C interface (numpy/random/bitgen.h) hands it out: words and a
// position. Its attribute `state` makes an int of each of them, 50 us. Empty where it is another
// generator, or lies otherwise.
struct MersenneTwister {
  uint32_t key[624];
  int position;
};

bool lies_as_expected(py::handle bits, const MersenneTwister& memory) {
  const py::dict state = bits.attr("state")["state"];
  const py::buffer_info key = py::buffer(state["key"]).request();
  return key.size == std::ssize(memory.key) && key.itemsize == sizeof(uint32_t) &&
         std::memcmp(key.ptr, memory.key, sizeof memory.key) == 0 &&
         py::cast<int>(state["pos"]) == memory.position;
}

std::span<char> bits_of(py::handle random_state) {
  const py::object bits = random_state.attr("_bit_generator");
  if (!py::type::handle_of(bits).is(member_of<"numpy.random", "MT19937">())) return {};
  struct Interface {
    MersenneTwister* state;
  };
  const py::object capsule = bits.attr("capsule");
  void* interface = PyCapsule_GetPointer(capsule.ptr(), "BitGenerator");
  if (interface == nullptr) throw py::error_already_set();
  MersenneTwister* state = static_cast<Interface*>(interface)->state;
  static const bool is_known = lies_as_expected(bits, *state);
  return is_known ? std::span(reinterpret_cast<char*>(state), sizeof *state) : std::span<char>();
}

// Those of RandomState's methods that draw no normal numbers.
bool moves_bits_alone(py::handle function) {
  static const std::unordered_set<std::string> names = {
      "bytes",         "choice", "permutation", "rand",    "randint", "random",
      "random_sample", "ranf",   "sample",      "shuffle", "uniform"};
  return py::hasattr(function, "__name__") &&
         names.contains(py::cast<std::string>(function.attr("__name__")));
}

at::Generator torch_generator(py::handle o) {
  return reinterpret_cast<THPGenerator*>(o.ptr())->cdata;
}

}  // namespace

// By its type: `__class__`, which THPGenerator_Check asks, is the user's code.
bool GeneratorStates::is_of_torch(py::handle o) {
  return PyObject_TypeCheck(o.ptr(), as_type(THPGeneratorClass));
}

bool GeneratorStates::knows(py::handle o) {
  if (is_of_torch(o)) return torch_generator(o).device().is_cpu();
  return is_random(o) || is_numpy_generator(o) || is_numpy_state(o);
}

GeneratorStates::~GeneratorStates() {
  if (kept_.empty()) return;
  const py::error_scope pending;
  boundary([this] { restore(); });
}

bool GeneratorStates::is_default(py::handle o) {
  return is_of_torch(o) && torch_generator(o) == at::detail::getDefaultCPUGenerator();
}

void GeneratorStates::keep(py::handle generator, bool bits_alone) {
  const auto known =
      std::ranges::find_if(kept_, [&](const Kept& k) { return k.generator.is(generator); });
  if (known != kept_.end()) {
    if (!known->state && !bits_alone) known->state = generator.attr("get_state")(false);
    return;
  }
  Kept kept{borrow(generator), {}, {}};
  if (is_of_torch(generator)) {
    at::Generator g = torch_generator(generator);
    const std::lock_guard lock(g.mutex());
    kept.state = steal(THPVariable_Wrap(g.get_state()));
  } else if (is_random(generator)) {  // getstate() would make an int of each of its words
    const auto memory = memory_of(generator);
    kept.memory.assign(memory.begin(), memory.end());
    kept.state = generator.attr("gauss_next");
  } else if (is_numpy_state(generator)) {
    const auto bits = bits_of(generator);
    kept.memory.assign(bits.begin(), bits.end());
    if (bits.empty() || !bits_alone) kept.state = generator.attr("get_state")(false);
  } else {
    kept.state = generator.attr("bit_generator").attr("state");
  }
  kept_.push_back(std::move(kept));
}

void GeneratorStates::restore() {
  for (const Kept& k : kept_) {
    PyObject* generator = k.generator.ptr();
    if (is_of_torch(generator)) {
      at::Generator g = torch_generator(generator);
      const std::lock_guard lock(g.mutex());
      g.set_state(THPVariable_Unpack(k.state.ptr()));
    } else if (is_random(k.generator)) {
      std::ranges::copy(k.memory, memory_of(k.generator).data());
      k.generator.attr("gauss_next") = k.state;
    } else if (is_numpy_state(k.generator)) {
      if (k.state) k.generator.attr("set_state")(k.state);
      if (!k.memory.empty()) std::ranges::copy(k.memory, bits_of(k.generator).data());
    } else {
      k.generator.attr("bit_generator").attr("state") = k.state;
    }
  }
  kept_.clear();
}

py::object Draw::value(py::handle of) const {
  if (!of) return function(*args, **kwargs);
  if (keyword == nullptr) return function(of, *args, **kwargs);
  const py::dict named = kwargs.attr("copy")();
  named[keyword] = of;
  return function(*args, **named);
}

// The generators are found before anything else is looked at, by what the guards say of the way to
// them.
Draws::Draws(std::vector<Draw> draws, size_t arguments, const SourceTable& sources,
             const GuardSet& guards)
    : draws_(std::move(draws)) {
  std::vector<SourceId> found;
  std::set<SourceId> way;
  for (Draw& d : draws_) {
    d.bits_alone = moves_bits_alone(d.function);
    if (!d.generator.valid()) continue;
    const Source& at = sources[d.generator];
    if (at.kind == SourceKind::Local && at.index >= static_cast<int64_t>(arguments)) {
      d.maker = static_cast<size_t>(at.index) - arguments;
      continue;
    }
    const auto known = std::ranges::find(found, d.generator);
    d.place = static_cast<uint32_t>(known - found.begin());
    if (known != found.end()) continue;
    found.push_back(d.generator);
    for (SourceId id = d.generator; id.valid(); id = sources[id].base) way.insert(id);
  }
  GuardSet of_way;
  for (const Guard& g : guards.guards())
    if (way.contains(g.source) && !g.other.valid() && !is_of_tensor(g.kind)) of_way.add(g);
  if (!draws_.empty()) generators_ = std::make_shared<GuardProgram>(sources, of_way, found);
}

bool Draws::draw(std::span<PyObject* const> locals, GeneratorStates& before, Arguments& out) const {
  out.locals.assign(locals.begin(), locals.end());
  out.locals.resize(locals.size() + draws_.size());
  Fetched generators;
  if (!generators_->check(locals.data(), generators)) return false;
  const InnerFrames none(nullptr);
  try {
    for (const Draw& d : draws_) {
      PyObject* generator = nullptr;
      if (d.maker)
        generator = out.held[*d.maker].ptr();
      else if (d.generator.valid())
        generator = generators.objects()[d.place];
      if (generator && (!GeneratorStates::knows(generator) ||
                        GeneratorStates::is_default(generator) != d.of_default))
        return false;
      if (generator) before.keep(generator, d.bits_alone);
      const size_t at = locals.size() + out.held.size();
      out.locals[at] = out.held.emplace_back(d.value(generator)).ptr();
    }
  } catch (const py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    return false;
  }
  return true;
}

int Draws::traverse(visitproc visit, void* arg) const {
  for (const Draw& d : draws_) {
    Py_VISIT(d.function.ptr());
    Py_VISIT(d.args.ptr());
    Py_VISIT(d.kwargs.ptr());
  }
  return generators_ ? generators_->traverse(visit, arg) : 0;
}

}  // namespace oxy::python
