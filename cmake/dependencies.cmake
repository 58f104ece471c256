# Everything the library, the tool and the tests are built with. Only oneTBB, Highway and libsodium remain at run time.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(TBB REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# HMAC and random numbers, for ranks that meet across processes.
find_path(RINGATTN_SODIUM_INCLUDE sodium.h REQUIRED)
find_library(RINGATTN_SODIUM_LIBRARY NAMES sodium REQUIRED)
mark_as_advanced(RINGATTN_SODIUM_INCLUDE RINGATTN_SODIUM_LIBRARY)
add_library(ringattn_sodium INTERFACE)
target_include_directories(ringattn_sodium SYSTEM INTERFACE ${RINGATTN_SODIUM_INCLUDE})
target_link_libraries(ringattn_sodium INTERFACE ${RINGATTN_SODIUM_LIBRARY})

# The static Highway where there is one: then libringattn.so does not need libhwy at run time.
find_path(RINGATTN_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(RINGATTN_HWY_LIBRARY NAMES libhwy.a hwy REQUIRED)
mark_as_advanced(RINGATTN_HWY_INCLUDE RINGATTN_HWY_LIBRARY)
add_library(ringattn_hwy INTERFACE)
target_include_directories(ringattn_hwy SYSTEM INTERFACE ${RINGATTN_HWY_INCLUDE})
target_link_libraries(ringattn_hwy INTERFACE ${RINGATTN_HWY_LIBRARY})
if(NOT RINGATTN_HWY_LIBRARY MATCHES "\\.a$")
  target_compile_definitions(ringattn_hwy INTERFACE HWY_SHARED_DEFINE)
endif()

# Only the plugin of the ucx transport is linked with it.
if(RINGATTN_UCX)
  find_path(RINGATTN_UCX_INCLUDE ucp/api/ucp.h REQUIRED)
  find_library(RINGATTN_UCP_LIBRARY NAMES ucp REQUIRED)
  find_library(RINGATTN_UCS_LIBRARY NAMES ucs REQUIRED)
  mark_as_advanced(RINGATTN_UCX_INCLUDE RINGATTN_UCP_LIBRARY RINGATTN_UCS_LIBRARY)
  add_library(ringattn_ucp INTERFACE)
  target_include_directories(ringattn_ucp SYSTEM INTERFACE ${RINGATTN_UCX_INCLUDE})
  target_link_libraries(ringattn_ucp INTERFACE ${RINGATTN_UCP_LIBRARY} ${RINGATTN_UCS_LIBRARY})
endif()
