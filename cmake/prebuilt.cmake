# The kernels of gemms, whose texts are the same for every model, and what many kernels call,
# compiled with the library: the first call of a model does not wait for them. With the flags of
# src/jit/external.cpp.
set(prebuilt_folder ${CMAKE_BINARY_DIR}/prebuilt)
file(MAKE_DIRECTORY ${prebuilt_folder})
set(prebuilt_flags -w -O2 -fno-sanitize=all -ffp-contract=off -fno-math-errno -fwrapv
    -fno-exceptions -fno-rtti -fno-strict-aliasing)
set(prebuilt_kernels)
# Texts 0 to `last` of AVX2 and of AVX-512.
macro(add_prebuilt prefix last)
  foreach(n RANGE ${last})
    set(avx2 ${prebuilt_folder}/avx2_${prefix}${n}.cpp)
    set(avx512 ${prebuilt_folder}/avx512_${prefix}${n}.cpp)
    set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "${prebuilt_flags};-march=x86-64-v3")
    set_source_files_properties(${avx512} PROPERTIES
                                COMPILE_OPTIONS "${prebuilt_flags};-march=x86-64-v4;-mprefer-vector-width=512")
    list(APPEND prebuilt_kernels ${avx2} ${avx512})
  endforeach()
endmacro()
add_prebuilt("" 19)  # of codegen::cpp::gemm_texts
add_prebuilt(function_ 1)  # of codegen::cpp::prebuilt_functions
foreach(n RANGE 3)  # of those, what differs where there is AVX512_BF16
  set(avx512 ${prebuilt_folder}/avx512_bf16_${n}.cpp)
  set_source_files_properties(
    ${avx512} PROPERTIES
    COMPILE_OPTIONS "${prebuilt_flags};-march=x86-64-v4;-mavx512bf16;-mprefer-vector-width=512")
  list(APPEND prebuilt_kernels ${avx512})
endforeach()
foreach(n RANGE 1)  # and where there is AMX
  set(amx ${prebuilt_folder}/amx_bf16_${n}.cpp)
  set_source_files_properties(
    ${amx} PROPERTIES COMPILE_OPTIONS "${prebuilt_flags};-march=x86-64-v4;-mavx512bf16;-mamx-tile;-mamx-bf16;-mprefer-vector-width=512")
  list(APPEND prebuilt_kernels ${amx})
endforeach()
add_custom_command(OUTPUT ${prebuilt_folder}/table.cpp ${prebuilt_kernels}
                   COMMAND oxy-gemms ${prebuilt_folder} DEPENDS oxy-gemms)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(prebuilt_kernels)
endif()
add_library(oxy_prebuilt STATIC ${prebuilt_folder}/table.cpp ${prebuilt_kernels})
target_link_libraries(oxy_prebuilt PUBLIC oxy_jit)
set_target_properties(oxy_prebuilt PROPERTIES CXX_VISIBILITY_PRESET default)
