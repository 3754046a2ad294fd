# liboxyfuel_core.so: all folders that know neither torch nor Python, and the prebuilt kernels. One
# file serves the extension of every Python and torch. Its functions are visible, and calls between
# them are direct all the same.
include(cmake/prebuilt.cmake)
add_library(oxyfuel_core SHARED $<TARGET_OBJECTS:oxy_prebuilt>)
foreach(library IN LISTS OXY_CORE_LIBS)
  target_sources(oxyfuel_core PRIVATE $<TARGET_OBJECTS:${library}>)
endforeach()
target_include_directories(oxyfuel_core PUBLIC ${OXY_INCLUDE})
target_link_libraries(oxyfuel_core PRIVATE dl pthread)
target_link_options(oxyfuel_core PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/core.map
                    -Wl,-Bsymbolic-functions)
if(NOT OXYFUEL_SANITIZE)
  target_link_options(oxyfuel_core PRIVATE -Wl,-z,defs)
endif()
set_target_properties(oxyfuel_core PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${OXYFUEL_PACKAGE_DIR}
                      LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/core.map)
install(TARGETS oxyfuel_core LIBRARY DESTINATION oxyfuel)
