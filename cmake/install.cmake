# `cmake --install` into any prefix, which may be moved afterwards.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ringattn)
install(FILES include/ringattn.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/ringattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS ringattn EXPORT ringattn-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_COMPONENT development)
install(EXPORT ringattn-targets NAMESPACE ringattn:: DESTINATION ${package_dir})
if(RINGATTN_STATIC)
  install(TARGETS ringattn_static EXPORT ringattn-static-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ringattn-static-targets NAMESPACE ringattn:: DESTINATION ${package_dir})
endif()
if(TARGET ringattn_ucx)
  install(TARGETS ringattn_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ringattn)
endif()
if(TARGET ringattn_cli)
  # The installed tool finds the library beside it wherever the prefix is moved to.
  file(RELATIVE_PATH bin_to_lib "/p/${CMAKE_INSTALL_BINDIR}" "/p/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(ringattn_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS ringattn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Before 1.0 only the same minor version is compatible, as the SONAME says.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
configure_package_config_file(cmake/ringattn-config.cmake.in ringattn-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ringattn-config-version.cmake COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/ringattn-config.cmake ${PROJECT_BINARY_DIR}/ringattn-config-version.cmake
  DESTINATION ${package_dir})

# Paths in ringattn.pc are relative to the file itself, so that a moved prefix still works.
file(RELATIVE_PATH pc_to_prefix "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(cmake/ringattn.pc.in ringattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ringattn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
