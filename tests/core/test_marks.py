import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core import ConfigError, MarkError
from green_core.config import MarksConfig
from green_core.marks import MarkReader, Marks

READER = MarkReader(MarksConfig())


def test_headers_beat_fields_and_fields_beat_the_tier():
    headers = READER.from_headers([("X-Green-Tenant", "gateway")])
    fields = READER.from_fields({"green_tenant": "client", "green_deadline_s": 60})
    tier = READER.from_tier("flex")
    assert headers.over(fields).over(tier) == Marks("flex", 60.0, "gateway")


def test_a_deadline_alone_makes_a_request_flexible():
    assert READER.from_fields({"green_deadline_s": "30"}).urgency == "flex"


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf", "1e309", 10**400, None, {}])
def test_a_deadline_that_is_no_time_is_refused_by_name(value):
    with pytest.raises(MarkError, match="green_deadline_s"):
        READER.from_fields({"green_deadline_s": value})


@pytest.mark.parametrize("name", ["X-Green-Tenat", "x-green-deadline", "X-GREEN-"])
def test_an_unknown_header_of_ours_is_refused(name):
    with pytest.raises(MarkError, match="unknown header"):
        READER.from_headers([(name, "x")])


def test_a_header_given_twice_is_refused():
    with pytest.raises(MarkError, match="twice"):
        READER.from_headers([("x-green-tenant", "a"), ("X-Green-Tenant", "b")])


@given(st.text())
def test_a_tenant_is_printable_and_short_or_refused(text):
    try:
        tenant = READER.from_fields({"green_tenant": text}).tenant
    except MarkError:
        return
    assert tenant == text
    assert text.isprintable()
    assert 0 < len(text) <= 128


def test_only_allowed_marks_are_read():
    reader = MarkReader(MarksConfig(allow=("tenant",)))
    assert reader.from_tier("flex") == Marks()
    assert reader.from_fields({"green_class": "flex", "green_tenant": "a"}) == Marks(tenant="a")


def test_callers_are_told_by_address_or_key():
    digest = hashlib.sha256(b"secret").hexdigest()
    reader = MarkReader(MarksConfig(callers=("10.0.0.0/8", f"key:{digest}")))
    assert reader.may_mark("10.1.2.3", None)
    assert reader.may_mark("192.0.2.1", "secret")
    assert not reader.may_mark("192.0.2.1", "guess")
    assert not reader.may_mark(None, None)


@pytest.mark.parametrize(
    "marks",
    [
        MarksConfig(callers=("10.0.0.0/99",)),
        MarksConfig(callers=("key:zz",)),
        MarksConfig(default_tenant=""),
        MarksConfig(default_tenant="a\nb"),
    ],
)
def test_a_config_that_would_never_match_is_refused(marks):
    with pytest.raises(ConfigError, match=r"marks\."):
        MarkReader(marks)


@pytest.mark.parametrize(
    ("value", "stop"),
    [
        *((value, True) for value in ("on", "True", True, 1, 1.0)),
        *((value, False) for value in ("off", "false", False, 0, 0.0)),
    ],
)
def test_an_early_stop_is_asked_for_or_refused_in_any_usual_word(value, stop):
    assert READER.from_fields({"green_stop": value}).stop is stop
    assert READER.from_headers([("X-Green-Stop", str(value))]).stop is stop


@pytest.mark.parametrize("value", ["maybe", "", None, 2, [True]])
def test_an_early_stop_that_is_neither_is_refused_by_name(value):
    with pytest.raises(MarkError, match="green_stop"):
        READER.from_fields({"green_stop": value})


def test_a_gateway_that_refuses_early_stops_wins_and_who_says_nothing_asks_for_nothing():
    off = READER.from_headers([("X-Green-Stop", "off")])
    assert off.over(READER.from_fields({"green_stop": True})).stop is False
    assert READER.from_fields({}).stop is None


def test_an_early_stop_that_is_not_allowed_is_ignored():
    reader = MarkReader(MarksConfig(allow=("tenant",)))
    assert reader.from_headers([("X-Green-Stop", "on")]).stop is None
