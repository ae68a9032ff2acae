"""HAProxy as the one address in front of nodes, or of several groups of them."""

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from string import Template

from tests.support.server import free_port

TEMPLATE = Path(__file__).with_name("haproxy.cfg.template")
READY_WITHIN_SECONDS = 10


class NoProxy(Exception):
    """HAProxy is not installed."""


def find_haproxy() -> str:
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        raise NoProxy("haproxy is not installed (Debian: apt-get install haproxy)")
    return found


class HAProxy:
    """`start()`, `stop()`; each of `groups` has the ports of the nodes on one database."""

    def __init__(self, folder: Path, groups: Sequence[Sequence[int]]) -> None:
        self.binary = find_haproxy()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = folder / "haproxy.cfg"
        self._config.write_text(configuration(self.port, groups))
        self._log = folder / "haproxy.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "HAProxy":
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "-q", "-f", self._config], stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/healthz", timeout=2).close()
                return self
            except OSError:
                assert self.process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "the proxy does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None


def configuration(port: int, groups: Sequence[Sequence[int]]) -> str:
    """haproxy.cfg for these groups, each with an equal share of the reservations."""
    backends = "\n\n".join(
        "\n".join([f"backend shard_{shard}", *map(_server, range(len(ports)), ports)])
        for shard, ports in enumerate(groups)
    )
    template = Template(TEMPLATE.read_text())
    shards = len(groups)
    return template.substitute(
        port=port, shards=shards, if_sharded="" if shards > 1 else "# ", backends=backends + "\n"
    )


def _server(number: int, port: int) -> str:
    return f"    server node-{number} 127.0.0.1:{port} check inter 300ms fall 2 rise 1"
