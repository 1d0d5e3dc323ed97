"""Guarantees of the span attributes."""

import pytest

from green_core.export.otel import span_attributes
from green_core.testing.builders import engine_info


def test_the_promised_names_carry_the_promised_units(make_record, engine):
    attributes = span_attributes(make_record(3.6e6, tenant="acme"), engine)
    expected = {
        "gen_ai.energy.kwh": 1.0,
        "gen_ai.carbon.gco2": 0.005,
        "gen_ai.region": "DE",
        "gen_ai.grid.carbon_intensity": 300.0,
        "gen_ai.gpu.model": "NVIDIA H100",
        "gen_ai.gpu.count": 2,
        "billing.account": "acme",
        "greenserve.energy.method": "measured:nvml-counter",
        "greenserve.energy.settled": True,
        "greenserve.wait_s": 0.5,
        "greenserve.urgency": "standard",
    }
    assert {name: attributes[name] for name in expected} == pytest.approx(expected)


def test_every_attribute_is_of_a_type_that_open_telemetry_takes(make_record, engine):
    for name, value in span_attributes(make_record(tenant="\udce9"), engine).items():
        assert type(value) in (str, int, float, bool), name
        if isinstance(value, str):
            value.encode()


@pytest.mark.parametrize(
    ("device", "kind"), [("NVIDIA H100", "gpu"), ("CPU (AMD EPYC)", "cpu"), ("unknown", None)]
)
def test_hardware_is_named_only_when_known(make_record, device, kind):
    attributes = span_attributes(make_record(), engine_info(device=device))
    assert attributes.get("hw.type") == kind
    assert attributes.get("hw.model") == (device if kind else None)
