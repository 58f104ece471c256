#!/bin/sh
# Stands for ssh: remote_shell.sh FOLDER HOST COMMAND runs the command here, in an environment and a folder that are not the
# caller's. What it was started with it leaves in FOLDER. Hosts that begin with "refused" cannot be reached, those with "silent"
# never answer, those with "bare" have no folder of that name, and those with "lost" lose the connection once FOLDER/cut is there.
set -u
folder=$1 host=$2 command=$3
printf '%s\n' "$@" >"$folder/arguments.$host.$$"
env >"$folder/environment.$host.$$"
cd /
case $host in
  refused*)
    echo "ssh: connect to host $host port 22: Connection refused" >&2
    exit 255
    ;;
  bare*)
    rmdir "$OLDPWD"
    ;;
  silent*)
    sleep 600
    ;;
  lost*)
    mkfifo "$folder/wire.$$"
    setsid env -i PATH="$PATH" HOME=/ HOST="$host" /bin/sh -c "$command" <"$folder/wire.$$" &
    exec 4<&0
    cat <&4 >"$folder/wire.$$" &
    cable=$!
    until [ -f "$folder/cut" ]; do sleep 0.02; done
    kill $cable
    exit 255
    ;;
esac
exec env -i PATH="$PATH" HOME=/ HOST="$host" /bin/sh -c "$command"
