"""Another engine process on the device of the metered server, without a model and a minute's boot.

    python neighbour.py LEDGER SECONDS

vLLM's own scheduler decodes without a pause for SECONDS; what it was given stands in LEDGER.
"""

from __future__ import annotations

import sys
import time

from harness import answer, green_scheduler, make_request


def work(ledger: str, seconds: float) -> None:
    """Serve one request after the other."""
    with green_scheduler({"energy.meter": "test_nvml", "ledger.path": ledger}) as scheduler:
        number = 0
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if not scheduler.has_requests():
                scheduler.add_request(make_request(f"r{number}", max_tokens=100))
                number += 1
            output = scheduler.schedule()
            time.sleep(0.01)  # the model's work
            scheduler.update_from_output(output, answer(scheduler, output))


if __name__ == "__main__":
    work(sys.argv[1], float(sys.argv[2]))
