"""The lifespan of an ASGI application: its own start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

logger = logging.getLogger("dwell")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Seconds that a task has to notice its cancellation.
MOMENT = 1.0
_ANSWERS = frozenset(
    f"lifespan.{step}.{outcome}"
    for step in ("startup", "shutdown")
    for outcome in ("complete", "failed")
)


class LifespanError(RuntimeError):
    """The application has refused to start."""


class Lifespan:
    """The application's own start and end.

    Args:
        app: The application.
        mode: ``"auto"``, ``"on"`` or ``"off"``. With ``"auto"``, an application that fails before
            it has received ``lifespan.startup`` supports no lifespan, which is logged; one that
            fails behind it has failed to start.
    """

    def __init__(self, app: Application, mode: str) -> None:
        if mode not in ("auto", "on", "off"):
            raise ValueError(f"lifespan is 'auto', 'on' or 'off': {mode!r}")
        self._app = app
        self._mode = mode
        self._task: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._has_received = False
        self._has_misspoken = False

    async def start(self) -> dict[str, Any] | None:
        """Starts the application; returns the state that its requests see.

        Raises:
            LifespanError: When the application refuses to start, or fails at it.
        """
        if self._mode == "off":
            return None
        state: dict[str, Any] = {}
        scope: Scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }
        await self._events.put({"type": "lifespan.startup"})
        self._task = asyncio.ensure_future(self._call(scope))
        answer = await self._answer(None)
        if answer is None:
            self._not_started()
            return None
        if answer["type"] == "lifespan.startup.failed":
            await self.abandon(MOMENT)
            raise LifespanError(f"the application has not started: {answer.get('message', '')}")
        return state

    async def end(self, seconds: float) -> None:
        """Lets the application end what it has started, within ``seconds``."""
        if self._task is None or self._task.done():
            return
        deadline = asyncio.get_running_loop().time() + seconds
        await self._events.put({"type": "lifespan.shutdown"})
        answer = await self._answer(seconds)
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            logger.error("the application has not ended well: %s", answer.get("message", ""))
        rest = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait({self._task}, timeout=rest)
        if not self._task.done():
            logger.error("the shutdown of the application has not ended within %g s", seconds)
        elif answer is None and (error := _error_of(self._task)) is not None:
            logger.error("the application has failed at its shutdown", exc_info=error)
        await self.abandon(MOMENT)

    async def abandon(self, seconds: float) -> None:
        """Cancels what the application is still doing, and gives it ``seconds`` to notice."""
        if self._task is not None and not self._task.done():
            await cancel({self._task}, seconds)

    def is_over(self) -> bool:
        """Whether the application has returned, or was never called."""
        return self._task is None or self._task.done()

    async def _call(self, scope: Scope) -> None:
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        event = await self._events.get()
        self._has_received = True
        return event

    async def _send(self, message: Message) -> None:
        if message["type"] not in _ANSWERS:
            self._has_misspoken = True
            raise RuntimeError(f"no message of a lifespan: {message['type']!r}")
        await self._answers.put(message)

    async def _answer(self, timeout: float | None) -> Message | None:
        """What the application answers; ``None`` where it returns, raises or is late instead."""
        assert self._task is not None
        answer = asyncio.ensure_future(self._answers.get())
        waits: set[asyncio.Future[Any]] = {answer, self._task}
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()

    def _not_started(self) -> None:
        """The application has ended without an answer: it has no lifespan, or has failed at it."""
        assert self._task is not None
        error = _error_of(self._task)
        has_failed = error is not None and self._has_received and not self._has_misspoken
        self._task = None
        if has_failed:
            logger.error("the application has failed at its start", exc_info=error)
            text = f"the application has failed at its start: {_line_of(error)}; "
            text += "if it has no lifespan, turn that off"
            raise LifespanError(text) from error
        if self._mode == "on":
            if error is not None:
                logger.error("the application has failed at its start", exc_info=error)
            raise LifespanError("the application knows no lifespan") from error
        if error is not None:
            logger.info("the application seems to know no lifespan: %s", _line_of(error))


async def cancel(tasks: set[asyncio.Task[None]], seconds: float) -> None:
    """Cancels tasks and waits for their end, but not for those that ignore it."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception()


def _line_of(error: BaseException | None) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
