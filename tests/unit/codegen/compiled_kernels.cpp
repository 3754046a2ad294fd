// Writes texts of many kernels to one file, compiles it once and loads it.
#include "compiled_kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "support/check.h"

namespace oxy::codegen::cpp::testing {

namespace {

namespace fs = std::filesystem;

std::string compiler() {
  for (const char* name : {"clang++-19", "clang++", "g++", "c++"}) {
    if (std::system(cat("command -v ", name, " >/dev/null 2>&1").c_str()) == 0) return name;
  }
  OXY_FAIL("no C++ compiler on PATH");
}

// Vector functions of Sleef's names and calling convention, each a loop over the C library's.
std::string math_source() {
  std::string s = "#include <cmath>\n";
#define MATH_FN(op, operands, stem, accuracy)                                                      \
  for (int bytes : {32, 64}) {                                                                     \
    for (bool f64 : {false, true}) {                                                               \
      const int lanes = bytes / (f64 ? 8 : 4);                                                     \
      const std::string name = cat("Sleef_", stem, f64 ? "d" : "f", lanes, "_", accuracy,          \
                                   bytes == 64 ? "avx512f" : "avx2");                              \
      const char* element = f64 ? "double" : "float";                                              \
      cat_to(s, "#if ", bytes == 64 ? "defined(__AVX512F__)" : "defined(__AVX2__)", "\n");         \
      cat_to(s, "typedef ", element, " T", name, " __attribute__((vector_size(", bytes, ")));\n"); \
      cat_to(s, "extern \"C\" T", name, ' ', name, "(T", name, " x",                               \
             operands == 2 ? cat(", T", name, " y") : std::string(), ") { T", name,                \
             " r; for (int l = 0; l < ", lanes, "; ++l) r[l] = (", element, ")std::", stem,        \
             "((double)x[l]", operands == 2 ? ", (double)y[l]" : "", "); return r; }\n#endif\n");  \
    }                                                                                              \
  }                                                                                                \
  for (bool f64 : {false, true}) {                                                                 \
    const char* e = f64 ? "double" : "float";                                                      \
    cat_to(s, "extern \"C\" ", e, " table_", stem, f64 ? "" : "f", '(', e, " x",                   \
           operands == 2 ? cat(", ", e, " y") : std::string(), ") { return (", e, ")std::", stem,  \
           "((double)x", operands == 2 ? ", (double)y" : "", "); }\n");                            \
  }
#include "codegen/cpp/math.def"
#undef MATH_FN
  return s;
}

}  // namespace

CompiledKernels::~CompiledKernels() {
  if (library_) dlclose(library_);
}

size_t CompiledKernels::add(const schedule::Kernel& kernel, const Machine& target) {
  texts_.push_back(emit(kernel, target));
  targets_.push_back(target);
  scratch_.push_back(scratch_bytes(kernel));
  parameters_.push_back(kernel.parameters);
  return texts_.size() - 1;
}

size_t CompiledKernels::add(std::string text, const Machine& target, int64_t scratch_bytes) {
  texts_.push_back(std::move(text));
  targets_.push_back(target);
  scratch_.emplace_back(scratch_bytes);
  parameters_.emplace_back();
  return texts_.size() - 1;
}

void CompiledKernels::compile(const std::string& options) {
  std::string folder = (fs::temp_directory_path() / "oxy_codegen_XXXXXX").string();
  OXY_CHECK(mkdtemp(folder.data()), "temporary folder");
  std::ofstream source(folder + "/kernels.cpp");
  source << math_source();
  for (size_t i = 0; i < texts_.size(); ++i) {
    std::string text = texts_[i];
    const std::string head = "int kernel(";
    text.replace(text.find(head), head.size(), cat("int kernel_", i, '('));
    source << "#undef OXY_INLINE\n#undef OXY_UNROLL\nnamespace k" << i << " {\n" << text << "}\n";
  }
  source.close();
  const std::string command =
      cat(compiler(), " -std=c++20 -march=native -ffp-contract=off -w -fPIC -shared ", options, ' ',
          folder, "/kernels.cpp -o ", folder, "/kernels.so 2> ", folder, "/errors");
  const int rc = std::system(command.c_str());
  std::ifstream errors(folder + "/errors");
  const std::string message((std::istreambuf_iterator<char>(errors)), {});
  OXY_CHECK(rc == 0, command, '\n', message.substr(0, 4000));
  library_ = dlopen((folder + "/kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  OXY_CHECK(library_, std::string(dlerror()));
  if (!std::getenv("OXY_KEEP")) fs::remove_all(folder);
  for (size_t i = 0; i < texts_.size(); ++i) {
    functions_.push_back(reinterpret_cast<KernelFn>(dlsym(library_, cat("kernel_", i).c_str())));
  }
}

void* const* CompiledKernels::math_table(const Machine& target) {
  std::vector<void*>& table = tables_[target.vector_bytes];
  if (!table.empty()) return table.data();
  for (const std::string& name : math_symbols(target)) {
    table.push_back(dlsym(library_, (target.vector_bytes == 0 ? "table_" + name : name).c_str()));
    OXY_CHECK(table.back(), "no ", name);
  }
  return table.data();
}

int CompiledKernels::run(size_t kernel, std::vector<void*> buffers, long begin, long end,
                         const std::vector<int64_t>& sizes) {
  const std::vector<sym::Expr>& parameters = parameters_[kernel];
  OXY_CHECK(sizes.size() == parameters.size(), "sizes of a kernel");
  if (!sizes.empty()) buffers.insert(buffers.begin(), const_cast<int64_t*>(sizes.data()));
  const auto bytes = static_cast<size_t>(sym::evaluate(scratch_[kernel], [&](sym::Expr s) {
    return sizes[static_cast<size_t>(std::ranges::find(parameters, s) - parameters.begin())];
  }));
  std::unique_ptr<void, decltype(&std::free)> scratch(
      bytes ? std::aligned_alloc(64, bytes) : nullptr, &std::free);
  return functions_[kernel](buffers.data(), begin, end, scratch.get(),
                            math_table(targets_[kernel]));
}

std::vector<Machine> runnable_targets() {
  std::vector<Machine> targets{Machine().with_vectors(0)};
  const Machine& host = host_machine();
  if (host.vector_bytes >= 32) targets.push_back(host.with_vectors(32));
  if (host.vector_bytes >= 64) targets.push_back(host);
  return targets;
}

}  // namespace oxy::codegen::cpp::testing
