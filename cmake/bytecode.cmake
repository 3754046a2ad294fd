# The extension oxyfuel_bytecode for any Python that the bytecode layer knows, without torch: what
# tests/bytecode runs on each interpreter of a machine. Breaks and resume functions, which only the
# capture needs, are not in it.
find_package(Python 3.10...<3.15 REQUIRED COMPONENTS Interpreter Development.Module)
file(GLOB bytecode_sources CONFIGURE_DEPENDS src/python/bytecode/*.cpp)
list(FILTER bytecode_sources EXCLUDE REGEX "/resume(_state)?\\.cpp$")
Python_add_library(oxyfuel_bytecode MODULE WITH_SOABI
  tests/bytecode/module.cpp src/python/cpython/opcodes.cpp ${bytecode_sources})
target_include_directories(oxyfuel_bytecode PRIVATE ${OXY_INCLUDE})

# For the bytecode of a version that is not there, in an interpreter of 3.11: what
# tests/bytecode/recorded has of it.
set(OXYFUEL_BYTECODE_OF "" CACHE STRING "Version whose recorded bytecode is meant, not the interpreter's")
if(OXYFUEL_BYTECODE_OF)
  set(tests ${CMAKE_SOURCE_DIR}/tests/bytecode)
  set(recorded ${CMAKE_BINARY_DIR}/recorded)
  file(MAKE_DIRECTORY ${recorded})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${tests}/recorded/opcode-${OXYFUEL_BYTECODE_OF}.json)
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${tests}/check_recorded.py header ${OXYFUEL_BYTECODE_OF} ${recorded}/opcode.h
    OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
  target_include_directories(oxyfuel_bytecode BEFORE PRIVATE ${recorded})
  target_compile_options(oxyfuel_bytecode PRIVATE
    -DOXY_BYTECODE_HEX=${version} -include ${tests}/recorded.h)
endif()
