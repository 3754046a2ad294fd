// One ORC session for the process; a library (JITDylib) for each kernel, so that each may be called
// `kernel` and be removed on its own.
#include "jit/clang/stages.h"

#include <mutex>

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>

#include "support/fork_mutex.h"

// Declared by their link names: math.h would give an overload set for each.
extern "C" {
#define F(name) void process_##name() __asm__(#name);
#define M(name) F(name) F(name##f)
#include "jit/clang/process_symbols.def"
#undef F
#undef M
}

namespace oxy::jit::clang_library {

namespace orc = llvm::orc;

struct LinkedCode {
  orc::JITDylib* library = nullptr;
  std::vector<void*> entries;
};

namespace {

// What ORC reported on this thread since it was last emptied: the missing symbols. lookup() itself
// only says that it failed. Linking runs on the thread that asks for it.
thread_local std::string reported;

class Linker {
 public:
  static llvm::Expected<Linker*> create() {
    auto control = orc::SelfExecutorProcessControl::Create();
    if (!control) return control.takeError();
    auto memory = llvm::jitlink::InProcessMemoryManager::Create();
    if (!memory) return memory.takeError();
    auto* linker = new Linker(std::move(*control), std::move(*memory));
    if (llvm::Error failure = linker->define_process_symbols()) return std::move(failure);
    return linker;
  }

  llvm::Expected<LinkedCode*> link(std::unique_ptr<llvm::MemoryBuffer> object,
                                   const std::vector<std::string>& symbols) {
    orc::JITDylib& library = session_.createBareJITDylib("kernel" + std::to_string(next_++));
    library.addToLinkOrder(process_);
    llvm::Error failure = layer_.add(library, std::move(object));
    std::vector<void*> entries;
    for (const std::string& symbol : symbols) {
      if (failure) break;
      auto found = session_.lookup({&library}, session_.intern(symbol));
      if (found)
        entries.push_back(found->getAddress().toPtr<void*>());
      else
        failure = found.takeError();
    }
    if (!failure) return new LinkedCode{&library, std::move(entries)};
    return llvm::joinErrors(std::move(failure), session_.removeJITDylib(library));
  }

  llvm::Error define(const char* name, void* function) {
    const auto flags = llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable;
    return process_.define(orc::absoluteSymbols(
        {{session_.intern(name), {orc::ExecutorAddr::fromPtr(function), flags}}}));
  }

  void remove(LinkedCode* code) {
    llvm::consumeError(session_.removeJITDylib(*code->library));
    delete code;
  }

 private:
  Linker(std::unique_ptr<orc::ExecutorProcessControl> control,
         std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> memory)
      : session_(std::move(control)),
        layer_(session_, std::move(memory)),
        process_(session_.createBareJITDylib("process")) {
    session_.setErrorReporter(
        [](llvm::Error error) { reported += llvm::toString(std::move(error)) + "\n"; });
  }

  llvm::Error define_process_symbols() {
    orc::SymbolMap symbols;
    auto define = [&](const char* name, void (*function)()) {
      auto flags = llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable;
      symbols[session_.intern(name)] = {orc::ExecutorAddr::fromPtr(function), flags};
    };
#define F(name) define(#name, process_##name);
#define M(name) F(name) F(name##f)
#include "jit/clang/process_symbols.def"
#undef F
#undef M
    return process_.define(orc::absoluteSymbols(std::move(symbols)));
  }

  orc::ExecutionSession session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib& process_;
  uint64_t next_ = 0;
};

// Held around every call of ORC's, whose own locks would stay locked in a process that is forked
// while another thread links.
ForkMutex& linking = *new ForkMutex();

// Lives as long as the process: code may still run while static objects are destroyed.
llvm::Expected<Linker*>& the_linker() {
  static auto* linker = new llvm::Expected<Linker*>(Linker::create());
  return *linker;
}

}  // namespace

void define_function(const char* name, void* function) {
  const std::lock_guard lock(linking);
  // A text that calls what could not be defined does not link, and says so.
  if (llvm::Expected<Linker*>& linker = the_linker())
    llvm::consumeError((*linker)->define(name, function));
}

LinkedCode* link_object(std::unique_ptr<llvm::MemoryBuffer> object,
                        const std::vector<std::string>& symbols, std::string& error) {
  const std::lock_guard lock(linking);
  llvm::Expected<Linker*>& linker = the_linker();
  if (!linker) {
    error = "the JIT linker could not be started";
    return nullptr;
  }
  reported.clear();
  auto code = (*linker)->link(std::move(object), symbols);
  if (code) return *code;
  error = reported + llvm::toString(code.takeError());
  return nullptr;
}

void* entry_point(const LinkedCode& code, size_t number) { return code.entries[number]; }

void release_code(LinkedCode* code) {
  const std::lock_guard lock(linking);
  (*the_linker())->remove(code);
}

}  // namespace oxy::jit::clang_library
