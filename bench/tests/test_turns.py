"""Reading the engine's own benchmark."""

import pytest

from harness import turns

PRINTED = """\
resident bytes per idle connection: 219
empty turn, nothing idle: 470ns
empty turn, 10000 idle: 450ns
turn with 10 requests, nothing idle: 44.7µs
turn with 10 requests, 10000 idle: 44.4µs
ratio: 0.993
wake-up to handler, median: 7.25µs
wake-up to handler, p99: 21µs
timer of 20 ms under poll(500), median: 30.2ms
timer of 20 ms under poll(500), most: 33.1ms
SIGTERM to the end of run, median: 170µs
SIGTERM to the end of run, most: 1.5s
"""


def test_what_it_prints_becomes_figures() -> None:
    figures = turns.parse(PRINTED)
    assert set(figures) == set(turns.FIGURES)
    assert figures["bytes_per_connection"] == 219
    assert figures["empty_turn_us"] == pytest.approx(0.47)
    assert figures["turn_ratio"] == 0.993
    assert figures["timer_most_ms"] == pytest.approx(33.1)
    assert figures["signal_most_ms"] == pytest.approx(1500)


def test_a_missing_figure_is_an_error() -> None:
    with pytest.raises(ValueError, match="ratio"):
        turns.parse(PRINTED.replace("ratio", "quotient"))
