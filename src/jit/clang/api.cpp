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

void* compile(const char* source, size_t size, const char* symbol, char** error) {
  std::string message;
  // The lexer wants a zero behind the text.
  std::string text(source, size);
  llvm::SmallVector<char, 0> object;
  LinkedCode* code = nullptr;
  if (build_object_or_recover(text, object, message))
    code = link_object(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), false),
                       symbol, message);
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
    .entry = [](void* handle) { return entry_point(*static_cast<LinkedCode*>(handle)); },
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
