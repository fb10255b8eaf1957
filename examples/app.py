"""An application behind Dwell: everybody has an inbox and polls it.

    python3 examples/app.py LISTEN MEMCACHED

`POST /send/NAME` puts the body into an inbox. `GET /poll/NAME` and `POST /poll/NAME` are polls that
found no value; they are answered from the inbox. All three store what the inbox holds under the
poll's path, so that the polls after them are answered by Dwell alone, and those that wait are
answered at once. An empty value is stored too: it says that there is nothing new, and keeps the
next poll away from here.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pymemcache import PooledClient

INBOXES = {}
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/poll/"):
            self.answer(200, self.store(path.removeprefix("/poll/")))
        else:
            self.answer(404, b"no such page\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path.startswith("/send/"):
            self.store(self.path.removeprefix("/send/"), body)
            self.answer(200, b"sent\n")
        else:
            self.do_GET()

    def store(self, name, *messages):
        # One at a time: of two values, the newer must be the one that stays in memcached.
        with LOCK:
            inbox = INBOXES.setdefault(name, [])
            inbox.extend(messages)
            value = b"".join(message + b"\n" for message in inbox)
            self.server.memcached.set(f"/poll/{name}", value)
        return value

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(listen, memcached):
    host, port = listen.split(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.memcached = PooledClient(memcached, default_noreply=False)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
