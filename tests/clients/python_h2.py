"""A client by the library `h2` of Python: many requests at once on one connection.

python_h2.py URL: one of `http`, by prior knowledge, or of `https`, whose certificate is not
checked. It prints how many of the answers have each body.
"""

import collections
import pathlib
import socket
import ssl
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from support.http2_client import Http2Connection
from support.wait import PATIENCE_S

REQUESTS = 50
FIELDS = {"User-Agent": "h2"}


def under_tls(address):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    secure = context.wrap_socket(socket.create_connection(address, PATIENCE_S))
    assert secure.selected_alpn_protocol() == "h2"
    return secure


def main():
    url = urllib.parse.urlsplit(sys.argv[1])
    address = (url.hostname, url.port)
    secure = under_tls(address) if url.scheme == "https" else None
    with Http2Connection(address, secure=secure) as client:
        asked = [client.ask(url.path or "/", fields=FIELDS) for _ in range(REQUESTS)]
        answers = [client.answer(number) for number in asked]
    for body, count in collections.Counter(answer.body for answer in answers).items():
        print(f"{count} times {body.decode()}")


if __name__ == "__main__":
    main()
