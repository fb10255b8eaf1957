"""Dwell: servers that wait for nothing while their clients wait for news."""

from dwell._native import __version__

__all__ = ["__version__"]
