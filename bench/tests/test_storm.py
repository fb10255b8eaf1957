import socket

from harness import http
from harness.contenders.base import BODY
from harness.stage import HOST
from harness.storm import Application


def test_the_application_counts_and_holds_what_it_is_asked() -> None:
    with Application() as application:
        with socket.create_connection((HOST, application.port), timeout=5) as early:
            request = http.request("/poll/a")
            early.sendall(request[:10])
            early.sendall(request[10:])
            application.await_requests(1, 5)
            application.release()
            assert http.receive(early).body == BODY
            early.sendall(request)
            assert http.receive(early).body == BODY
        assert application.requests == 2
