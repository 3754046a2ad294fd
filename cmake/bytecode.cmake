# The extension oxyfuel_bytecode for any Python that the bytecode layer knows, without torch: what
# tests/bytecode runs on each interpreter of a machine. Breaks and resume functions, which only the
# capture needs, are not in it.
find_package(Python 3.10...<3.15 REQUIRED COMPONENTS Interpreter Development.Module)
file(GLOB bytecode_sources CONFIGURE_DEPENDS src/python/bytecode/*.cpp)
list(FILTER bytecode_sources EXCLUDE REGEX "/resume(_state)?\\.cpp$")
Python_add_library(oxyfuel_bytecode MODULE WITH_SOABI
  tests/bytecode/module.cpp src/python/cpython/opcodes.cpp ${bytecode_sources})
target_include_directories(oxyfuel_bytecode PRIVATE ${OXY_INCLUDE})
