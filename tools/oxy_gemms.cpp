// oxy-gemms FOLDER: what is compiled with the library, one file each: the kernels of gemms, and
// functions that other kernels call.
//
// avx2_0.cpp, avx2_1.cpp, .., avx512_0.cpp, .., avx512_bf16_0.cpp, .. and amx_bf16_0.cpp, .. are
// emit_gemm's texts with another name for the function, avx2_function_0.cpp, .. and
// avx512_function_0.cpp, .. those of codegen::cpp::prebuilt_functions. table.cpp defines
// oxy::jit::prebuilt_gemms() and prebuilt_functions().
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "codegen/cpp/gemm.h"
#include "codegen/cpp/prelude.h"
#include "jit/compiler.h"
#include "support/check.h"
#include "support/text.h"

namespace {

// Files that say the same stay as old as they are.
void write(const std::string& path, const std::string& text) {
  std::ifstream there(path);
  if (std::string(std::istreambuf_iterator<char>(there), {}) == text) return;
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw oxy::UserError("cannot write " + path);
}

// Its files; the rows of the table, and what they name.
struct Functions {
  std::string declared, rows;
};

Functions write_functions(const std::string& folder) {
  Functions out;
  for (const auto& [stem, bytes] : {std::pair{"avx2", 32}, std::pair{"avx512", 64}}) {
    const auto functions = oxy::codegen::cpp::prebuilt_functions({.vector_bytes = bytes});
    for (size_t i = 0; i < functions.size(); ++i) {
      const auto& [name, text] = functions[i];
      write(oxy::cat(folder, '/', stem, "_function_", i, ".cpp"),
            oxy::cat("#define ", name, " oxy_", name, '\n', text));
      oxy::cat_to(out.declared, "extern \"C\" void oxy_", name, "();\n");
      oxy::cat_to(out.rows, "    {\"", name, "\", ", bytes, ", reinterpret_cast<void*>(oxy_", name,
                  ")},\n");
    }
  }
  return out;
}

void write_all(const std::string& folder) {
  std::string declared, rows;
  std::set<std::string> written;
  for (const auto& [stem, bytes] : {std::pair{"avx2", 32}, std::pair{"avx512", 64},
                                    std::pair{"avx512_bf16", 64}, std::pair{"amx_bf16", 64}}) {
    const bool tiles = stem == std::string_view("amx_bf16");
    const bool pairs = tiles || stem == std::string_view("avx512_bf16");
    auto texts = oxy::codegen::cpp::gemm_texts(
        {.vector_bytes = bytes, .avx512_bf16 = pairs, .amx_bf16 = tiles});
    std::erase_if(texts, [&](const std::string& text) { return !written.insert(text).second; });
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string name = oxy::cat(stem, '_', i), function = "oxy_gemm_" + name;
      write(oxy::cat(folder, '/', name, ".cpp"),
            oxy::cat("#define kernel ", function, '\n', texts[i]));
      oxy::cat_to(declared, "extern \"C\" int ", function,
                  "(void* const*, long, long, void*, void* const*);\n");
      oxy::cat_to(rows, "    {", oxy::jit::text_hash(texts[i]), "u, ", texts[i].size(), ", ", bytes,
                  ", ", function, "},\n");
    }
  }
  const Functions functions = write_functions(folder);
  write(folder + "/table.cpp",
        oxy::cat(R"(#include "jit/compiler.h"
#include "jit/prebuilt_functions.h"
#if defined(__x86_64__)
)",
                 declared, functions.declared, "static constexpr oxy::jit::Prebuilt kTable[] = {\n",
                 rows, R"(};
static const oxy::jit::PrebuiltFunction kFunctions[] = {
)",
                 functions.rows, R"(};
std::span<const oxy::jit::Prebuilt> oxy::jit::prebuilt_gemms() { return kTable; }
std::span<const oxy::jit::PrebuiltFunction> oxy::jit::prebuilt_functions() { return kFunctions; }
#else
std::span<const oxy::jit::Prebuilt> oxy::jit::prebuilt_gemms() { return {}; }
std::span<const oxy::jit::PrebuiltFunction> oxy::jit::prebuilt_functions() { return {}; }
#endif
)"));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: oxy-gemms FOLDER\n";
    return 2;
  }
  try {
    write_all(arguments[1]);
  } catch (const std::exception& e) {
    std::cerr << "oxy-gemms: " << e.what() << '\n';
    return 1;
  }
}
