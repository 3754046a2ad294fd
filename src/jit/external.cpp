// The compiler found on the machine as a Compiler: one process a kernel, its result loaded as a
// shared library.
#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "jit/compiler.h"
#include "jit/process.h"
#include "support/check.h"

namespace oxy::jit {
namespace {

// As the in-process Clang compiles (src/jit/clang/build_object.cpp): eager's numerics, wrapping
// integers.
constexpr const char* kFlags =
    "-shared -fPIC -O3 -std=c++20 -ffp-contract=off -fno-math-errno -fwrapv -fno-exceptions "
    "-fno-rtti -w -fno-strict-aliasing -x c++ ";

std::string machine_flags() {
  utsname machine = {};
  uname(&machine);
  const std::string name = machine.machine;
  return name == "x86_64"    ? "-march=native -mprefer-vector-width=512"
         : name == "aarch64" ? "-mcpu=native"
                             : "";
}

std::vector<std::string> split(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::shared_ptr<Code> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  OXY_CHECK(library, "the compiled kernel cannot be loaded: ", dlerror());
  auto entry = reinterpret_cast<KernelFn>(dlsym(library, "kernel"));
  if (!entry) dlclose(library);
  OXY_CHECK(entry, "the compiled text has no function `kernel`");
  return std::make_shared<Code>(entry, [library] { dlclose(library); });
}

class ExternalCompiler : public Compiler {
 public:
  ExternalCompiler(std::vector<std::string> command, std::string name)
      : Compiler(std::move(name)), command_(std::move(command)) {
    for (std::string& flag : split(kFlags + machine_flags())) command_.push_back(std::move(flag));
  }

 protected:
  std::shared_ptr<Code> build(const std::string& source) override {
    ScratchDirectory scratch;
    std::string source_path = scratch.path() + "/kernel.cpp";
    std::string library_path = scratch.path() + "/kernel.so";
    std::ofstream file(source_path);
    file << source;
    file.close();
    OXY_CHECK(file, "cannot write a kernel's source to ", scratch.path());
    std::vector<std::string> command = command_;
    command.insert(command.end(), {source_path, "-o", library_path});
    ProcessResult result = run_process(command, scratch.path());
    OXY_CHECK(result.succeeded, "the kernel does not compile: ", result.output);
    return load(library_path);
  }

 private:
  std::vector<std::string> command_;
};

// "g++ (Debian 12.2.0-14) 12.2.0"; empty where the command does not run.
std::string first_line_of_version(std::vector<std::string> command) {
  ScratchDirectory scratch;
  command.push_back("--version");
  ProcessResult result = run_process(command, scratch.path());
  return result.succeeded ? result.output.substr(0, result.output.find('\n')) : "";
}

}  // namespace

std::shared_ptr<Compiler> find_external(const std::string& cxx, std::string& why) {
  std::vector<std::string> candidates = {cxx};
  if (cxx.empty()) {
    const char* from_environment = std::getenv("CXX");
    candidates = {from_environment ? from_environment : "", "clang++-19", "clang++", "g++", "c++"};
    std::erase(candidates, "");
  }
  try {
    for (const std::string& candidate : candidates) {
      std::vector<std::string> command = split(candidate);
      if (command.empty()) continue;
      std::string version = first_line_of_version(command);
      if (!version.empty())
        return std::make_shared<ExternalCompiler>(std::move(command), std::move(version));
    }
  } catch (const InternalError& error) {
    why = error.what();  // no folder to write to
    return nullptr;
  }
  why = "no C++ compiler runs; tried";
  for (const std::string& candidate : candidates) why += " " + candidate;
  return nullptr;
}

}  // namespace oxy::jit
