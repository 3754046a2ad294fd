# The libraries in OXYFUEL_BUILT as they are. The core and the Clang library serve every extension;
# an extension serves the Python and the torch that its record names.
add_library(oxyfuel_core SHARED IMPORTED)
set_target_properties(oxyfuel_core PROPERTIES IMPORTED_LOCATION ${OXYFUEL_BUILT}/liboxyfuel_core.so
                      INTERFACE_INCLUDE_DIRECTORIES ${OXY_INCLUDE})
# A copy without the symbols that only a debugger reads.
function(install_built file)
  install(PROGRAMS ${OXYFUEL_BUILT}/${file} DESTINATION oxyfuel)
  if(CMAKE_STRIP)
    install(CODE "execute_process(COMMAND ${CMAKE_STRIP} \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/oxyfuel/${file})")
  endif()
endfunction()
install_built(liboxyfuel_core.so)
if(EXISTS ${OXYFUEL_BUILT}/liboxyfuel_clang.so)
  install_built(liboxyfuel_clang.so)
endif()
include(cmake/extension.cmake)
