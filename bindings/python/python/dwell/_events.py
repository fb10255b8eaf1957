"""The events of a `Manager`, and what is wrong with a URL."""

from enum import IntEnum


class Event(IntEnum):
    """What a handler is told, by the numbers of Mongoose.

    >>> Event.HTTP_MSG
    <Event.HTTP_MSG: 11>
    >>> Event.HTTP_MSG == 11
    True
    """

    ERROR = 0
    OPEN = 1
    POLL = 2
    RESOLVE = 3
    CONNECT = 4
    ACCEPT = 5
    TLS_HS = 6
    READ = 7
    WRITE = 8
    CLOSE = 9
    HTTP_HDRS = 10
    HTTP_MSG = 11
    WS_OPEN = 12
    WS_MSG = 13
    WS_CTL = 14
    MQTT_CMD = 15
    MQTT_MSG = 16
    MQTT_OPEN = 17
    SNTP_TIME = 18
    WAKEUP = 19
    USER = 23
    HTTP_BODY = 32
    DRAINED = 33


class UrlError(RuntimeError, ValueError):
    """A URL that cannot be listened on or connected to.

    >>> from dwell import Manager
    >>> with Manager() as manager:
    ...     manager.listen("http://127.0.0.1:99999")
    Traceback (most recent call last):
    ...
    dwell._events.UrlError: Failed to listen on 'http://127.0.0.1:99999': port is not a number \
from 0 to 65535: '99999'
    """
