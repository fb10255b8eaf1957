"""Threads that use a manager at the same time as the one that polls it."""

from __future__ import annotations

import sys
import threading

from dwell import Event
from support import Loop, body_of


def test_replies_of_threads_never_disturb_the_poll():
    work, rounds = [], 300
    ready = threading.Condition()

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            with ready:
                work.append((conn, message.uri))
                ready.notify()

    def worker():
        while True:
            with ready:
                ready.wait_for(lambda: work)
                conn, uri = work.pop()
            if uri is None:
                return
            conn.reply(200, uri)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=worker) for _ in range(4)]
    try:
        with Loop(handler, error_handler=print) as loop:
            listener = loop.listen()
            for thread in threads:
                thread.start()
            clients = [loop.client(listener) for _ in range(4)]
            for number in range(rounds):
                for client in clients:
                    client.send(f"GET /{number} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                for client in clients:
                    assert body_of(client.answer()) == f"/{number}".encode()
            for client in clients:
                client.socket.close()
    finally:
        sys.setswitchinterval(interval)
        with ready:
            work.extend([(None, None)] * len(threads))
            ready.notify_all()
        for thread in threads:
            thread.join()
