"""A proxy that passes requests on and loses answers, as a network does that breaks at the wrong moment."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx


class Lossy(BaseHTTPRequestHandler):
    """Loses the next `losses` answers to a POST whose path ends in `path`; `passed` counts those POSTs."""

    upstream: str
    path_lost: str
    losses: int
    passed: int

    def do_GET(self) -> None:
        kind = type(self)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
        with httpx.Client(trust_env=False, timeout=60) as client:
            answer = client.request(self.command, kind.upstream + self.path, content=content, headers=headers)
        if self.command == "POST" and self.path.endswith(kind.path_lost):
            kind.passed += 1
            if kind.losses:
                kind.losses -= 1
                self.close_connection = True
                return
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers["content-type"])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_POST = do_GET  # noqa: N815 (the name that http.server looks for)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def lossy(upstream: str, path: str, losses: int) -> Generator[tuple[str, type[Lossy]]]:
    """The address of such a proxy before `upstream`, and its counts."""
    kind = type("Proxy", (Lossy,), {"upstream": upstream, "path_lost": path, "losses": losses, "passed": 0})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}", kind
        finally:
            listening.shutdown()
            thread.join()
