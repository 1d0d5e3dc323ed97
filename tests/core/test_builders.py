"""Guarantees of the values that tests are built from."""

import msgspec
import pytest

from green_core.config import CarbonConfig
from green_core.testing import builders

every_builder = pytest.mark.parametrize(
    "build",
    [
        builders.engine_info,
        builders.queue_view,
        builders.request_view,
        builders.grid_view,
        builders.request_facts,
        builders.request_record,
        builders.interval_record,
    ],
    ids=lambda build: build.__name__,
)


@every_builder
def test_a_change_moves_its_own_field_and_no_other_name_is_taken(build):
    values = msgspec.structs.asdict(build())
    followed = {"energy_j", "intensity_g_per_kwh"}  # other fields follow these where they are first
    for name in values.keys() - followed:
        changed = object()
        assert msgspec.structs.asdict(build(**{name: changed})) == values | {name: changed}
    with pytest.raises(TypeError):
        build(no_such_field=1)


@every_builder
def test_defaults_have_the_types_that_their_fields_declare(build):
    value = build()
    assert msgspec.convert(msgspec.to_builtins(value), type(value)) == value


def test_the_energies_of_a_record_add_up_whatever_its_energy():
    for energy_j in (0.0, 0.1, 3600.0):
        record = builders.request_record(energy_j)
        assert record.prefill_j + record.decode_j == pytest.approx(energy_j)
        assert record.parts.it_j == pytest.approx(energy_j)


def test_the_state_of_the_grid_is_that_of_its_intensity():
    for intensity_g_per_kwh in (0.0, 200.0, 300.0):
        view = builders.grid_view(intensity_g_per_kwh)
        assert view.state is CarbonConfig().state(intensity_g_per_kwh)
