"""Network namespaces as hosts: each has one address behind a bridge, at a rate that tbf holds. Needs root and iproute2."""

import os
import secrets
import shutil
import subprocess


class Unavailable(Exception):
    """Why there can be no such hosts here, in one line."""


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


class Hosts:
    """`with Hosts(2, "1gbit") as hosts: subprocess.run(hosts.inside(0, command))`"""

    def __init__(self, count, rate, mtu=1500):
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root")
        if shutil.which("ip") is None or shutil.which("tc") is None:
            raise Unavailable("network namespaces need ip and tc (package iproute2)")
        self.count, self.rate, self.mtu = count, rate, mtu
        self.name = f"ra{secrets.token_hex(3)}"

    def namespace(self, host):
        return f"{self.name}h{host}"

    def address(self, host):
        return f"10.78.0.{host + 1}"

    def inside(self, host, command):
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def __enter__(self):
        try:
            self.build()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise Unavailable(f"ip: {error.stderr.strip()}") from error
        return self

    def build(self):
        switch = f"{self.name}s"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge0", "up")
        for host in range(self.count):
            space = self.namespace(host)
            ip("netns", "add", space)
            ip("-n", space, "link", "add", "cable", "type", "veth", "peer", "name", f"port{host}", "netns", switch)
            ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "cable")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "cable", "up")
            ip("-n", switch, "link", "set", f"port{host}", "master", "bridge0")
            ip("-n", switch, "link", "set", f"port{host}", "up")
            for where, device in ((space, "cable"), (switch, f"port{host}")):
                ip("-n", where, "link", "set", device, "mtu", str(self.mtu))
                words = f"tc -n {where} qdisc add dev {device} root tbf rate {self.rate} burst 256kb latency 50ms"
                subprocess.run(words.split(), check=True, capture_output=True, text=True)

    def __exit__(self, *_):
        for space in [f"{self.name}s", *(self.namespace(host) for host in range(self.count))]:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
