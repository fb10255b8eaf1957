import pytest

from harness import measure
from harness.contenders import Contender, Running
from harness.measure import Row, Sample
from harness.stage import ContenderError, Stage


class Fake(Contender):
    def __init__(self, name: str, fails: bool = False) -> None:
        self.name = name
        self.label = name
        self._fails = fails

    def start(self, stage: Stage) -> Running:  # noqa: ARG002
        if self._fails:
            raise ContenderError("it is not there")
        return Running(program=None, port=0, path=self.name)  # type: ignore[arg-type]


def test_contenders_go_in_turn_and_a_failed_one_keeps_its_row() -> None:
    order: list[str] = []

    def sample(running: Running, _: Row) -> Sample:
        order.append(running.path)
        return {"us_per_request": float(len(order))}

    rows = measure.in_turn([Fake("a"), Fake("broken", fails=True), Fake("b")], 3, sample)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert [row.median() for row in rows] == [{"us_per_request": 3}, {}, {"us_per_request": 4}]
    assert rows[1].problems == ["failed: it is not there"]


def test_median_is_of_each_number_and_leaves_the_rest_out() -> None:
    row = Row("x", "x", ours=True)
    row.samples = [
        {"us": 5.0, "requests": 30, "errors": {}},
        {"us": 9.0, "requests": 10, "errors": {}},
        {"us": 4.0, "requests": 20, "errors": {}},
    ]
    assert row.median() == {"us": 5.0, "requests": 20}
    assert row.as_dict()["median"] == row.median()


def test_a_problem_is_noted_once() -> None:
    row = Row("x", "x", ours=True)
    row.problem("short answers")
    row.problem("short answers")
    assert row.problems == ["short answers"]


@pytest.mark.parametrize("method", [measure.Method(), measure.QUICK])
def test_everything_is_bounded(method: measure.Method) -> None:
    assert 1 <= method.rounds <= 10
    assert method.seconds <= 30
    assert method.waiting_clients <= 10_000
