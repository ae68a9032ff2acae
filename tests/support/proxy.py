"""A TCP proxy that a test can have fail: cut, cut at a certain word, or swallow answers."""

import socket
import threading
from contextlib import suppress

BUFFER = 65_536


class Proxy:
    """Forwards to a port of this machine. `with Proxy(port) as proxy: proxy.port`

    While it `is_still` connections stay open, and no answer gets through.

    After `cut_after(word)`, the next connection that has sent `word` gets no answer to it
    and ends, while what it sent still arrives.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._word: bytes | None = None
        self.refusing = False
        self.is_still = False
        self.cuts = 0

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._listener.close()
        self.cut()

    def cut_after(self, word: bytes) -> None:
        self._word = word

    def cut(self) -> None:
        """Ends all connections."""
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target_port))
                self._open |= {client, server}
                if self.refusing:  # since it was asked above
                    _end(client)
                    _end(server)
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(BUFFER):
                if self._word is not None and self._word in data:
                    self._word = None
                    self.cuts += 1
                    _end(client)  # nothing that the server answers gets through any more
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    return
                server.sendall(data)
        _end(client)
        _end(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(BUFFER):
                if not self.is_still:
                    client.sendall(data)
        _end(client)
        _end(server)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
