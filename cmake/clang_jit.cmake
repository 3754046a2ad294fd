# liboxyfuel_clang.so: Clang and LLVM 19 inside, one exported function (src/jit/clang/api.h). Linked
# by file name and never by CMake target: Debian's ClangTargets pull in the shared libLLVM, and
# loading two LLVMs that see each other aborts ("registered more than once"). Without LLVM 19 the
# library is left out; kernels are then compiled by the compiler that the machine has.
find_program(LLVM_CONFIG NAMES llvm-config-19)
set(clang_libraries
  clangFrontend clangCodeGen clangDriver clangSerialization clangParse clangSema clangAnalysis clangEdit clangAST
  clangASTMatchers clangAPINotes clangSupport clangLex clangBasic)
set(llvm_components
  x86codegen x86desc x86info orcjit passes ipo vectorize irreader frontendopenmp coverage lto option windowsdriver
  frontendhlsl frontenddriver extensions)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  string(REPLACE "x86" "aarch64" llvm_components "${llvm_components}")
endif()

if(LLVM_CONFIG)
  execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE llvm_include OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${LLVM_CONFIG} --libdir OUTPUT_VARIABLE llvm_libdir OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static --libfiles ${llvm_components}
                  OUTPUT_VARIABLE llvm_libraries OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE llvm_failed)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static --system-libs ${llvm_components}
                  OUTPUT_VARIABLE llvm_system OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(llvm_libraries)
  separate_arguments(llvm_system)
  # Inside: not every machine has them.
  list(TRANSFORM llvm_system REPLACE "^-l(z|zstd)$" "-l:lib\\1.a")
endif()

if(NOT LLVM_CONFIG OR llvm_failed OR NOT EXISTS ${llvm_libdir}/libclangFrontend.a)
  message(WARNING "LLVM 19 with Clang's static libraries was not found (llvm-19-dev libclang-19-dev libpolly-19-dev): "
                  "building without the in-process Clang. Kernels will be compiled by the compiler found at run time.")
  return()
endif()

list(TRANSFORM clang_libraries PREPEND ${llvm_libdir}/lib)
list(TRANSFORM clang_libraries APPEND .a)
file(GLOB clang_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/jit/clang/*.cpp)
add_library(oxyfuel_clang MODULE ${clang_sources} ${CMAKE_SOURCE_DIR}/src/support/fork_mutex.cpp)
target_include_directories(oxyfuel_clang PRIVATE ${OXY_INCLUDE})
target_include_directories(oxyfuel_clang SYSTEM PRIVATE ${llvm_include})
# As LLVM itself is built.
target_compile_options(oxyfuel_clang PRIVATE -fno-rtti -fno-exceptions -ffunction-sections -fdata-sections)
target_link_libraries(oxyfuel_clang PRIVATE
  -Wl,--start-group ${clang_libraries} ${llvm_libraries} -Wl,--end-group ${llvm_system} dl pthread)
target_link_options(oxyfuel_clang PRIVATE
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/clang_jit.map -Wl,-Bsymbolic
  -Wl,--as-needed -Wl,--gc-sections -Wl,-z,defs -s -static-libstdc++ -static-libgcc)
# LLVM's tables are 7 MB of relative relocations, which glibc's loader takes as a bitmap from 2.36 on;
# GNU's linker notes in the library that it asks for such a loader.
include(CheckLinkerFlag)
set(packed -fuse-ld=bfd -Wl,-z,pack-relative-relocs)
check_linker_flag(CXX "${packed}" OXYFUEL_PACKED_RELOCATIONS)
if(OXYFUEL_PACKED_RELOCATIONS)
  target_link_options(oxyfuel_clang PRIVATE ${packed})
endif()
set_target_properties(oxyfuel_clang PROPERTIES UNITY_BUILD OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                      LIBRARY_OUTPUT_DIRECTORY ${OXYFUEL_PACKAGE_DIR}
                      LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/clang_jit.map)
install(TARGETS oxyfuel_clang LIBRARY DESTINATION oxyfuel)
