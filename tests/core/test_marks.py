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
