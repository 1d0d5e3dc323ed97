import msgspec
import pytest

from green_core.energy.combine import combine
from green_core.values import Meter, MeterReading


class Part:
    def __init__(self, name="a", method="measured:x", **options):
        self.reading = MeterReading(1.0, 1.0)
        self.closed = 0
        self.work_j = None
        self.meter = Meter(name, method, options.pop("period_s", 0.1), self._read, self._close)
        self.options = options

    def _read(self):
        return self.reading

    def _close(self):
        self.closed += 1

    def note_work(self, joules):
        self.work_j = joules

    @property
    def built(self):
        return msgspec.structs.replace(self.meter, **self.options)


def test_meters_are_added_up():
    one, two = Part("a"), Part("b", "measured:y", period_s=0.5)
    two.reading = MeterReading(2.0, 2.0)
    both = combine([one.built, two.built])
    assert both.read() == MeterReading(2.0, 3.0)
    assert (both.name, both.method, both.period_s) == ("a,b", "measured:x+measured:y", 0.5)
    both.close()
    assert (one.closed, two.closed) == (1, 1)


def test_one_meter_stays_as_it_is():
    meter = Part().built
    assert combine([meter]) is meter


def test_a_gap_of_one_is_a_gap_of_all():
    """FIELD E2: half of the devices is no sum."""
    one, two = Part("a"), Part("b")
    both = combine([one.built, two.built])
    two.reading = None
    assert both.read() is None


def test_a_value_of_another_method_says_so_for_the_sum():
    """FIELD E13."""
    one, two = Part("a", "measured:x"), Part("b", "measured:x")
    both = combine([one.built, two.built])
    assert both.read().method is None
    two.reading = MeterReading(2.0, 1.0, "measured:x(shared)")
    assert both.read().method == "measured:x+measured:x(shared)"


def test_a_new_beginning_of_one_is_told_once_even_behind_a_gap_of_another():
    """FIELD E17: the sum would hide that one of its counters fell."""
    one, two = Part("a"), Part("b")
    both = combine([one.built, two.built])
    both.read()
    one.reading, two.reading = MeterReading(2.0, 0.0, restarts=True), None
    assert both.read() is None
    two.reading = MeterReading(3.0, 9.0)
    assert both.read().restarts
    two.reading = MeterReading(4.0, 9.5)
    assert not both.read().restarts


def test_work_is_noted_and_the_rest_added_up_where_anybody_does():
    one = Part("a", rest_j=lambda: 3.0)
    two = Part("b", rest_j=lambda: 4.0)
    one.options["note_work"] = one.note_work
    both = combine([one.built, two.built])
    both.note_work(7.0)
    assert (one.work_j, both.rest_j()) == (7.0, 7.0)
    plain = combine([Part("a").built, Part("b").built])
    assert (plain.note_work, plain.rest_j) == (None, None)


@pytest.mark.parametrize(("errors", "expected"), [((0.05, 0.1), 0.1), ((0.05, None), None)])
def test_the_uncertainty_of_a_sum_is_known_when_all_are(errors, expected):
    parts = [Part(str(i), uncertainty_ratio=error) for i, error in enumerate(errors)]
    assert combine([part.built for part in parts]).uncertainty_ratio == expected
