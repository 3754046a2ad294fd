// The Clang library as a Compiler: loads it, keeps a tombstone while it compiles, gives memory back
// afterwards.
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <list>

#include "jit/cache/tombstone.h"
#include "jit/clang/api.h"
#include "jit/compiler.h"
#include "jit/prebuilt_functions.h"
#include "support/check.h"

namespace oxy::jit {
namespace {

bool holds(const dl_phdr_info& library, uintptr_t address) {
  for (int i = 0; i < library.dlpi_phnum; i++) {
    const ElfW(Phdr)& p = library.dlpi_phdr[i];
    const uintptr_t begin = library.dlpi_addr + p.p_vaddr;
    if (p.p_type == PT_LOAD && address >= begin && address < begin + p.p_memsz) return true;
  }
  return false;
}

struct Pages {
  void* begin;
  size_t bytes;
};

// The code and constants of the shared library around `address`: whole pages of segments that
// nobody writes to. Asked once: a child of a fork may find the loader's lock taken for good.
std::vector<Pages> constant_pages(const void* address) {
  struct Wanted {
    uintptr_t address;
    std::vector<Pages> pages;
  } wanted{reinterpret_cast<uintptr_t>(address), {}};
  auto visit = [](dl_phdr_info* library, size_t, void* argument) {
    auto& wanted = *static_cast<Wanted*>(argument);
    if (!holds(*library, wanted.address)) return 0;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < library->dlpi_phnum; i++) {
      const ElfW(Phdr)& p = library->dlpi_phdr[i];
      if (p.p_type != PT_LOAD || (p.p_flags & PF_W)) continue;
      const uintptr_t begin = (library->dlpi_addr + p.p_vaddr + page - 1) / page * page;
      const uintptr_t end = (library->dlpi_addr + p.p_vaddr + p.p_memsz) / page * page;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of the loader's tables
      if (end > begin) wanted.pages.push_back({reinterpret_cast<void*>(begin), end - begin});
    }
    return 1;
  };
  dl_iterate_phdr(visit, &wanted);
  return std::move(wanted.pages);
}

class ClangCompiler : public Compiler {
 public:
  explicit ClangCompiler(const OxyfuelClangApi& api)
      : Compiler(std::string(api.description) + " in process"),
        api_(api),
        tombstones_(cache::writable_directory(), api.description),
        constant_pages_(constant_pages(reinterpret_cast<const void*>(api.compile))) {}

 protected:
  std::shared_ptr<Code> build(const std::string& source) override {
    if (tombstones_.is_suspect(source)) return build_outside(source);
    const std::string* only = &source;
    std::string message;
    auto code = build_here({&only, 1}, message);
    OXY_CHECK(!code.empty(), "the kernel does not compile: ", message);
    return code.front();
  }

  // A fourth of what Clang takes for a small text it takes for any.
  size_t batch() const override { return 4; }

  std::vector<std::shared_ptr<Code>> build_together(
      std::span<const std::string* const> sources) override {
    const bool suspect = std::ranges::any_of(
        sources, [&](const std::string* source) { return tombstones_.is_suspect(*source); });
    std::string message;
    std::vector<std::shared_ptr<Code>> code;
    if (!suspect) code = build_here(sources, message);
    // Where one fails, the message is to be of that text.
    return code.empty() ? Compiler::build_together(sources) : code;
  }

  // The library is large, and a model compiles once: its pages go back (they are read from its file
  // again when they are needed; code that runs there is not disturbed), and what the allocator
  // keeps free.
  void finished() override {
    for (const Pages& p : constant_pages_) madvise(p.begin, p.bytes, MADV_DONTNEED);
    malloc_trim(0);
  }

 private:
  // Empty with a message.
  std::vector<std::shared_ptr<Code>> build_here(std::span<const std::string* const> sources,
                                                std::string& message) {
    std::list<cache::Tombstones::Mark> marks;
    std::vector<const char*> texts;
    std::vector<size_t> sizes;
    for (const std::string* source : sources) {
      marks.emplace_back(tombstones_, *source);
      texts.push_back(source->data());
      sizes.push_back(source->size());
    }
    char* error = nullptr;
    void* handle = api_.compile(texts.data(), sizes.data(), texts.size(), &error);
    if (!handle) {
      message = error ? error : "out of memory";
      api_.free_error(error);
      return {};
    }
    // Released with the last of them.
    const std::shared_ptr<void> all(handle, [&api = api_](void* h) { api.release(h); });
    std::vector<std::shared_ptr<Code>> out;
    for (size_t i = 0; i < texts.size(); ++i)
      out.push_back(std::make_shared<Code>(reinterpret_cast<KernelFn>(api_.entry(handle, i)),
                                           [all] { (void)all; }));
    return out;
  }

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
  const std::vector<Pages> constant_pages_;
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
  static std::once_flag defined;  // once loaded, other threads may be compiling with it
  std::call_once(defined, [&] {
    for (const PrebuiltFunction& function : usable_functions())
      api->define(function.name, function.entry);
  });
  return std::make_shared<ClangCompiler>(*api);
}

}  // namespace oxy::jit
