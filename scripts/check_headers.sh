#!/usr/bin/env bash
# The public headers compile alone, in every supported language version, with both compilers and no warning;
# the headers of src/ compile alone too.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
flags=(-pedantic -Wall -Wextra -Werror -fsyntax-only -Iinclude)

compile() { # LABEL COMMAND...
  local label=$1
  shift
  if ! "$@"; then
    echo "does not compile: $label"
    failed=1
  fi
}

unit=$(mktemp -d)
trap 'rm -rf "$unit"' EXIT
for header in $(cd include && find . -name '*.h' | sed 's|^\./||' | sort); do
  printf '#include "%s"\nint main(void) { return 0; }\n' "$header" | tee "$unit/unit.c" >"$unit/unit.cpp"
  for compiler in gcc clang; do
    for std in c99 c11 c17; do
      compile "$header, $compiler -std=$std" "$compiler" -std=$std "${flags[@]}" "$unit/unit.c"
    done
  done
  for compiler in g++ clang++; do
    for std in c++11 c++17 c++20; do
      compile "$header, $compiler -std=$std" "$compiler" -std=$std "${flags[@]}" "$unit/unit.cpp"
    done
  done
done

# Headers named *-inl.h are included several times, once for each instruction set; they are not units.
for header in $(find src transports -name '*.h' ! -name '*-inl.h' | sort); do
  printf '#include "%s"\n' "$header" >"$unit/unit.cpp"
  compile "$header alone" g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only \
    -DHWY_SHARED_DEFINE -Iinclude -Isrc -I. "$unit/unit.cpp"
done
exit $failed
