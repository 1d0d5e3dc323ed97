"""The adapter contract: what every engine adapter guarantees, as tests to inherit.

An adapter states how its engine is driven by hand (:class:`EngineDouble`), subclasses
:class:`AdapterContract`, and runs all groups::

    class TestMyEngine(HoldingContract, DecisionContract, ExitContract, AccountingContract):
        def start(self, config, *, plugins, clock):
            return MyEngineDouble(config, plugins, clock)

The double is the real engine's scheduler with a scripted model behind it: what the contract says
about queues and slots must be true of the engine itself.
"""

from green_core.testing.contract.accounting import AccountingContract
from green_core.testing.contract.decisions import DecisionContract
from green_core.testing.contract.exits import ExitContract
from green_core.testing.contract.holding import HoldingContract
from green_core.testing.contract.kit import (
    NO_MARKS,
    AdapterContract,
    Answered,
    EngineDouble,
    Rig,
)

__all__ = [
    "NO_MARKS",
    "AccountingContract",
    "AdapterContract",
    "Answered",
    "DecisionContract",
    "EngineDouble",
    "ExitContract",
    "HoldingContract",
    "Rig",
]
