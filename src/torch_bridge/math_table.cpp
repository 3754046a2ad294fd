// The vector maths of kernels: functions that libtorch_cpu exports (Sleef's), looked up by name
// once.
#include <dlfcn.h>

#include <vector>

#include "codegen/cpp/emit.h"
#include "support/check.h"
#include "torch_bridge/host.h"

namespace oxy::bridge {
namespace {

std::vector<void*> look_up() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  std::vector<void*> table;
  for (const std::string& symbol : codegen::cpp::math_symbols(host_machine())) {
    void* f = dlsym(torch != nullptr ? torch : RTLD_DEFAULT, symbol.c_str());
    OXY_CHECK(f != nullptr, "libtorch_cpu does not export ", symbol);
    table.push_back(f);
  }
  return table;
}

}  // namespace

void* const* math_table() {
  static const std::vector<void*> table = look_up();
  return table.data();
}

}  // namespace oxy::bridge
