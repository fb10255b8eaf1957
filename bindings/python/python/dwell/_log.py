"""The log of ``python -m dwell``: as a file has it, or lines on standard error."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import logging.config
import os
from typing import Any

from dwell._options import UsageError


def start(options: argparse.Namespace) -> None:
    """Configures logging.

    Raises:
        UsageError: For a file that is missing or wrong.
    """
    logger = logging.getLogger("dwell")
    if options.log_config:
        _configure(options.log_config)
        # A configuration that does not name it turns it off otherwise.
        logger.disabled = False
        if "log_level" in options.given:
            logger.setLevel(options.log_level.upper())
        return
    # The root logger is the application's: it configures that as if nothing had been before.
    logger.setLevel(options.log_level.upper())
    logger.propagate = False
    handler = logging.StreamHandler()
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(text, "%H:%M:%S"))
    logger.addHandler(handler)


def _configure(path: str) -> None:
    try:
        kind = os.path.splitext(path)[1].lower()
        if kind not in (".json", ".yaml", ".yml"):
            logging.config.fileConfig(path, disable_existing_loggers=False)
            return
        with open(path, encoding="utf-8") as file:
            config = json.load(file) if kind == ".json" else _yaml(path).safe_load(file)
        # Loggers that exist are only turned off where the file asks for it.
        config.setdefault("disable_existing_loggers", False)
        logging.config.dictConfig(config)
    except UsageError:
        raise
    except Exception as error:
        # Handlers are of any kind, and so are their mistakes.
        causes = [str(one) for one in (error, error.__cause__) if one is not None]
        raise UsageError(f"--log-config {path!r} is wrong: {': '.join(causes)}") from None


def _yaml(path: str) -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        text = f"--log-config {path!r} is YAML, which needs PyYAML: pip install pyyaml"
        raise UsageError(text) from None
