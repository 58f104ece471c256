#!/usr/bin/env bash
# The Python package as its users get it: builds the wheel, installs it in a fresh environment, and runs pytest there.
# usage: test_python.sh environment RESULTS-FOLDER          only installs what the tests need
#        test_python.sh test RESULTS-FOLDER [PYTEST-ARGS]   leaves RESULTS/python.xml, python.log and python.rc
#
# torch and its libraries take longest, so they are kept between runs (RINGATTN_PYTHON_CACHE, else the user's cache folder)
# under a name made of what is asked for; the fresh environment sees them, and has the wheel for itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
verb=$1 results=$2
shift 2
work=$root/build/python
python=${RINGATTN_PYTHON:-python3}
mkdir -p "$results" "$work"
log=$results/python-$verb.log
requirements=("$root/tests/python/requirements.txt" "$root/tests/python/models.txt")
name=$( ("$python" -c 'import sys; print(sys.version)'; cat "${requirements[@]}") | sha256sum | cut -c1-16)
environment=${RINGATTN_PYTHON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringattn}/python-$name

fail() {
  echo "python: $1; the end of what it said:" >&2
  tail -n 20 "$log" >&2
  echo 1 >"$results/$2.rc"
  exit 1
}

# install ARGS : uv unpacks gigabytes of torch's libraries side by side; pip does where uv cannot reach the index.
install() {
  "$environment/bin/pip" install -q uv &&
    "$environment/bin/uv" --system-certs pip install -q --compile-bytecode --python "$environment/bin/python" "$@" ||
    "$environment/bin/pip" install -q "$@"
}

make_environment() {
  [ ! -e "$environment/complete" ] || return 0
  rm -rf "$environment"
  "$python" -m venv "$environment" && install -r "${requirements[0]}" && install --no-deps -r "${requirements[1]}" &&
    touch "$environment/complete"
}

: >"$log"
make_environment >>"$log" 2>&1 || fail "could not install what the tests need" "python environment"
[ "$verb" = test ] || exit 0

# The wheel, from the source tree; auditwheel puts in the libraries that it needs. UCX stays the system's.
rm -rf "$work/raw" "$work/wheel" "$work/venv"
"$environment/bin/pip" wheel "$root" --no-deps -w "$work/raw" -C cmake.define.RINGATTN_WERROR=ON >>"$log" 2>&1 ||
  fail "could not build the wheel" "build of the wheel"
PATH=$environment/bin:$PATH "$environment/bin/auditwheel" repair -w "$work/wheel" \
  --exclude 'libuc[pst].so.*' --exclude 'libucm.so.*' "$work"/raw/*.whl >>"$log" 2>&1 ||
  fail "auditwheel refused the wheel" "build of the wheel"
"$environment/bin/abi3audit" --strict "$work"/wheel/*.whl >>"$log" 2>&1 ||
  fail "the extension uses what is not in Python's stable ABI" "build of the wheel"

"$python" -m venv --without-pip "$work/venv" >>"$log" 2>&1
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$environment/bin/pip" --python "$work/venv/bin/python" install -q --no-deps "$work"/wheel/*.whl >>"$log" 2>&1 ||
  fail "could not install the wheel" "build of the wheel"
"$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/kept.pth"

rc=0
cd "$work" # not the source tree: the wheel is what is tested
# A file stays with one of two workers: what starts processes waits for them most of its time.
RINGATTN_EXAMPLES=$root/examples PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=10 900 "$work/venv/bin/python" -m pytest -q -n 2 --dist loadfile \
  -p no:cacheprovider -c "$root/pyproject.toml" --rootdir "$root" "$root/tests/python" --durations=12 \
  --junitxml "$results/python.xml" "$@" >"$results/python.log" 2>&1 </dev/null || rc=$?
echo $rc >"$results/python.rc"
