#!/bin/sh
# two_hosts.sh TOOL: rings of two network namespaces that a cable joins; ranks of the second are started by nsenter, as ssh
# would. Exits with 77 where namespaces cannot be made.
set -u
tool=$1
unshare -n sleep 100 & one=$!
unshare -n sleep 100 & other=$!
trap 'kill $one $other 2>/dev/null; rm -f remote_shell' EXIT
i=0 # until both have left the namespace of this shell
while [ $i -lt 100 ] && { [ "$(readlink /proc/$one/ns/net)" = "$(readlink /proc/$$/ns/net)" ] ||
  [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; }; do
  sleep 0.05
  i=$((i + 1))
done
in_one() { nsenter -t $one -n "$@"; }
in_other() { nsenter -t $other -n "$@"; }
{
  in_one ip link set lo up && in_other ip link set lo up &&
    in_one ip link add cable type veth peer name cable netns $other &&
    in_one ip address add 10.79.0.1/24 dev cable && in_other ip address add 10.79.0.2/24 dev cable &&
    in_one ip link set cable up && in_other ip link set cable up
} || exit 77
printf '#!/bin/sh\n[ "$1" = 10.79.0.2 ] || exit 255\nexec nsenter -t %s -n /bin/sh -c "$2"\n' $other >remote_shell
chmod +x remote_shell
export RINGATTN_TRANSPORT=tcp # ucx looks for interfaces in /sys, which shows those of the first namespace
for hosts in 10.79.0.1,10.79.0.2:2 10.79.0.2,10.79.0.1:2; do
  in_one "$tool" run --host-list $hosts --remote-shell "$PWD/remote_shell" --no-prefix -- "$tool" \
    verify "n=96 dim=16 mask=causal ranks=3" || exit 1
done
