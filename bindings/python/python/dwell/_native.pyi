from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, NoReturn, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "AsgiServer",
    "Connection",
    "FileWrapper",
    "HttpMessage",
    "Manager",
    "MemcacheClient",
    "MemcacheExchange",
    "MemcacheOperation",
    "MemcacheOperations",
    "MemcacheSecured",
    "Timer",
    "Tls",
    "TlsOpts",
    "WsMessage",
    "WsgiServer",
    "__version__",
]

__version__: str

_EventHandler: TypeAlias = Callable[[Connection, Any, Any], object]
_Headers: TypeAlias = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]
_Address: TypeAlias = tuple[str, int, bool]

@final
class Manager:
    """An event loop that you poll.

    It holds listeners, connections and timers, and does nothing but in `poll`: you say when, for
    how long, and on which thread. A handler is told what happens, as `handler(conn, event, data)`.

    One thread at a time uses a manager. From others only `wakeup`, `Timer.cancel` and what sends
    on a `Connection` may be called while one polls.

    Args:
        handler: Called for the events of every connection that has no handler of its own.
        enable_wakeup: Accepted for programs written for other packages; wake-ups always work.
        error_handler: Called with an `Exception` that has left a handler or a timer. Without one
            it is logged, as `dwell`, with its traceback. One that is no `Exception`, such as
            `KeyboardInterrupt`, is raised by `poll`.
        events: The only events to call handlers for; `CLOSE` always is. Each one left out is a
            call less.
        max_connections: Clients at once; more are closed as they come.
        max_requests_per_connection: Requests after which a connection closes.
        max_header_bytes: Bytes of a request's head; beyond them, 431.
        max_header_fields: Fields of a request's head; beyond them, 431.
        max_target_bytes: Bytes of a request's target; beyond them, 414.
        max_body_bytes: Bytes of a body, of a response on a client too; beyond them, 413. With
            `None`, no bound.
        max_message_bytes: Bytes of a WebSocket message; beyond them, it is closed with 1009.
        header_timeout: Seconds from the first byte of a head to its end; then 408.
        read_timeout: Seconds for a body, beside the time of its bytes at `min_body_rate`, and for
            any pause in it; then 408.
        min_body_rate: Bytes a second that a body has at least.
        write_timeout: Seconds for which a client may take nothing; then it is cut off.
        keep_alive_timeout: Seconds between two requests; then the connection closes.
        answer_timeout: Seconds from a request to an answer that comes after the handler; then 503.
        connect_timeout: Seconds for `connect` and `ws_connect`.
        close_timeout: Seconds for which `close` sends output that is queued.
        ping_interval: Seconds of silence before a WebSocket is pinged. With `None`, it never is.
        ping_timeout: Seconds from a ping to a sign of life; then it is cut off.
        h2c: HTTP/2 without TLS, to clients that begin with it (prior knowledge). Each stream is a
            connection of its own to the handler.
        http2: The same under TLS, to clients that choose it.

    Raises:
        TypeError: An option is unknown, or a value of another type.
        ValueError: A value is out of range.

    Example:
        >>> from dwell import Event, Manager
        >>> with Manager() as manager:
        ...     listener = manager.listen("http://127.0.0.1:0")
        ...     manager.poll(0)
        ...     listener.is_listening
        True
    """

    def __new__(
        cls,
        handler: _EventHandler | None = None,
        enable_wakeup: bool = False,
        error_handler: Callable[[Exception], object] | None = None,
        *,
        events: Iterable[int] | None = None,
        max_connections: int = 100_000,
        max_requests_per_connection: int = 100_000,
        max_header_bytes: int = 16_384,
        max_header_fields: int = 100,
        max_target_bytes: int = 8192,
        max_body_bytes: int | None = 4_194_304,
        max_message_bytes: int = 1_048_576,
        header_timeout: float = 10,
        read_timeout: float = 30,
        min_body_rate: int = 512,
        write_timeout: float = 30,
        keep_alive_timeout: float = 75,
        answer_timeout: float = 300,
        connect_timeout: float = 10,
        close_timeout: float = 1,
        ping_interval: float | None = 30,
        ping_timeout: float = 20,
        h2c: bool = False,
        http2: bool = False,
    ) -> Self: ...
    def listen(
        self,
        url: str,
        handler: _EventHandler | None = None,
        *,
        http: bool | None = None,
        tls: TlsOpts | None = None,
    ) -> Connection:
        """Listens on a URL: `http://`, `ws://` or `tcp://` and `host:port`, or `unix:///path` or
        `http+unix:///path`.

        Args:
            url: Where. A port of 0 takes a free one, which `local_addr` tells.
            handler: For this listener and the clients that come to it.
            http: Whether HTTP is spoken, where the scheme says otherwise.
            tls: The certificate and key for `https://` and `wss://`.

        Returns:
            The listener.

        Raises:
            UrlError: The URL cannot be used; it is both a `RuntimeError` and a `ValueError`.
            RuntimeError: The system does not let us, with its `OSError` as the cause; or the
                manager is closed.

        Example:
            >>> with Manager() as manager:
            ...     listener = manager.listen("http://127.0.0.1:0")
            ...     host, port, is_ipv6 = listener.local_addr
            >>> host, port > 0, is_ipv6
            ('127.0.0.1', True, False)
        """

    def connect(
        self,
        url: str,
        handler: _EventHandler | None = None,
        *,
        http: bool | None = None,
        tls: TlsOpts | None = None,
    ) -> Connection:
        """Starts to connect; `CONNECT`, or `ERROR` and `CLOSE`, follow in a poll.

        Args:
            url: As for `listen`.
            handler: For this connection.
            http: Whether HTTP is spoken, where the scheme says otherwise.
            tls: What is trusted with `https://` and `tls://`; without it, what the system trusts.

        Raises:
            UrlError: The URL cannot be used.
            RuntimeError: The system does not let us, or the manager is closed.
        """

    def ws_connect(
        self, url: str, handler: _EventHandler | None = None, *, tls: TlsOpts | None = None
    ) -> Connection:
        """Starts to connect as a WebSocket; `WS_OPEN`, or `ERROR` and `CLOSE`, follow in a poll.

        Raises:
            UrlError: The URL cannot be used.
            RuntimeError: The system does not let us, or the manager is closed.
        """

    def poll(self, timeout_ms: int = 0) -> None:
        """Waits once, and tells the handlers all that has happened.

        The wait ends at once for readiness, a wake-up, a timer that is due and a signal, so a long
        timeout makes nothing late. Other threads run while it waits.

        Args:
            timeout_ms: The longest wait in milliseconds; 0 for none, negative for no bound.

        Raises:
            RuntimeError: It runs already, or the manager is closed.
        """

    def run(self, poll_ms: int = 100) -> None:
        """Polls until SIGINT or SIGTERM comes or a handler closes the manager, then closes it.

        The signals have their former handlers again when it returns. On another than the main
        thread no signal is heard.

        Args:
            poll_ms: The timeout of each poll, which makes no difference to how soon it ends.

        Raises:
            RuntimeError: In a handler, and while another thread polls.
        """

    def wakeup(self, connection_id: int | None = None, data: Buffer | None = None) -> bool:
        """Ends the poll under way, or the next one at once; from any thread.

        Args:
            connection_id: The connection or listener whose handler is told `WAKEUP` with `data`.
                Without one, or with `wakeup_id`, the poll ends and nobody is told.
            data: Bytes of any number. Nothing is lost, cut or joined, and the order is kept.

        Returns:
            Whether the id can be one: `False` for 0, which a closed connection has. One that is
            gone gets nothing.

        Raises:
            BlockingIOError: A million wake-ups wait already.
            OverflowError: The id is negative.
            RuntimeError: The manager is closed.

        Example:
            >>> news = []
            >>> with Manager(lambda conn, event, data: news.append(data)) as manager:
            ...     listener = manager.listen("tcp://127.0.0.1:0")
            ...     news.clear()
            ...     delivered = manager.wakeup(listener.id, b"fresh")
            ...     manager.poll(0)
            ...     delivered, news
            (True, [b'fresh'])
        """

    def timer_add(
        self,
        milliseconds: int,
        callback: Callable[[], object],
        *,
        repeat: bool = False,
        run_now: bool = False,
    ) -> Timer:
        """Has `callback` called after a time, never early, and at most 20 ms and a turn late.

        Args:
            milliseconds: The time; 0 is due in the next poll.
            callback: Called without arguments, by `poll`.
            repeat: Whether it is called each time the time has passed.
            run_now: Whether it is called in the next poll. Without `repeat` that is all.

        Raises:
            ValueError: The time is negative.
            RuntimeError: The manager is closed.

        Example:
            >>> with Manager() as manager:
            ...     timer = manager.timer_add(10, lambda: print("due"))
            ...     while timer.active:
            ...         manager.poll(1000)
            due
        """

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All connections and listeners as they are now; none of a closed manager."""

    @property
    def wakeup_id(self) -> int:
        """An id that `wakeup` takes and no connection has."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll(0)` has something to tell, for other loops.

        They wait no longer than `wait_max`.

        Raises:
            RuntimeError: The manager is closed.
        """

    def wait_max(self) -> float | None:
        """Seconds until `poll(0)` is due although the descriptor is not readable.

        Returns:
            Nothing where only the descriptor tells.

        Raises:
            RuntimeError: The manager is closed.
        """

    def close(self) -> None:
        """Stops listening, lets out what is queued, for a second at most, and tells `CLOSE` to all.

        In a handler it is done when the poll ends. A second call does nothing.

        Raises:
            RuntimeError: Another thread polls.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> bool: ...
    def _wake_after_calls(self) -> None: ...

    # Not here; calling them says what there is instead.
    def mqtt_connect(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_listen(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def sntp_connect(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...

@final
class Connection:
    """A connection or a listener.

    The object is the same for as long as the program has it; a connection that nobody looks at has
    none. What is called in a handler on its own connection is done at once, on others when the
    handler has returned, and from other threads by the next poll.
    """

    @property
    def id(self) -> int:
        """Its number, above 0 and never given out again; 0 when it is closed."""

    @property
    def handler(self) -> _EventHandler | None:
        """The handler it has of its own."""

    def set_handler(self, handler: _EventHandler | None) -> None:
        """Gives it, and on a listener the clients to come, a handler of its own; `None` the
        manager's.
        """

    @property
    def userdata(self) -> Any:
        """A value of the program's, kept as long as the connection."""

    @userdata.setter
    def userdata(self, value: Any) -> None: ...
    @property
    def local_addr(self) -> _Address | None:
        """Our `(host, port, is_ipv6)`; nothing on a unix socket, or when it is closed."""

    @property
    def remote_addr(self) -> _Address | None:
        """The peer's; nothing for a listener, too."""

    @property
    def is_listening(self) -> bool:
        """Whether it is a listener."""

    @property
    def is_client(self) -> bool:
        """Whether it is outbound."""

    @property
    def is_websocket(self) -> bool:
        """Whether it speaks WebSocket."""

    @property
    def is_tls(self) -> bool:
        """Whether it is under TLS."""

    @property
    def peer_certificates(self) -> tuple[bytes, ...]:
        """Certificates that the client has shown, in DER, its own first; see :class:`TlsOpts`."""

    @property
    def is_udp(self) -> bool:
        """False: there is no UDP."""

    @property
    def is_readable(self) -> bool:
        """Whether `recv_data` has something."""

    @property
    def is_writable(self) -> bool:
        """Whether it takes output."""

    @property
    def is_full(self) -> bool:
        """Whether so much output waits for the peer that no more is taken."""

    @property
    def is_closing(self) -> bool:
        """Whether it is closed, or will be when what is queued is out."""

    @property
    def is_draining(self) -> bool:
        """Whether it closes after the answer that is owed."""

    @property
    def recv_len(self) -> int:
        """Bytes that `recv_data` has."""

    @property
    def recv_size(self) -> int:
        """As `recv_len`."""

    @property
    def send_len(self) -> int:
        """Bytes of output that wait for the peer."""

    @property
    def send_size(self) -> int:
        """As `send_len`."""

    def recv_data(self, length: int = -1) -> bytes:
        """In `READ` of a raw connection: the bytes that have come.

        They are used up when the handler returns, but for those that `keep` keeps.
        """

    def send_data(self, length: int = -1) -> bytes:
        """Nothing: output that is queued cannot be had back."""

    def keep(self, length: int) -> None:
        """In `READ`: has the last `length` bytes handed out again with the next ones."""

    def send(self, data: str | Buffer) -> None:
        """Sends bytes; on HTTP they are the answer, status line and all, or a piece of it.

        Raises:
            BlockingIOError: So much output waits that nothing was taken; go on at `DRAINED`.
            RuntimeError: The connection is closed, or nothing can be sent on it now.
        """

    def reply(
        self, status_code: int, body: str | Buffer | None = None, headers: _Headers | None = None
    ) -> None:
        """Answers the request.

        `Date`, `Content-Length` and `Connection` are seen to; a body without `Content-Type` is
        text. With `Transfer-Encoding: chunked`, or with `Content-Type: text/event-stream` and no
        body, the answer is only begun: `http_chunk` or `http_sse` go on.

        Args:
            status_code: From 200 to 599.
            body: Sent as UTF-8 where it is text.
            headers: A mapping, or pairs where a name comes twice.

        Raises:
            ValueError: A header would break the head, or the status is out of range.
            RuntimeError: The connection is closed, or no request waits for an answer.
        """

    def reply_json(
        self, data: Any, status_code: int = 200, headers: _Headers | None = None
    ) -> None:
        """Answers the request with what `json.dumps` makes of `data`."""

    def http_begin(
        self, status_code: int = 200, headers: _Headers | None = None, length: int | None = None
    ) -> None:
        """Begins an answer that `http_chunk` goes on with: of this length, or in chunks."""

    def http_chunk(self, data: str | Buffer) -> None:
        """Sends a piece of the answer that was begun; an empty one ends it.

        Raises:
            BlockingIOError: So much output waits that nothing was taken; go on at `DRAINED`.
            RuntimeError: The connection is closed, or no answer is open.
        """

    def http_sse(
        self,
        event_type: str,
        data: str,
        *,
        id: str | None = None,  # noqa: A002 - the name of the format
        retry: int | None = None,
    ) -> None:
        """Sends a server-sent event, and begins the stream where no answer was begun.

        Args:
            event_type: Its type; empty for none.
            data: Its text, of any number of lines.
            id: What a client that comes back says it has seen.
            retry: Milliseconds after which a client comes back.
        """

    def http_request(
        self,
        method: str,
        target: str,
        headers: _Headers | None = None,
        body: str | Buffer | None = None,
    ) -> None:
        """On an outbound HTTP connection: sends a request, whose answer is `HTTP_MSG`."""

    def http_basic_auth(self, username: str, password: str) -> None:
        """On an outbound connection: sends an `Authorization` line of a request's head."""

    def serve_dir(
        self,
        message: HttpMessage,
        root_dir: str | PathLike[str],
        extra_headers: str = "",
        mime_types: str = "",
        page404: str = "",
    ) -> None:
        """Answers the request with what its path names beneath a directory, and nothing outside.

        Args:
            message: The request, in its handler.
            root_dir: The directory. Ranges and conditions are seen to; one without `index.html`
                is listed.
            extra_headers: Lines `Name: value`, each with CR LF.
            mime_types: Types of extensions, as `foo=application/x-foo,bar=text/plain`.
            page404: A file for what is not there.

        Raises:
            ValueError: The message's handler has returned, or a header would break the head.
        """

    def serve_file(
        self,
        message: HttpMessage,
        path: str | PathLike[str],
        extra_headers: str = "",
        mime_types: str = "",
    ) -> None:
        """Answers the request with a file, as `serve_dir` does."""

    def ws_upgrade(
        self,
        message: HttpMessage,
        extra_headers: _Headers | None = None,
        *,
        subprotocols: list[str] = ...,
        check_origin: bool = True,
    ) -> None:
        """Upgrades the connection to WebSocket; `WS_OPEN` follows.

        A handshake that is not one is answered, with 400, 403 or 426.

        Args:
            message: The request, in its handler.
            extra_headers: For the answer.
            subprotocols: Those that are spoken, the preferred one first.
            check_origin: Whether pages of other hosts are refused.

        Raises:
            ValueError: The message's handler has returned, or a header would break the head.
        """

    def ws_send(self, data: str | Buffer, op: int = 1) -> None:
        """Sends a WebSocket message, or a control frame.

        Args:
            data: Its payload.
            op: `WEBSOCKET_OP_TEXT`, `_BINARY`, `_PING`, `_PONG` or `_CLOSE`.

        Raises:
            BlockingIOError: So much output waits that nothing was taken; go on at `DRAINED`.
            ValueError: Text that is not UTF-8, or an opcode or payload that cannot be.
            RuntimeError: The connection is closed, or no WebSocket.
        """

    def ws_close(self, code: int = 1000, reason: str = "") -> None:
        """Closes a WebSocket in order.

        Raises:
            ValueError: The code may not be sent (RFC 6455 section 7.4).
        """

    def stream_body(self, length_max: int) -> None:
        """In `HTTP_HDRS`: has the body told in pieces, by `HTTP_BODY`; an empty one is the end."""

    def pause(self) -> None:
        """Reads no more for now, so that the peer's sending is held back."""

    def resume(self) -> None:
        """Reads again."""

    def set_poll_events(self, wanted: bool) -> None:
        """Has `POLL` told at the end of every poll; on a listener to the clients to come, too."""

    def drain(self) -> None:
        """Closes it after the answer that is owed; one that was begun ends with what was sent.

        What is queued goes out first, and nothing more is served.
        """

    def close(self) -> None:
        """Closes it when what is queued is out."""

    def abort(self) -> None:
        """Ends it; what is queued is lost."""

    def error(self, message: str) -> None:
        """Has `ERROR` told with this text, and ends it."""

    # Not here; calling them says what there is instead.
    def mqtt_disconnect(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_ping(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_pong(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_pub(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_sub(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def mqtt_unsub(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def resolve(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def resolve_cancel(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def sntp_request(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def tls_free(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...
    def tls_init(self, *_arguments: Any, **_keywords: Any) -> NoReturn: ...

@final
class HttpMessage:
    """A request, or on a client a response.

    It is valid while its handler runs, on the same thread; afterwards it is false and empty.
    """

    def __new__(cls) -> Self: ...
    @property
    def method(self) -> str:
        """The method; empty for a response."""

    @property
    def uri(self) -> str:
        """The path, as it came."""

    @property
    def query(self) -> str:
        """What follows the `?`, as it came."""

    @property
    def proto(self) -> str:
        """`HTTP/1.1` or `HTTP/1.0`."""

    @property
    def body_bytes(self) -> bytes:
        """The body."""

    @property
    def body_text(self) -> str:
        """The body as UTF-8; what is not becomes surrogates, as `surrogateescape` does."""

    def header(self, name: str, default: str | None = None) -> str | None:
        """The value of the first header of that name, in any case."""

    def headers(self) -> list[tuple[str, str]]:
        """Every header as (name, value), in the order they came."""

    def query_var(self, name: str) -> str | None:
        """The decoded value of a query variable; nothing where it is not there or empty.

        Raises:
            ValueError: It has more than 2048 bytes.
        """

    def status(self) -> int | None:
        """The status of a response; 0 of a request."""

    def header_var(self, header_name: str, var_name: str) -> str | None:
        """A parameter of a header's value, such as `charset` of `Content-Type`."""

    def __bool__(self) -> bool: ...

@final
class WsMessage:
    """A WebSocket message or control frame, valid as `HttpMessage` is."""

    def __new__(cls) -> Self: ...
    @property
    def data(self) -> bytes:
        """The payload."""

    @property
    def text(self) -> str:
        """The payload as UTF-8; what is not becomes surrogates."""

    @property
    def flags(self) -> int:
        """The first byte of a frame that carries it whole: `flags & 15` is the opcode."""

    def __bool__(self) -> bool: ...

@final
class Timer:
    """A timer, to cancel it; dropping it does not."""

    def cancel(self) -> None:
        """Ends it, from any thread; a second call does nothing."""

    @property
    def active(self) -> bool:
        """Whether it will ring again."""

@final
class TlsOpts:
    """Certificates of a listener under TLS, or what a connection trusts.

    Args:
        ca: The certificates that a connection trusts, in place of those of the system. Of a
            listener, the authorities that issue certificates of clients: those without such a
            certificate are refused.
        cert: The certificate of a listener, with those that vouch for it; or one that a connection
            shows to servers that ask for it.
        key: Its private key; without it, `cert` has both.
        name: The name that the certificate of a server has to be for; without it, the host of the
            URL.
        skip_verification: Not supported; give `ca` instead.

    Each is PEM, as text or bytes, or the name of a file.

    Raises:
        TypeError, ValueError: For what cannot be used.
    """

    def __new__(
        cls,
        ca: str | bytes | PathLike[str] | None = None,
        cert: str | bytes | PathLike[str] | None = None,
        key: str | bytes | PathLike[str] | None = None,
        name: str | None = None,
        skip_verification: bool = False,
    ) -> TlsOpts: ...
    def reload(self) -> None:
        """Reads the files again, for clients that come from now on.

        Raises:
            ValueError: When they cannot be used; the certificate before is used still.
        """

@final
class Tls:
    """The certificates of a server under TLS, and which ones it asks clients for.

    Processes that are forked later share its tickets, so that clients resume their sessions there.

    Raises:
        ValueError: When a file cannot be used; its text names the file and the reason.
    """

    def __new__(
        cls,
        certfile: str,
        keyfile: str | None = None,
        ca_certs: str | None = None,
        cert_reqs: int | None = None,
    ) -> Tls: ...
    def reload(self) -> None:
        """Reads the files again, for clients that connect from now on.

        Raises:
            ValueError: When a file cannot be used; the certificate before is used still.
        """

@final
class WsgiServer:
    """A WSGI server; see :class:`dwell.wsgi.Server`."""

    def __new__(
        cls,
        app: Any,
        sockets: list[tuple[int, bool]],
        base: dict[str, Any],
        report: Callable[[BaseException, dict[str, Any] | None], object],
        *,
        parallel: bool = False,
        **options: Any,
    ) -> WsgiServer: ...
    def work(self) -> None:
        """Serves on the calling thread until the server ends."""
    def progress(self) -> tuple[int, int]:
        """Requests that wait for a thread, and those that threads have taken so far."""
    def drain(self) -> None:
        """Stops accepting; ends when every client has its answer."""
    def stop(self) -> None:
        """Ends at once."""
    def wait(self, seconds: float) -> bool:
        """Waits until the loop has ended; whether it has."""

@final
class FileWrapper:
    """A file as the iterable of an answer; ``wsgi.file_wrapper``.

    Returned by an application as it is, a regular file is sent by the kernel from where it stands;
    anything else with ``read`` is sent block by block.
    """

    def __new__(cls, filelike: Any, block_size: int = 65536, /) -> FileWrapper: ...
    def __iter__(self) -> FileWrapper: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None:
        """Closes the file, if it can be closed."""

@final
class AsgiServer:
    """An ASGI server on a loop of asyncio; see :class:`dwell.asgi.Server`."""

    def __new__(
        cls,
        event_loop: Any,
        start: Callable[[dict[str, Any], Any], None],
        sockets: list[tuple[int, bool]],
        scopes: tuple[dict[str, Any], dict[str, Any]],
        state: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsgiServer: ...
    def fileno(self) -> int:
        """The descriptor that is readable when a turn has something to do."""
    def turn(self) -> None:
        """Delivers what has happened; never waits."""
    def due(self) -> None:
        """Delivers what a timer was set for."""
    def flush_heads(self) -> None:
        """Sends the heads of answers whose body has not come with them."""
    def drain(self, drained: Any) -> None:
        """Stops accepting; the future is resolved when every client is gone."""
    def close(self) -> None:
        """Cuts off every client that is left."""
    def connections(self) -> int:
        """Connections that are open."""

class MemcacheClient:
    """What :class:`dwell.memcache.Client` inherits."""

    def __new__(
        cls,
        servers: str | tuple[str, int] | list[str | tuple[str, int]],
        *,
        timeout: float | None = 0.5,
        connect_timeout: float = 0.25,
        serde: Any | None = None,
        key_prefix: bytes | str | None = None,
        default_noreply: bool = False,
        ignore_exc: bool = False,
        allow_unicode_keys: bool = False,
        max_pool_size: int = 8,
        max_value_bytes: int = 1048576,
        distribution: str = "ketama_weighted",
        failover: bool = False,
        long_keys: str = "refuse",
        tls: bool = False,
        tls_ca: str | PathLike[str] | None = None,
        tls_server_name: str | None = None,
        tls_certificate: str | PathLike[str] | None = None,
        tls_key: str | PathLike[str] | None = None,
        tls_context: None = None,
    ) -> Self: ...
    def get(self, key: str | bytes, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
    def gets(
        self, key: str | bytes, default: Any = None, cas_default: int | None = None
    ) -> tuple[Any, int | None]:
        """The value of a key and its cas unique, for :meth:`cas`."""
    def gat(self, key: str | bytes, expire: int = 0, default: Any = None) -> Any:
        """The value of a key, which expires anew."""
    def gats(
        self,
        key: str | bytes,
        expire: int = 0,
        default: Any = None,
        cas_default: int | None = None,
    ) -> tuple[Any, int | None]:
        """As :meth:`gat`, with the cas unique; needs memcached 1.6."""
    def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of those keys that are there."""
    def gets_many(self, keys: Iterable[Any]) -> dict[Any, tuple[Any, int]]:
        """As :meth:`get_many`, with cas uniques."""
    def set(
        self,
        key: str | bytes,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value; ``expire`` are seconds, or a Unix time beyond 30 days, or 0 for never."""
    def set_many(
        self,
        values: dict[Any, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Any]:
        """Stores many values in one go; returns the keys for which that failed."""
    def add(
        self,
        key: str | bytes,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value where there is none."""
    def replace(
        self,
        key: str | bytes,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value where there is one."""
    def append(
        self,
        key: str | bytes,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Adds to the end of a value."""
    def prepend(
        self,
        key: str | bytes,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Adds to the beginning of a value."""
    def cas(
        self,
        key: str | bytes,
        value: Any,
        cas: int | str | bytes,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value if it has not changed since :meth:`gets`; ``None`` if it is gone."""
    def delete(self, key: str | bytes, noreply: bool | None = None) -> bool:
        """Deletes a key; whether there was one."""
    def delete_many(self, keys: Iterable[Any], noreply: bool | None = None) -> bool:
        """Deletes many keys in one go."""
    def incr(self, key: str | bytes, value: int, noreply: bool = False) -> int | None:
        """Counts up; ``None`` if there is no such key."""
    def decr(self, key: str | bytes, value: int, noreply: bool = False) -> int | None:
        """Counts down, not below 0; ``None`` if there is no such key."""
    def touch(self, key: str | bytes, expire: int = 0, noreply: bool | None = None) -> bool:
        """Lets a key expire anew; whether there is one."""
    def stats_by_server(self, argument: str | None = None) -> dict[str, dict[str, str]]:
        """What each server tells of itself."""
    def version_by_server(self) -> dict[str, str]:
        """The version of each server."""
    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Deletes everything on every server, after ``delay`` seconds."""
    def raw_command(self, command: str | bytes, end_tokens: str | bytes | None = None) -> bytes:
        """Sends a command line; returns the reply up to ``end_tokens``, without them.

        The client adds the end of the line; the end of a line is also what the reply ends with
        unless told otherwise. It is an error where the server answers one, or the client has
        several servers.
        """
    def server_of(self, key: str | bytes) -> int:
        """The server that has the place of a key, as its number in the list."""
    def __getitem__(self, key: str | bytes, /) -> Any: ...
    def __setitem__(self, key: str | bytes, value: Any, /) -> None: ...
    def __delitem__(self, key: str | bytes, /) -> None: ...

@final
class MemcacheExchange:
    """One request of :class:`dwell.memcache.AsyncClient` to one server."""

    @property
    def server(self) -> int:
        """The number of the server to be asked."""
    @property
    def request(self) -> bytes:
        """The bytes of the request."""
    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent or received."""
    @property
    def keeps_connection(self) -> bool:
        """Whether its connection may carry another exchange."""
    def receive(self, data: bytes) -> bool:
        """Takes what the server has sent; whether more is to come on this connection."""
    def time_out(self, written: bool) -> None:
        """Ends it because the time is over."""
    def close(self, is_used: bool, written: bool) -> None:
        """Takes that the connection has ended; it is over, or to be begun again."""
    def refuse(self, reason: str, is_lookup: bool) -> None:
        """Takes that no connection could be made."""
    def fail(self, secured: MemcacheSecured, written: bool) -> None:
        """Takes that TLS of its connection has failed."""

@final
class MemcacheSecured:
    """TLS of one connection of :class:`dwell.memcache.AsyncClient`."""

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is over."""
    @property
    def is_ended(self) -> bool:
        """Whether the server sends no more."""
    def transmit(self) -> bytes:
        """What is to be sent, once."""
    def receive(self, data: bytes) -> bytes | None:
        """Takes what the server has sent; the data in it, or ``None`` after a fault."""
    def seal(self, exchange: MemcacheExchange) -> bool:
        """Takes the request of an exchange; ``False`` after a fault."""
    def close(self) -> None:
        """Has the server told that nothing more is sent."""

@final
class MemcacheOperation:
    """An operation of :class:`dwell.memcache.AsyncClient`."""

    @property
    def exchanges(self) -> tuple[MemcacheExchange, ...]:
        """Its exchanges, which may be carried out at the same time."""
    def result(self) -> Any:
        """Its result, once."""

@final
class MemcacheOperations:
    """Prepares the operations of :class:`dwell.memcache.AsyncClient`."""

    def __new__(cls, client: MemcacheClient) -> Self: ...
    def addresses(self) -> list[tuple[str, int] | str]:
        """Where the servers are: a pair of host and port, or a path."""
    def could_not_connect(self, server: int) -> None:
        """Notes that a server could not be reached."""
    def secure(self, server: int) -> MemcacheSecured | None:
        """Begins TLS of a connection to a server; ``None`` for plaintext."""
    def get(self, key: Any, default: Any) -> MemcacheOperation: ...
    def gets(self, key: Any, default: Any, cas_default: int | None) -> MemcacheOperation: ...
    def gat(self, key: Any, expire: int, default: Any) -> MemcacheOperation: ...
    def gats(
        self, key: Any, expire: int, default: Any, cas_default: int | None
    ) -> MemcacheOperation: ...
    def get_many(self, keys: Iterable[Any], with_cas: bool) -> MemcacheOperation: ...
    def store(
        self,
        verb: str,
        key: Any,
        value: Any,
        expire: int,
        noreply: bool | None,
        flags: int | None,
    ) -> MemcacheOperation: ...
    def cas(
        self,
        key: Any,
        value: Any,
        cas: Any,
        expire: int,
        noreply: bool,
        flags: int | None,
    ) -> MemcacheOperation: ...
    def set_many(
        self, values: dict[Any, Any], expire: int, flags: int | None
    ) -> MemcacheOperation: ...
    def delete(self, key: Any, noreply: bool | None) -> MemcacheOperation: ...
    def delete_many(self, keys: Iterable[Any]) -> MemcacheOperation: ...
    def count(self, key: Any, delta: int, is_down: bool, noreply: bool) -> MemcacheOperation: ...
    def touch(self, key: Any, expire: int, noreply: bool | None) -> MemcacheOperation: ...
    def stats_by_server(self, argument: str | None) -> MemcacheOperation: ...
    def version_by_server(self) -> MemcacheOperation: ...
    def flush_all(self, delay: int) -> MemcacheOperation: ...
    def raw_command(self, command: Any, end_tokens: Any) -> MemcacheOperation: ...
