# The libraries in OXYFUEL_BUILT as they are. The core and the Clang library serve every extension;
# an extension serves the Python and the torch that its record names.
add_library(oxyfuel_core SHARED IMPORTED)
set_target_properties(oxyfuel_core PROPERTIES IMPORTED_LOCATION ${OXYFUEL_BUILT}/liboxyfuel_core.so
                      INTERFACE_INCLUDE_DIRECTORIES ${OXY_INCLUDE})
install(PROGRAMS ${OXYFUEL_BUILT}/liboxyfuel_core.so DESTINATION oxyfuel)
if(EXISTS ${OXYFUEL_BUILT}/liboxyfuel_clang.so)
  install(PROGRAMS ${OXYFUEL_BUILT}/liboxyfuel_clang.so DESTINATION oxyfuel)
endif()
include(cmake/extension.cmake)
