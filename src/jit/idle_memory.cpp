// Gives back read-only pages of the shared library, and what the allocator keeps free.
#include "jit/idle_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

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

// Only whole pages of segments that nobody writes to.
void release_segments(const dl_phdr_info& library) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < library.dlpi_phnum; i++) {
    const ElfW(Phdr)& p = library.dlpi_phdr[i];
    if (p.p_type != PT_LOAD || (p.p_flags & PF_W)) continue;
    const uintptr_t begin = (library.dlpi_addr + p.p_vaddr + page - 1) / page * page;
    const uintptr_t end = (library.dlpi_addr + p.p_vaddr + p.p_memsz) / page * page;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of the loader's tables
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
}

int visit(dl_phdr_info* library, size_t, void* address) {
  if (!holds(*library, reinterpret_cast<uintptr_t>(address))) return 0;
  release_segments(*library);
  return 1;
}

}  // namespace

void release_idle_memory(const void* address) {
  dl_iterate_phdr(visit, const_cast<void*>(address));
  malloc_trim(0);
}

}  // namespace oxy::jit
