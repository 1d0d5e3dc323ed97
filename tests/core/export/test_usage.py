"""Guarantees of ``usage.green`` and of the wire form."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from green_core.export.usage import from_wire, to_wire, usage_payload
from green_core.values import EarlyStop


def test_an_answer_of_one_request_says_what_its_record_says(make_record):
    record = make_record(12.5)
    assert usage_payload([record]) == {
        "energy_j": 12.5,
        "carbon_g": 0.005,
        "method": "measured:nvml-counter",
        "settled": True,
        "zone": "DE",
        "kind": "average",
        "basis": "lifecycle",
        "intensity_g_per_kwh": 300.0,
        "wait_s": 0.5,
        "uncertainty_ratio": 0.05,
    }


def test_an_answer_of_several_requests_adds_up(make_record):
    payload = usage_payload(
        [
            make_record(30.0, intensity_g_per_kwh=100.0, wait_s=2.0, settled=False),
            make_record(10.0, intensity_g_per_kwh=500.0, method="estimated"),
        ]
    )
    assert payload["energy_j"] == 40.0
    assert payload["carbon_g"] == 0.01
    assert payload["intensity_g_per_kwh"] == 200.0  # by energy, not the mean of the two
    assert payload["wait_s"] == 2.0
    assert payload["settled"] is False
    assert payload["method"] == "measured:nvml-counter+estimated"
    assert payload["zone"] == "DE"


def test_a_request_that_used_nothing_has_the_intensity_of_its_time(make_record):
    assert usage_payload([make_record(0.0)])["intensity_g_per_kwh"] == 300.0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(energies_j=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=5))
def test_numbers_are_finite_and_carry_six_digits(make_record, energies_j):
    payload = usage_payload([make_record(energy_j) for energy_j in energies_j])
    assert payload["energy_j"] == pytest.approx(sum(energies_j), rel=1e-5)
    assert len(f"{payload['energy_j']:e}".partition("e")[0].rstrip("0")) <= len("1.23456")
    assert json.loads(json.dumps(payload, allow_nan=False)) == payload


def test_no_records_are_refused():
    with pytest.raises(ValueError, match="no records"):
        usage_payload([])


def test_a_record_survives_the_wire(make_record):
    record = make_record(1 / 3, tenant='"\n\\🌍', settled=False)
    assert from_wire(json.loads(json.dumps(to_wire(record)))) == record


def test_the_wire_form_is_plain_builtins(make_record):
    def plain(value):
        if isinstance(value, dict):
            return all(type(key) is str and plain(inner) for key, inner in value.items())
        return value is None or type(value) in (str, int, float, bool)

    assert plain(to_wire(make_record()))


def test_keys_of_a_later_release_are_ignored(make_record):
    record = make_record()
    wire = to_wire(record) | {"new_field": 1}
    wire["parts"] |= {"network_j": 2.0}
    assert from_wire(wire) == record


def test_a_wire_form_that_lacks_a_field_is_refused(make_record):
    wire = to_wire(make_record())
    del wire["energy_j"]
    with pytest.raises(msgspec.ValidationError, match="energy_j"):
        from_wire(wire)


def test_an_error_nobody_states_is_left_out(make_record):
    known, unknown = make_record(uncertainty_ratio=0.1), make_record(uncertainty_ratio=None)
    assert usage_payload([known, make_record()])["uncertainty_ratio"] == 0.1
    assert "uncertainty_ratio" not in usage_payload([known, unknown])


def test_early_stops_add_up_and_those_in_shadow_are_not_shown(make_record):
    loop = EarlyStop("token_stop", "green:repetition", 100, 2.0)
    noise = EarlyStop("token_stop", "green:low_confidence", 50, 1.0)
    shadow = EarlyStop("token_stop", "green:repetition", 70, 9.0, shadow=True)
    stops = [loop, noise, shadow, None]
    payload = usage_payload([make_record(early_stop=stop) for stop in stops])
    assert payload["stopped_early"] == {
        "reason": "green:repetition+green:low_confidence",
        "saved_tokens": 150,
        "saved_j": 3.0,
        "method": "estimated:max_tokens",
    }
    assert "stopped_early" not in usage_payload([make_record(early_stop=shadow)])
    record = make_record(early_stop=loop)
    assert from_wire(json.loads(json.dumps(to_wire(record)))) == record
