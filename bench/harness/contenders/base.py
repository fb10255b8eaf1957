"""What a contender is: something that can be started on a stage and asked for one path."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from harness.stage import HOST, Program, Stage
from harness.wrk import KeySpace

# What every contender answers with, or 13 bytes of its own.
BODY = b"Hello, World!"
HIT_PATH = "/poll/hello"
# Enough that two neighbours in a server's queue never ask for the same key.
HIT_KEYS = KeySpace("/poll/key-", 1000)
# Enough that a key comes back only long after its last answer: nothing to coalesce.
MISS_KEYS = KeySpace("/poll/absent-", 50_000)


@dataclass(frozen=True)
class Running:
    """A started contender: the program whose CPU counts, and what to ask it for.

    With `fields`, what is asked has a condition that holds for nothing newer.
    """

    program: Program
    port: int
    path: str
    keys: KeySpace | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address of one good answer."""
        path = self.keys.path(0) if self.keys is not None else self.path
        return f"http://{HOST}:{self.port}{path}"


class Contender(ABC):
    """One row of a table.

    Attributes:
        name: its name in results, targets and `--only`.
        label: its name for people.
        ours: whether it is a program of this project.
        traced: whether its system calls are counted.
        plotted: whether it is in the plot as well as in the table.
        note: what a reader of the row has to know.
    """

    name: str
    label: str
    ours: bool = False
    traced: bool = False
    plotted: bool = True
    note: str = ""

    @abstractmethod
    def start(self, stage: Stage) -> Running:
        """Starts everything it needs and waits until it is ready.

        Raises:
            ContenderError: a part did not start.
        """
