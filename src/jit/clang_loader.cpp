// The Clang library as a Compiler: loads it, and keeps a tombstone while it compiles.
#include <dlfcn.h>

#include "jit/cache/directory.h"
#include "jit/cache/tombstone.h"
#include "jit/clang/api.h"
#include "jit/idle_memory.h"
#include "jit/shared_compiler.h"
#include "support/check.h"

namespace oxy::jit {

namespace {

class ClangCode : public Code {
 public:
  ClangCode(const OxyfuelClangApi& api, void* handle) : api_(api), handle_(handle) {}
  ~ClangCode() override { api_.release(handle_); }
  KernelFn entry() const override { return reinterpret_cast<KernelFn>(api_.entry(handle_)); }

 private:
  const OxyfuelClangApi& api_;
  void* handle_;
};

class ClangCompiler : public SharedCompiler {
 public:
  explicit ClangCompiler(const OxyfuelClangApi& api)
      : api_(api), tombstones_(cache::writable_directory(), api.description) {}

  std::string name() const override { return std::string(api_.description) + " in process"; }

 protected:
  std::shared_ptr<Code> build(const std::string& source) override {
    if (tombstones_.is_suspect(source)) return build_outside(source);
    cache::Tombstones::Mark mark(tombstones_, source);
    char* error = nullptr;
    void* handle = api_.compile(source.data(), source.size(), "kernel", nullptr, &error);
    if (handle) return std::make_shared<ClangCode>(api_, handle);
    std::string message = error ? error : "out of memory";
    api_.free_error(error);
    OXY_FAIL("the kernel does not compile: ", message);
  }

  // The library is large, and a model compiles once.
  void finished() override { release_idle_memory(reinterpret_cast<const void*>(api_.compile)); }

 private:
  // A text that was being compiled when an earlier process died.
  std::shared_ptr<Code> build_outside(const std::string& source) {
    std::call_once(external_once_, [this] { external_ = find_external("", why_no_external_); });
    OXY_CHECK(external_,
              "a process died while it compiled this kernel, and there is no other compiler: ",
              why_no_external_);
    return external_->compile({source}, 1).front();
  }

  const OxyfuelClangApi& api_;
  cache::Tombstones tombstones_;
  std::once_flag external_once_;
  std::shared_ptr<Compiler> external_;
  std::string why_no_external_;
};

}  // namespace

std::shared_ptr<Compiler> load_clang(const std::string& path, std::string& why) {
  // Never closed: its code may still run while static objects are destroyed.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why = dlerror();
    return nullptr;
  }
  auto get_api = reinterpret_cast<OxyfuelClangEntry>(dlsym(library, "oxyfuel_clang_api"));
  const OxyfuelClangApi* api = get_api ? get_api(kOxyfuelClangVersion) : nullptr;
  if (!api) {
    why = "the Clang library is of another version of Oxyfuel: " + path;
    return nullptr;
  }
  return std::make_shared<ClangCompiler>(*api);
}

}  // namespace oxy::jit
