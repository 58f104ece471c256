#!/usr/bin/env bash
# check_readme.sh BUILD_DIR: the first C example of README.md compiles against the build and exits with 0.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '/^```c$/ { inside = 1; next } /^```/ && inside { exit } inside' README.md >"$work/example.c"
[ -s "$work/example.c" ] || { echo "README.md has no C example"; exit 1; }
gcc -std=c11 -Wall -Wextra -Werror -Iinclude "$work/example.c" -o "$work/example" \
  -L"$build/lib" -Wl,-rpath,"$build/lib" -lringattn -lm
cd "$work"
./example
