"""A client of Dwell in a few lines of Python, with nothing but the standard library.

usage: poll.py URL [COUNT]

Prints the value of a key and every newer one, each on a line of its own; COUNT of them, if given.
The loop is the one of docs/clients.md.
"""

import http.client
import random
import sys
import time
import urllib.parse

WAIT_SECONDS = 25


def values(url):
    """The value of the key, and then every newer one."""
    parts = urllib.parse.urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # A held poll may take a sixteenth longer than it asked for.
    connection = connect(parts.netloc, timeout=WAIT_SECONDS * 17 / 16 + 10)
    cursor, failures = None, 0
    while True:
        target = f"{parts.path}?wait={WAIT_SECONDS}" + (f"&since={cursor}" if cursor else "")
        pause = random.uniform(0, min(30, 0.5 * 2**failures))
        began = time.monotonic()
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            failures += 1
        else:
            news = answer.getheader("Poll-Cursor")
            if news and answer.status == 200:
                yield body
            if answer.status < 500:
                cursor = news
            if news and answer.status in (200, 204, 304):
                failures = 0
                continue
            # No value yet. The application, which does not wait, may send the same status.
            if answer.status == 204 and time.monotonic() - began >= 1:
                failures = 0
                continue
            failures += 1
            pause = float(answer.getheader("Retry-After", pause))
        time.sleep(pause)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else None
    for number, value in enumerate(values(sys.argv[1]), 1):
        print(value.decode(errors="replace"), flush=True)
        if number == count:
            return


if __name__ == "__main__":
    main()
