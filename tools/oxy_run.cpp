// oxy-run PLAN [INPUT ...]: runs a saved plan on arrays, without torch.
//
// An INPUT is a .npy file, or a whole number where the plan takes one. Results go to
// PREFIX0.npy, PREFIX1.npy, ...; numbers and inputs that the plan writes are said.
//   --attribute=FILE.npy  a constant of the plan, in their order; once for each
//   --out=PREFIX          default: out
//   --math=LIBRARY        a library with Sleef's functions (libsleef.so, libtorch_cpu.so), where
//                         kernels call them
//   --clang=FOLDER        where liboxyfuel_clang.so lies; without it the machine's compiler is used
//   --print               prints the plan and runs nothing
// A PLAN may be the text of a plan too, to be checked and printed.
#include <dlfcn.h>

#include <iostream>

#include "codegen/cpp/emit.h"
#include "npy.h"
#include "pipeline/pipeline.h"
#include "runtime/plan_file.h"

namespace {

using oxy::cat;
using oxy::UserError;
using oxy::runtime::Array;

struct Options {
  std::string plan, out = "out", math, clang;
  std::vector<std::string> inputs, attributes;
  bool print = false;
};

Options parse_arguments(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    auto value = [&](std::string_view name) {
      return a.starts_with(name) ? std::optional(a.substr(name.size())) : std::nullopt;
    };
    if (const auto file = value("--attribute="))
      o.attributes.push_back(*file);
    else if (const auto prefix = value("--out="))
      o.out = *prefix;
    else if (const auto library = value("--math="))
      o.math = *library;
    else if (const auto folder = value("--clang="))
      o.clang = *folder;
    else if (a == "--print")
      o.print = true;
    else
      (o.plan.empty() ? o.plan : o.inputs.emplace_back()) = a;
  }
  if (o.plan.empty()) throw UserError("usage: oxy-run PLAN [INPUT ...]; see tools/oxy_run.cpp");
  return o;
}

// The table of vector maths, from a library.
std::vector<void*> math_table(const std::string& library) {
  void* from = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!from) throw UserError(dlerror());
  std::vector<void*> table;
  using namespace oxy::codegen::cpp;
  for (const std::string& symbol : math_symbols(oxy::host_machine())) {
    table.push_back(dlsym(from, symbol.c_str()));
    if (!table.back()) throw UserError(cat(library, " does not have ", symbol));
  }
  return table;
}

void require_no_maths(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    if (text.find("math[") != std::string::npos)
      throw UserError(
          "a kernel calls functions of Sleef's: say with --math which library has them");
}

Array number(int64_t value) {
  Array a;
  a.meta.dtype = oxy::DType::None;
  a.meta.offset = value;
  return a;
}

// Laid out as the plan wants it, where that is known before the call.
Array laid_out(const Array& a, const oxy::runtime::Plan& p, const oxy::runtime::TensorSlots& t) {
  oxy::runtime::TensorMeta meta{t.dtype, t.device, {}, {}, 0};
  for (const oxy::runtime::Slot s : t.sizes)
    if (p.sizes.is_constant(s)) meta.sizes.push_back(p.sizes.constant(s));
  for (const oxy::runtime::Slot s : t.strides)
    if (p.sizes.is_constant(s)) meta.strides.push_back(p.sizes.constant(s));
  const bool known = meta.sizes.size() == t.sizes.size() && meta.strides.size() == t.strides.size();
  if (!known || a.meta.dtype != meta.dtype || a.meta.sizes != meta.sizes) return a;
  Array out = oxy::runtime::make_array(meta);
  oxy::runtime::scatter(oxy::runtime::gather(a), out);
  return out;
}

std::vector<Array> read_inputs(const Options& o, const oxy::runtime::Plan& p) {
  std::vector<Array> out;
  for (const std::string& text : o.inputs) {
    int64_t value = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = r.ec == std::errc() && r.ptr == text.data() + text.size();
    Array a = whole ? number(value) : oxy::npy::read(text);
    const size_t i = out.size();
    out.push_back(!whole && i < p.inputs.size() ? laid_out(a, p, p.inputs[i]) : std::move(a));
  }
  return out;
}

void run(const Options& o, const std::string& bytes) {
  std::vector<void*> table;
  oxy::runtime::Host host = oxy::runtime::serial_host();
  if (o.math.empty())
    require_no_maths(oxy::runtime::load(bytes).texts);
  else
    host.math = (table = math_table(o.math)).data();
  const oxy::Settings settings;
  auto made = oxy::pipeline::load_plan(bytes, settings, [&] {
    std::string why;
    auto compiler = oxy::pipeline::compiler_for(settings, o.clang, why);
    if (!compiler) throw UserError(why);
    return compiler;
  });
  std::vector<Array> attributes;
  for (const std::string& path : o.attributes) attributes.push_back(oxy::npy::read(path));
  const oxy::runtime::CpuDevice cpu(host);
  const oxy::runtime::PlanRunner runner(std::move(made.plan), std::move(made.code),
                                        std::move(attributes), cpu);
  const std::vector<Array> inputs = read_inputs(o, runner.plan());
  const std::vector<Array> outputs = runner.run(inputs);
  for (size_t i = 0; i < outputs.size(); i++) {
    const std::string path = cat(o.out, i, ".npy");
    if (outputs[i].meta.dtype == oxy::DType::None)
      std::cout << "result " << i << ": " << outputs[i].meta.offset << '\n';
    else
      oxy::npy::write(path, outputs[i]);
  }
  for (const auto& m : runner.plan().mutations) {
    const std::string path = cat(o.out, "_input", m.input, ".npy");
    oxy::npy::write(path, inputs[m.input]);
    std::cout << "input " << m.input << " is written: " << path << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse_arguments(argc, argv);
    const std::string bytes = oxy::npy::read_file(o.plan);
    if (bytes.starts_with("plan ")) {
      std::cout << oxy::runtime::print(oxy::runtime::parse_plan(bytes));
      return 0;
    }
    if (o.print)
      std::cout << oxy::runtime::print(oxy::runtime::load(bytes).plan);
    else
      run(o, bytes);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "oxy-run: " << e.what() << '\n';
    return 1;
  }
}
