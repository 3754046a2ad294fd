# The Python extension oxyfuel/_C: torch_bridge (the only folder with torch headers) and python (the
# only folder with Python.h) over the core. Explicit paths instead of find_package(Torch), which
# wants a CUDA toolkit.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(Python_VERSION VERSION_LESS 3.10 OR Python_VERSION VERSION_GREATER_EQUAL 3.14)
  message(STATUS "CPython ${Python_VERSION}: only its bytecode is known; importing oxyfuel says so")
  include(cmake/bytecode.cmake)
  return()
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sys; print(sys.abiflags)"
                OUTPUT_VARIABLE PYTHON_ABI_FLAGS OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(PYTHON_ABI_FLAGS MATCHES "t")
  message(FATAL_ERROR "Oxyfuel needs the GIL: ${Python_EXECUTABLE} is a free-threaded build of CPython ${Python_VERSION}")
endif()
execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/torch_at_hand.py
                OUTPUT_VARIABLE torch_at_hand OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(GET torch_at_hand 0 TORCH_VERSION)
list(GET torch_at_hand 1 TORCH_DIR)
# Which torch the extension is for, beside it: what python/oxyfuel/extension.py reads before it
# loads it, and what a wheel is put together by.
set(extension _C.${Python_SOABI})
if(OXYFUEL_BUILT AND EXISTS ${OXYFUEL_BUILT}/${extension}.torch)
  file(READ ${OXYFUEL_BUILT}/${extension}.torch built_for)
  if(built_for STREQUAL TORCH_VERSION)
    install_built(${extension}.so)
    install(FILES ${OXYFUEL_BUILT}/${extension}.torch DESTINATION oxyfuel)
    return()
  endif()
endif()
execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_torch_headers.py ${TORCH_DIR}/include
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE bridge_sources CONFIGURE_DEPENDS src/torch_bridge/*.cpp)
file(GLOB_RECURSE python_sources CONFIGURE_DEPENDS src/python/*.cpp)
if(python_sources)
  Python_add_library(_C MODULE WITH_SOABI ${bridge_sources} ${python_sources})
  target_include_directories(_C PRIVATE ${OXY_INCLUDE})
  target_include_directories(_C SYSTEM PRIVATE ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_definitions(_C PRIVATE TORCH_EXTENSION_NAME=_C)
  # The assertions in torch's and pybind11's headers are a fifth of a small call's time.
  if(NOT OXYFUEL_SANITIZE)
    target_compile_definitions(_C PRIVATE NDEBUG)
  endif()
  # Calls into the core and into torch without a step between.
  target_compile_options(_C PRIVATE -fno-plt)
  target_link_libraries(_C PRIVATE oxyfuel_core
    ${TORCH_DIR}/lib/libtorch.so ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so
    ${TORCH_DIR}/lib/libtorch_python.so)
  target_precompile_headers(_C PRIVATE src/torch_bridge/pch.h)
  # torch's libraries are those that the process has loaded: it is imported first.
  set_target_properties(_C PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON
                        LIBRARY_OUTPUT_DIRECTORY ${OXYFUEL_PACKAGE_DIR})
  add_custom_command(TARGET _C POST_BUILD COMMAND ${CMAKE_COMMAND} -E echo_append ${TORCH_VERSION}
                     > ${OXYFUEL_PACKAGE_DIR}/${extension}.torch VERBATIM)
  install(TARGETS _C LIBRARY DESTINATION oxyfuel)
  install(FILES ${OXYFUEL_PACKAGE_DIR}/${extension}.torch DESTINATION oxyfuel)
  if(OXYFUEL_TESTS)
    add_library(failing_allocator MODULE tests/e2e/failing_allocator.cpp)
    target_include_directories(failing_allocator SYSTEM PRIVATE ${TORCH_DIR}/include)
    target_link_libraries(failing_allocator PRIVATE ${TORCH_DIR}/lib/libc10.so)
  endif()
endif()
# What a user's environment needs, without the tests' programs and the tools.
add_custom_target(package DEPENDS $<TARGET_NAME_IF_EXISTS:_C> $<TARGET_NAME_IF_EXISTS:oxyfuel_clang>)
