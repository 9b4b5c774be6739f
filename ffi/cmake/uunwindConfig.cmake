# find_package(uunwind CONFIG) gives the targets
#
#   uunwind::uunwind   libuunwind.so.0: the process's one registry
#   uunwind::static    libuunwind.a: a registry of the program's own; uu.h says when that is right
#
# The folder that this file is installed in may be moved as a whole.

get_filename_component(uunwind_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET uunwind::uunwind)
    add_library(uunwind::uunwind SHARED IMPORTED)
    set_target_properties(uunwind::uunwind PROPERTIES
        IMPORTED_LOCATION "${uunwind_prefix}/lib/libuunwind.so.0"
        IMPORTED_SONAME "libuunwind.so.0"
        INTERFACE_INCLUDE_DIRECTORIES "${uunwind_prefix}/include")
endif()
if(NOT TARGET uunwind::static)
    add_library(uunwind::static STATIC IMPORTED)
    set_target_properties(uunwind::static PROPERTIES
        IMPORTED_LOCATION "${uunwind_prefix}/lib/libuunwind.a"
        INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}"
        INTERFACE_INCLUDE_DIRECTORIES "${uunwind_prefix}/include")
endif()
unset(uunwind_prefix)
