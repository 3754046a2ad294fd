// C++ text to an object file for this machine: Clang's front end (nothing is read from the disk),
// the pass pipeline, the code generator.
#include "jit/clang/stages.h"

#include <algorithm>
#include <mutex>
#include <set>

#include <clang/Basic/Diagnostic.h>
#include <clang/CodeGen/ModuleBuilder.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopStrengthReduce.h>

#include "support/fork_mutex.h"
#include "support/tuning.h"

namespace oxy::jit::clang_library {
namespace {

// The machine that we compile for: this one.
struct Host {
  std::string triple = llvm::sys::getProcessTriple();
  std::string cpu = llvm::sys::getHostCPUName().str();
  // "+name" or "-name" where this processor differs from what `cpu` stands for: a hypervisor may
  // have switched parts of it off.
  std::vector<std::string> features;
  bool wide_vectors = false;  // AVX-512: use all of its 512 bits
};

// The features that the processor's name stands for already. Only differences are passed on: Clang
// copies the list at every call with a vector argument. Empty where they are not known.
std::set<llvm::StringRef> implied_features([[maybe_unused]] const std::string& cpu) {
  llvm::SmallVector<llvm::StringRef, 64> names;
#if defined(__x86_64__)
  llvm::X86::getFeaturesForCPU(cpu, names);
#endif
  return {names.begin(), names.end()};
}

Host detect() {
  Host host;
  const std::set<llvm::StringRef> implied = implied_features(host.cpu);
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    const llvm::StringRef name = feature.getKey();
    const bool present = feature.getValue();
    if (implied.empty() || present != implied.contains(name))
      host.features.push_back((present ? "+" : "-") + name.str());
    if (name == "avx512f") host.wide_vectors = present;
  }
  // Clang's driver adds this where the processor has 512-bit registers; the front end alone refuses
  // their builtins.
  if (host.wide_vectors) host.features.push_back("+evex512");
  std::sort(host.features.begin(), host.features.end());
  return host;
}

// Read once per process.
const Host& host() {
  static const Host* detected = new Host(detect());
  return *detected;
}

constexpr const char* kFileName = "kernel.cpp";

std::vector<std::string>& macros() {
  static auto* names = new std::vector<std::string>();
  return *names;
}

// What every kernel is compiled with. Eager's numerics (no fast-math, no contraction), wrapping
// integers as torch's, and buffers that may be seen through several types (-relaxed-aliasing).
std::vector<const char*> arguments() {
  const Host& machine = host();
  std::vector<const char*> args = {
      "-triple", machine.triple.c_str(), "-target-cpu", machine.cpu.c_str(), "-x", "c++",
      "-std=c++20", "-O2", "-emit-llvm-only", "-disable-llvm-passes", "-ffp-contract=off",
      "-fwrapv", "-relaxed-aliasing", "-fno-rtti", "-fno-threadsafe-statics", "-nostdsysteminc",
      "-nobuiltininc", "-mrelocation-model", "pic", "-pic-level", "2", "-w",
      // What the optimiser would only have to remove again.
      "-discard-value-names", "-disable-lifetimemarkers", "-disable-llvm-verifier", "-ferror-limit",
      "5", "-fbracket-depth", "1024"};
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

// Clang's own action for this, EmitLLVMOnlyAction, makes an llvm::Timer, which takes a lock of the
// whole process: a fork finds it taken for good when another thread compiles.
class EmitModule final : public clang::ASTFrontendAction {
 public:
  explicit EmitModule(llvm::LLVMContext& context) : context_(context) {}
  std::unique_ptr<llvm::Module> take_module() { return std::move(module_); }

 private:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                        llvm::StringRef file) override {
    generator_ =
        clang::CreateLLVMCodeGen(compiler.getDiagnostics(), file, &compiler.getVirtualFileSystem(),
                                 compiler.getHeaderSearchOpts(), compiler.getPreprocessorOpts(),
                                 compiler.getCodeGenOpts(), context_);
    return std::unique_ptr<clang::ASTConsumer>(generator_);
  }
  void EndSourceFileAction() override { module_.reset(generator_->ReleaseModule()); }

  llvm::LLVMContext& context_;
  clang::CodeGenerator* generator_ = nullptr;  // of the compiler
  std::unique_ptr<llvm::Module> module_;
};

// Null with Clang's diagnostics in `error`.
std::unique_ptr<llvm::Module> parse_source(llvm::StringRef source, llvm::LLVMContext& context,
                                           std::string& error) {
  llvm::raw_string_ostream text(error);
  clang::CompilerInstance compiler;
  compiler.setInvocation(std::make_shared<clang::CompilerInvocation>(invocation()));
  for (const std::string& name : macros()) compiler.getPreprocessorOpts().addMacroDef(name);
  llvm::MemoryBufferRef buffer(source, kFileName);
  compiler.getFrontendOpts().Inputs = {
      clang::FrontendInputFile(buffer, clang::InputKind(clang::Language::CXX))};
  compiler.createDiagnostics(new clang::TextDiagnosticPrinter(text, &compiler.getDiagnosticOpts()));
  compiler.setVerboseOutputStream(text);  // "2 errors generated."
  compiler.createFileManager(llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>());
  EmitModule action(context);
  if (!compiler.ExecuteAction(action)) {
    text.flush();
    if (error.empty()) error = "the front end failed without a message";
    return nullptr;
  }
  return action.take_module();
}

// Kernels are explicit vectors in small functions which are always inlined, and loops of which
// those with constant steps are to be unrolled. So unrolling comes first and everything else sees
// straight code once; the default pipeline at -O2 unrolls last and takes twice as long, for the
// same speed of the kernels (softmax, layer norm, GELU, gemms, transpositions). No vectorisers, and
// no unrolling at run time: the emitter has done both.
constexpr const char* kPipeline =
    "always-inline,cgscc(function-attrs),"
    "function<eager-inv>("
    "lower-expect,"  // keeps the rare branches of exp and sin out of the way of register allocation
    "sroa<modify-cfg>,early-cse<>,simplifycfg,"
    "loop(loop-rotate,loop-unroll-full),"
    "sroa<modify-cfg>,early-cse<memssa>,"
    "instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(licm),"
    "instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg)";

size_t count_addresses(llvm::Function& f) {
  return static_cast<size_t>(std::ranges::count_if(
      llvm::instructions(f), [](const llvm::Instruction& i) { return i.mayReadOrWriteMemory(); }));
}

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, kPipeline))
    llvm::report_fatal_error(std::move(error));
  passes.run(module, modules);
  llvm::FunctionPassManager reduce;
  reduce.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LoopStrengthReducePass()));
  for (llvm::Function& f : module)
    if (!f.isDeclaration() && count_addresses(f) <= tuning::strength_reduced_most)
      reduce.run(f, functions);
}

