// Runs Clang's front end on a text in memory; nothing is read from the disk.
#include "jit/clang/front_end.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include "jit/clang/host.h"

namespace oxy::jit::clang_library {

namespace {

constexpr const char* kFileName = "kernel.cpp";

// What every kernel is compiled with. Eager's numerics (no fast-math, no contraction), wrapping
// integers as torch's, and buffers that may be seen through several types (-relaxed-aliasing).
std::vector<const char*> arguments() {
  const Host& machine = host();
  std::vector<const char*> args = {
      "-triple",
      machine.triple.c_str(),
      "-target-cpu",
      machine.cpu.c_str(),
      "-x",
      "c++",
      "-std=c++20",
      "-O2",
      "-emit-llvm-only",
      "-disable-llvm-passes",
      "-ffp-contract=off",
      "-fwrapv",
      "-relaxed-aliasing",
      "-fno-rtti",
      "-fno-threadsafe-statics",
      "-nostdsysteminc",
      "-nobuiltininc",
      "-mrelocation-model",
      "pic",
      "-pic-level",
      "2",
      "-w",
      // What the optimiser would only have to remove again.
      "-discard-value-names",
      "-disable-lifetimemarkers",
      "-disable-llvm-verifier",
      "-ferror-limit",
      "5",
      "-fbracket-depth",
      "1024",
  };
  for (const std::string& feature : machine.features) {
    args.push_back("-target-feature");
    args.push_back(feature.c_str());
  }
  if (machine.wide_vectors) args.push_back("-mprefer-vector-width=512");
  args.push_back(kFileName);
  return args;
}

// Parsed once; each compilation copies it.
const clang::CompilerInvocation& invocation() {
  static const clang::CompilerInvocation* parsed = [] {
    auto* result = new clang::CompilerInvocation();
    clang::DiagnosticsEngine diagnostics(new clang::DiagnosticIDs(), new clang::DiagnosticOptions(),
                                         new clang::IgnoringDiagConsumer());
    clang::CompilerInvocation::CreateFromArgs(*result, arguments(), diagnostics);
    return result;
  }();
  return *parsed;
}

}  // namespace

std::unique_ptr<llvm::Module> parse_source(llvm::StringRef source, llvm::LLVMContext& context,
                                           std::string& error) {
  llvm::raw_string_ostream text(error);
  clang::CompilerInstance compiler;
  compiler.setInvocation(std::make_shared<clang::CompilerInvocation>(invocation()));
  llvm::MemoryBufferRef buffer(source, kFileName);
  compiler.getFrontendOpts().Inputs = {
      clang::FrontendInputFile(buffer, clang::InputKind(clang::Language::CXX))};
  compiler.createDiagnostics(new clang::TextDiagnosticPrinter(text, &compiler.getDiagnosticOpts()));
  compiler.setVerboseOutputStream(text);  // "2 errors generated."
  compiler.createFileManager(llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>());
  clang::EmitLLVMOnlyAction action(&context);
  if (!compiler.ExecuteAction(action)) {
    text.flush();
    if (error.empty()) error = "the front end failed without a message";
    return nullptr;
  }
  return action.takeModule();
}

}  // namespace oxy::jit::clang_library
