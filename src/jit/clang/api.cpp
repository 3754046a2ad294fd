// The exported function, and what happens when LLVM gives up.
//
// LLVM reports what it cannot do (an instruction it cannot select, say) by a fatal error that ends
// the process. Up to the linking, which holds ORC's locks, the handler jumps back to compile()
// instead, as LLVM's own crash recovery does: the compilation's memory is lost, the process goes
// on.
#include "jit/clang/api.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <clang/Basic/Version.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>

#include "jit/clang/stages.h"

namespace oxy::jit::clang_library {
namespace {

// Where this thread goes when LLVM gives up; null outside of build_object.
thread_local std::jmp_buf* recovery = nullptr;
thread_local char fatal_message[512];

void on_fatal_error(void*, const char* reason, bool) {
  if (!recovery) return;  // LLVM prints the reason and ends the process
  std::snprintf(fatal_message, sizeof fatal_message, "LLVM gave up: %s", reason);
  std::longjmp(*recovery, 1);
}

// build_object, with fatal errors as errors.
bool build_object_or_recover(llvm::StringRef source, llvm::SmallVectorImpl<char>& object,
                             std::string& error) {
  std::jmp_buf here;
  if (setjmp(here) != 0) {
    recovery = nullptr;
    error = fatal_message;
    return false;
  }
  recovery = &here;
  bool built = build_object(source, object, error);
  recovery = nullptr;
  return built;
}

// Each in a namespace of its own, with a function `kernel_<number>`; a single one as it is. The
// lexer wants the zero behind it.
std::string together(const char* const* sources, const size_t* sizes, size_t count) {
  if (count == 1) return std::string(sources[0], sizes[0]);
  std::string text;
  for (size_t i = 0; i < count; i++) {
    const std::string number = std::to_string(i);
    text += "#define kernel kernel_" + number + "\nnamespace text_" + number + " {\n";
    text.append(sources[i], sizes[i]);
    text += "\n}\n#undef kernel\n";
  }
  return text;
}

void* compile(const char* const* sources, const size_t* sizes, size_t count, char** error) {
  std::string message;
  const std::string text = together(sources, sizes, count);
  llvm::SmallVector<char, 0> object;
  LinkedCode* code = nullptr;
  std::vector<std::string> symbols;
  for (size_t i = 0; i < count; i++)
    symbols.push_back(count == 1 ? "kernel" : "kernel_" + std::to_string(i));
  if (build_object_or_recover(text, object, message))
    code = link_object(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), false),
                       symbols, message);
  if (!code) *error = strdup(message.c_str());
  return code;
}

constexpr OxyfuelClangApi kApi = {
    .description = "clang " CLANG_VERSION_STRING,
    .define =
        [](const char* name, void* function) {
          define_function(name, function);
          define_macro(std::string("OXY_HAS_") + name);
        },
    .compile = compile,
    .entry = [](void* handle,
                size_t number) { return entry_point(*static_cast<LinkedCode*>(handle), number); },
    .release = [](void* handle) { release_code(static_cast<LinkedCode*>(handle)); },
    .free_error = [](char* error) { std::free(error); }};

}  // namespace
}  // namespace oxy::jit::clang_library

extern "C" __attribute__((visibility("default"))) const OxyfuelClangApi* oxyfuel_clang_api(
    int version) {
  using namespace oxy::jit::clang_library;
  if (version != kOxyfuelClangVersion) return nullptr;
  static const bool once = [] {
    llvm::install_fatal_error_handler(on_fatal_error);
    initialize_target();
    return true;
  }();
  return once ? &kApi : nullptr;
}
