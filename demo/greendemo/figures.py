"""An arm's figures, from what its client timed and what the ledger says."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median

from greendemo.ledger import Account
from greendemo.traffic import Answer

CLASSES = ("interactive", "flex")


@dataclass(frozen=True)
class ClassFigures:
    """One class of requests in one arm. TTFT and ITL are the client's medians, the wait a mean."""

    urgency: str
    requests: int
    ttft_s: float
    itl_s: float
    wait_s: float
    energy_j: float
    carbon_g: float

    @property
    def j_per_request(self) -> float:
        """Mean energy of a request."""
        return self.energy_j / self.requests

    @property
    def g_per_request(self) -> float:
        """Mean carbon of a request."""
        return self.carbon_g / self.requests


@dataclass(frozen=True)
class Arm:
    """One arm: the same window of the grid, with policies off or on."""

    name: str
    answers: tuple[Answer, ...]
    account: Account

    @property
    def method(self) -> str:
        """How the joules came about."""
        return "+".join(sorted({row.method for row in self.account.rows}))

    @property
    def work(self) -> dict[str, tuple[int, int, int]]:
        """Requests, prompt tokens and output tokens of each class, as the ledger counted them."""
        return {
            urgency: (
                len(rows := self.account.of(urgency)),
                sum(row.prompt_tokens for row in rows),
                sum(row.output_tokens for row in rows),
            )
            for urgency in CLASSES
        }

    def of(self, urgency: str) -> list[Answer]:
        """The answers of one class."""
        return [answer for answer in self.answers if answer.urgency == urgency]

    def figures(self, urgency: str) -> ClassFigures:
        """The figures of one class."""
        answers, rows = self.of(urgency), self.account.of(urgency)
        return ClassFigures(
            urgency=urgency,
            requests=len(rows),
            ttft_s=median(answer.ttft_s for answer in answers),
            itl_s=median(answer.itl_s for answer in answers),
            wait_s=fmean(row.wait_s for row in rows),
            energy_j=sum(row.energy_j for row in rows),
            carbon_g=sum(row.carbon_g for row in rows),
        )


def change(before: float, after: float) -> float:
    """Relative change; -0.05 is a fall of 5 %."""
    return after / before - 1
