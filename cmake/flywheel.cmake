# The three verbs that the rooms' CMakeLists use. Every room is a static library with its own explicit source list.
if(FLYWHEEL_SANITIZE)
  add_compile_options(-fsanitize=${FLYWHEEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FLYWHEEL_SANITIZE})
endif()

# flywheel_library(<name> SOURCES a.cc ... DEPENDS x y): target flywheel_<name>, includes from src/ and include/.
function(flywheel_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(flywheel_${name} STATIC ${ARG_SOURCES})
  target_include_directories(flywheel_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(flywheel_${name} PRIVATE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
  target_link_libraries(flywheel_${name} PUBLIC ${ARG_DEPENDS})
endfunction()

# flywheel_test(<name> SOURCES x_test.cc ... DEPENDS y): a GoogleTest program registered with CTest case by case.
function(flywheel_test name)
  if(NOT FLYWHEEL_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-missing-field-initializers)
  target_compile_definitions(${name} PRIVATE FLYWHEEL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 LABELS ${name})
endfunction()

# flywheel_isa_sources(<target> <isa> a.cc ...): adds sources compiled with that ISA's flags, and no other file gets them.
function(flywheel_isa_sources target isa)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT isa STREQUAL "portable")
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # some of these are GCC's alone
    target_compile_options(${target} PRIVATE -Wno-unknown-warning-option)
  endif()
  set(flags_portable "")
  set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
  # GCC 12 takes the undefined operand inside its own AVX-512 intrinsics for a mistake of their callers.
  set(flags_avx512 -Wno-maybe-uninitialized -Wno-uninitialized -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512)
  # Sanitized kernels take four times as long to compile at -O3, and are not timed.
  set(optimize -O3)
  if(FLYWHEEL_SANITIZE)
    set(optimize -O1)
  endif()
  # The target lives in a folder above; source properties are only seen there when the directory is named.
  set(sources "")
  foreach(source ${ARGN})
    list(APPEND sources ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${flags_${isa}};-ffp-contract=off;-fno-math-errno;-fno-trapping-math;${optimize}")
  target_sources(${target} PRIVATE ${sources})
endfunction()
