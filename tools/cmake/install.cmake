# install: archives, flat headers, CMake package, pkg-config files.
include(CMakePackageConfigHelpers)
install(TARGETS ${WOK_TARGETS} EXPORT wokTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${WOK_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET wok_command)
  install(TARGETS wok_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
set(WOK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/wok)
install(EXPORT wokTargets NAMESPACE wok:: DESTINATION ${WOK_CMAKE_DIR})
configure_package_config_file(tools/cmake/wokConfig.cmake.in ${CMAKE_BINARY_DIR}/wokConfig.cmake
  INSTALL_DESTINATION ${WOK_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/wokConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/wokConfig.cmake ${CMAKE_BINARY_DIR}/wokConfigVersion.cmake
  DESTINATION ${WOK_CMAKE_DIR})

# The .pc files can be moved with the tree: prefix is reckoned from where they stand.
file(RELATIVE_PATH WOK_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(WOK_PC_REQUIRES "")
if(OPENBLAS_FOUND)
  set(WOK_PC_REQUIRES "Requires: openblas")
endif()
foreach(name ${WOK_TARGETS})
  configure_file(tools/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
