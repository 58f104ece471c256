#!/usr/bin/env bash
# Programs outside the tree use an installed libringattn. Steps, each a test:
#   consume.sh install BUILD WORK   installs BUILD below WORK and moves the prefix away from where it was installed
#   consume.sh cmake WORK           a C program by find_package
#   consume.sh static WORK          the same with the static library
#   consume.sh pkgconfig WORK       a C program by pkg-config, in each C standard that the header promises
#   consume.sh tool WORK            the installed command line tool starts and finds its library
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
step=$1
work=${!#}
prefix=$work/moved

fail() { echo "$*" >&2; exit 1; }

# The program needs libringattn by its SONAME alone: a slash would be a path of the machine that built it.
check_needed() {
  local needed
  needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  echo "$1 needs: $(echo $needed)"
  grep -qE '^libringattn\.so\.[0-9.]+$' <<<"$needed" || fail "no SONAME of libringattn among them"
  ! grep -q / <<<"$needed" || fail "a path among them"
}

build_cmake() { # NAME CMAKE-OPTION...
  local name=$1
  shift
  rm -rf "$work/$name"
  cmake -S "$here/consumer" -B "$work/$name" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" "$@"
  cmake --build "$work/$name"
}

case $step in
  install)
    rm -rf "$work"
    cmake --install "$2" --prefix "$work/first"
    mv "$work/first" "$prefix"
    # nothing installed may remember where it was built or first installed
    leaks=$(grep -rIlF -e "$work/first" -e "$2" "$prefix" || true)
    [ -z "$leaks" ] || fail "path of the build inside: $leaks"
    library=$(find "$prefix" -name 'libringattn.so')
    for link in "$library" "$(dirname "$library")/$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"; do
      [ -L "$link" ] && [ -f "$link" ] || fail "$link is not a link to the library"
    done
    find "$prefix" -path '*/doc/*' -name LICENSE | grep -q . || fail "no LICENSE installed"
    ;;
  cmake)
    build_cmake by-cmake
    check_needed "$work/by-cmake/consumer"
    "$work/by-cmake/consumer"
    ;;
  static)
    build_cmake by-cmake-static -DSTATIC=ON
    ! readelf -d "$work/by-cmake-static/consumer" | grep -q libringattn || fail "linked the shared library"
    "$work/by-cmake-static/consumer"
    ;;
  pkgconfig)
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ringattn.pc)")
    libs=$(pkg-config --variable=libdir ringattn)
    [ "$(realpath "$libs")" = "$(realpath "$PKG_CONFIG_PATH/..")" ] || fail "ringattn.pc names $libs"
    for std in c99 c11 c17; do
      ${CC:-cc} -std=$std -pedantic -Wall -Wextra -Werror "$here/consumer/main.c" -o "$work/by-pkgconfig-$std" \
        $(pkg-config --cflags --libs ringattn) -lm
      check_needed "$work/by-pkgconfig-$std"
      LD_LIBRARY_PATH=$libs "$work/by-pkgconfig-$std"
    done
    ;;
  tool) "$prefix/bin/ringattn" --version ;;
  *) fail "unknown step $step" ;;
esac
