# The Python extension oxyfuel/_C: torch_bridge (the only folder with torch headers) and python (the
# only folder with Python.h) over the core. Explicit paths instead of find_package(Torch), which
# wants a CUDA toolkit.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(Python_VERSION VERSION_LESS 3.11 OR Python_VERSION VERSION_GREATER_EQUAL 3.13)
  message(STATUS "CPython ${Python_VERSION}: only its bytecode is known; importing oxyfuel says so")
  include(cmake/bytecode.cmake)
  return()
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
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
  # The core's libraries are archives in dependency order; the extension takes what it uses.
  include(cmake/prebuilt.cmake)
  target_link_libraries(_C PRIVATE oxy_prebuilt ${OXY_CORE_LIBS}
    ${TORCH_DIR}/lib/libtorch.so ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so
    ${TORCH_DIR}/lib/libtorch_python.so)
  target_precompile_headers(_C PRIVATE src/torch_bridge/pch.h)
  set_target_properties(_C PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib" BUILD_RPATH "${TORCH_DIR}/lib"
                        LIBRARY_OUTPUT_DIRECTORY ${OXYFUEL_PACKAGE_DIR})
  install(TARGETS _C LIBRARY DESTINATION oxyfuel)
  if(OXYFUEL_TESTS)
    add_library(failing_allocator MODULE tests/e2e/failing_allocator.cpp)
    target_include_directories(failing_allocator SYSTEM PRIVATE ${TORCH_DIR}/include)
    target_link_libraries(failing_allocator PRIVATE ${TORCH_DIR}/lib/libc10.so)
  endif()
endif()