// It has been done, where it is worth its time.
struct WithoutStrengthReduction final : llvm::OptPassGate {
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) override {
    return pass != "Loop Strength Reduction";
  }
};

// False with `error` set. The module is used up.
bool emit_object(llvm::Module& module, llvm::TargetMachine& machine,
                 llvm::SmallVectorImpl<char>& object, std::string& error) {
  static WithoutStrengthReduction gate;
  module.getContext().setOptPassGate(gate);
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  llvm::MCContext* context = nullptr;
  if (machine.addPassesToEmitMC(passes, context, stream, /*DisableVerify=*/true)) {
    error = "the target cannot emit machine code";
    return false;
  }
  passes.run(module);
  return true;
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(std::string& error) {
  const Host& machine = host();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(machine.triple, error);
  if (!target) return nullptr;
  std::string features;
  for (const std::string& feature : machine.features)
    features += (features.empty() ? "" : ",") + feature;
  // Default and not Aggressive: the same code for our loops, in less time.
  std::unique_ptr<llvm::TargetMachine> result(target->createTargetMachine(
      machine.triple, machine.cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!result) error = "no code generator for " + machine.triple;
  return result;
}

// Given back and not in use.
struct Idle {
  ForkMutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines;
};

Idle& idle() {
  static auto* instance = new Idle();
  return *instance;
}

struct GiveBack {
  void operator()(llvm::TargetMachine* machine) const {
    std::lock_guard lock(idle().mutex);
    idle().machines.emplace_back(machine);
  }
};

// A code generator for one compilation at a time, taken from those that earlier compilations gave
// back: reading the features costs a millisecond. Null with the reason in `error`.
std::unique_ptr<llvm::TargetMachine, GiveBack> lease_target_machine(std::string& error) {
  std::unique_ptr<llvm::TargetMachine> machine;
  {
    std::lock_guard lock(idle().mutex);
    if (!idle().machines.empty()) {
      machine = std::move(idle().machines.back());
      idle().machines.pop_back();
    }
  }
  if (!machine) machine = make_target_machine(error);
  return std::unique_ptr<llvm::TargetMachine, GiveBack>(machine.release());
}

// Errors of the optimiser and the code generator, which LLVM would otherwise print before it ends
// the process.
void on_diagnostic(const llvm::DiagnosticInfo* info, void* error) {
  if (info->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream stream(*static_cast<std::string*>(error));
  llvm::DiagnosticPrinterRawOStream printer(stream);
  info->print(printer);
  stream << '\n';
}

}  // namespace

void initialize_target() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  host();
}

void define_macro(std::string name) { macros().push_back(std::move(name)); }

bool build_object(llvm::StringRef source, llvm::SmallVectorImpl<char>& object, std::string& error) {
  llvm::LLVMContext context;
  context.setDiagnosticHandlerCallBack(on_diagnostic, &error);
  std::unique_ptr<llvm::Module> module = parse_source(source, context, error);
  if (!module) return false;
  const auto machine = lease_target_machine(error);
  if (!machine) return false;
  optimize(*module, *machine);
  return emit_object(*module, *machine, object, error) && error.empty();
}

}  // namespace oxy::jit::clang_library
