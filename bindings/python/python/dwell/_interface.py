"""Tells WSGI applications from those of ASGI."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any


class UnknownInterface(Exception):
    """An application that may be of either interface; the text says why."""


def interface_of(app: Any) -> str:
    """``"asgi"`` or ``"wsgi"``: by whether a call makes a coroutine, and by its parameters.

    Raises:
        UnknownInterface: When neither tells.
    """
    if _makes_coroutine(app):
        return "asgi"
    try:
        signature = inspect.signature(app)
    except (TypeError, ValueError):
        raise UnknownInterface("the parameters of its call cannot be seen") from None
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if names[:3] == ["scope", "receive", "send"]:
        return "asgi"
    if names[:1] in (["environ"], ["env"]) or "start_response" in names[1:2]:
        return "wsgi"
    takes = [count for count in (2, 3) if _can_take(signature, count)]
    if takes == [3]:
        return "asgi"
    if takes == [2]:
        return "wsgi"
    if _can_take(signature, 1) and not takes:
        raise UnknownInterface(
            f"it is called with one argument, {signature}; WSGI has two and ASGI 3 has three "
            "(ASGI 2 is not supported: see asgiref.compatibility)"
        )
    raise UnknownInterface(f"it is called as {signature}; WSGI has two arguments, ASGI three")


def _makes_coroutine(app: Any) -> bool:
    """Whether a call gives something that is awaited."""
    while isinstance(app, functools.partial):
        app = app.func
    if inspect.isclass(app):
        # An object of it is what a call gives.
        return hasattr(app, "__await__")
    # Some have a call of their own in the object, others only in the class.
    own = getattr(app, "__call__", None)  # noqa: B004
    of_class = getattr(type(app), "__call__", None)  # noqa: B004
    candidates = [app, own, of_class]
    return any(map(_is_coroutine_function, candidates))


def _is_coroutine_function(candidate: Any) -> bool:
    if candidate is None:
        return False
    # The mark of asgiref for functions that only return a coroutine, before CPython 3.12.
    mark = getattr(asyncio.coroutines, "_is_coroutine", None)
    is_marked = mark is not None and getattr(candidate, "_is_coroutine", None) is mark
    return is_marked or inspect.iscoroutinefunction(inspect.unwrap(candidate))


def _can_take(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
