# How every target of this project is compiled. Instruction sets are chosen at run time, so there are no
# per-file machine flags here.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

# Line tables only (-g1): enough for profilers and backtraces at a fraction of the size.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

if(RINGATTN_SANITIZE)
  add_compile_options(-fsanitize=${RINGATTN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${RINGATTN_SANITIZE})
  if(RINGATTN_SANITIZE MATCHES "thread")
    add_compile_definitions(RINGATTN_TSAN=1)
  endif()
  if(RINGATTN_SANITIZE MATCHES "address")
    add_compile_definitions(RINGATTN_ASAN=1)
  endif()
endif()

function(ringattn_settings target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${RINGATTN_WERROR}>:-Werror>)
  # gcc 12 reports sound std::string concatenations (its bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
endfunction()

# Tests are compiled once for each run of a sanitizer: undefined behaviour is looked for in what they test, which takes half
# the compiling from them. The address and thread sanitizers have to see all code.
function(ringattn_settings_of_tests target)
  if(RINGATTN_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()
