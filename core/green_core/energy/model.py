"""The step model: what an engine step costs, and whose cost it is.

``E = P_static * t + e_flop * FLOPs + e_byte * bytes``, with per request in the step

* FLOPs: 2 per active parameter and token, and 4 * hidden * layers per token and attended token;
* bytes: the weights once per step, the request's KV read once and its new KV written.

How shared costs are split:

* **Weights** are read once however many requests take part, and each of them needs all of it.
  They are split equally per request: the only split of such a cost that treats equals alike and
  charges nobody more than being alone (Shapley). By tokens, a long prefill would pay for the
  weights of every decode that rides along.
* **Static** energy is paid for the time the step takes, and a request lengthens the step by the
  work it adds. It is split by each request's part of the dynamic energy.
"""

from __future__ import annotations

import msgspec

from green_core.energy.devices import DeviceModel
from green_core.values import EngineInfo, StepView

_VANISHING_J = 1e-30


class StepCost(msgspec.Struct):
    """Modelled energy of a step, in joules.

    ``compute_j`` and ``memory_j`` hold one value per share, in the step's order; the static
    part of share ``i`` is ``static_per_dynamic * (compute_j[i] + memory_j[i])``, and all of
    ``static_j`` belongs to nobody when there are no shares.
    """

    compute_j: list[float]
    memory_j: list[float]
    dynamic_j: float
    static_j: float
    static_per_dynamic: float

    @property
    def total_j(self) -> float:
        """Energy of the whole step."""
        return self.dynamic_j + self.static_j

    def share_j(self, index: int) -> tuple[float, float, float]:
        """``(compute, memory, static)`` of one share."""
        compute, memory = self.compute_j[index], self.memory_j[index]
        return compute, memory, self.static_per_dynamic * (compute + memory)


class StepModel:
    """Prices engine steps for one device model and one served model. Pure and stateless."""

    def __init__(self, device: DeviceModel, engine: EngineInfo) -> None:
        self.device = device
        self.method = device.method
        self.embodied_g = device.embodied_g  # per device; None: not published
        self.uncertainty_ratio = device.uncertainty_ratio  # None: nobody knows
        self.static_w = device.static_w * max(1, engine.device_count)
        self.max_w = device.max_w * max(1, engine.device_count)
        self._token_j = 2.0 * engine.parameters * device.flop_j
        self._attention_j = 4.0 * engine.hidden_size * engine.num_layers * device.flop_j
        # Never quite zero, so that the static part has something to be split by even when all
        # dynamic constants are zero by config.
        self._weights_j = max(engine.weight_bytes * device.byte_j, _VANISHING_J)
        self._kv_j = engine.kv_bytes_per_token * device.byte_j

    def price(self, step: StepView) -> StepCost:
        """Cost of ``step``. A clock that ran backwards counts as no time at all."""
        static_j = self.static_w * max(0.0, step.end_s - step.start_s)
        shares = step.shares
        if not shares:
            return StepCost([], [], 0.0, static_j, 0.0)
        token_j, attention_j, kv_j = self._token_j, self._attention_j, self._kv_j
        weights_j = self._weights_j / len(shares)
        compute_j: list[float] = []
        memory_j: list[float] = []
        for share in shares:
            tokens = share.prefill_tokens + share.decode_tokens
            context = share.context_tokens
            # The last token attends to the whole context, each one before it to one less.
            attended = context - 0.5 * (tokens - 1)
            if attended < 0.0:  # inconsistent share  # noqa: PLR1730 - max() costs 60 ns more
                attended = 0.0
            compute_j.append(tokens * (token_j + attention_j * attended))
            memory_j.append(weights_j + kv_j * (context + tokens))
        dynamic_j = sum(compute_j) + sum(memory_j)
        return StepCost(compute_j, memory_j, dynamic_j, static_j, static_j / dynamic_j)

    def prefill_j(self, tokens: int) -> float:
        """Dynamic energy of prefilling ``tokens`` from an empty context.

        For the energy that cached tokens save: without weights and static power, which the
        rest of the batch would have paid anyway, so it errs on the low side.
        """
        if tokens <= 0:
            return 0.0
        attended = 0.5 * (tokens + 1)
        return tokens * (self._token_j + self._attention_j * attended + 2.0 * self._kv_j)
