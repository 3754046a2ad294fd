// The exported function, and what happens when LLVM gives up.
//
// LLVM reports what it cannot do (an instruction it cannot select, say) by a fatal error that ends
// the process. Up to the linking, which holds ORC's locks, the handler jumps back to compile()
// instead, as LLVM's own crash recovery does: the compilation's memory is lost, the process goes
// on.
#include "jit/clang/api.h"

#include <time.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <clang/Basic/Version.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include "jit/clang/back_end.h"
#include "jit/clang/front_end.h"
#include "jit/clang/host.h"
#include "jit/clang/linker.h"

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

class Stopwatch {
 public:
  // Milliseconds of this thread since the last call.
  double lap() {
    double before = last_;
    last_ = now();
    return last_ - before;
  }

 private:
  static double now() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e3 + time.tv_nsec * 1e-6;
  }

  double last_ = now();
};

// Errors of the optimiser and the code generator, which LLVM would otherwise print before it ends
// the process.
void on_diagnostic(const llvm::DiagnosticInfo* info, void* error) {
  if (info->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream stream(*static_cast<std::string*>(error));
  llvm::DiagnosticPrinterRawOStream printer(stream);
  info->print(printer);
  stream << '\n';
}

bool build_object(llvm::StringRef source, llvm::SmallVectorImpl<char>& object,
                  OxyfuelClangTimes& times, std::string& error) {
  Stopwatch watch;
  llvm::LLVMContext context;
  context.setDiagnosticHandlerCallBack(on_diagnostic, &error);
  std::unique_ptr<llvm::Module> module = parse_source(source, context, error);
  times.front_end = watch.lap();
  if (!module) return false;
  TargetMachineLease machine(error);
  if (!machine.get()) return false;
  optimize(*module, *machine.get());
  times.optimize = watch.lap();
  bool emitted = emit_object(*module, *machine.get(), object, error);
  times.codegen = watch.lap();
  return emitted && error.empty();
}

// build_object, with fatal errors as errors.
bool build_object_or_recover(llvm::StringRef source, llvm::SmallVectorImpl<char>& object,
                             OxyfuelClangTimes& times, std::string& error) {
  std::jmp_buf here;
  if (setjmp(here) != 0) {
    recovery = nullptr;
    error = fatal_message;
    return false;
  }
  recovery = &here;
  bool built = build_object(source, object, times, error);
  recovery = nullptr;
  return built;
}

char* copy_text(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void* compile(const char* source, size_t size, const char* symbol, OxyfuelClangTimes* times,
              char** error) {
  OxyfuelClangTimes spent = {};
  std::string message;
  // The lexer wants a zero behind the text.
  std::string text(source, size);
  llvm::SmallVector<char, 0> object;
  LinkedCode* code = nullptr;
  if (build_object_or_recover(text, object, spent, message)) {
    Stopwatch watch;
    code = link_object(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), false),
                       symbol, message);
    spent.link = watch.lap();
  }
  if (times) *times = spent;
  if (!code) *error = copy_text(message);
  return code;
}

void* entry(void* handle) { return entry_point(*static_cast<LinkedCode*>(handle)); }

void release(void* handle) { release_code(static_cast<LinkedCode*>(handle)); }

void free_error(char* error) { std::free(error); }

constexpr OxyfuelClangApi kApi = {
    kOxyfuelClangVersion, "clang " CLANG_VERSION_STRING, compile, entry, release, free_error,
};

}  // namespace

}  // namespace oxy::jit::clang_library

extern "C" __attribute__((visibility("default"))) const OxyfuelClangApi* oxyfuel_clang_api(
    int version) {
  using namespace oxy::jit::clang_library;
  if (version != kOxyfuelClangVersion) return nullptr;
  static const bool once = [] {
    llvm::install_fatal_error_handler(on_fatal_error);
    host();
    return true;
  }();
  return once ? &kApi : nullptr;
}
