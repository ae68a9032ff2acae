"""Clients that behave badly, by the hundred, over raw sockets."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

HOLD = b'{"ttlSeconds":600}'


def request_head(method: str, path: str, *headers: str, host: str = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@contextmanager
def connections(port: int, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, each having sent `first`, kept open for the time of the `with`."""
    _allow_open_files(count + 512)
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            opened.append(connection)
            if first:
                connection.sendall(first)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def exchange(port: int, sent: bytes, timeout: float = 20.0) -> bytes:
    """All that is answered until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(sent)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
