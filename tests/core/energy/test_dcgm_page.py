"""The page of a DCGM exporter, in all its shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy import dcgm_page
from green_core.energy.dcgm_page import ENERGY, POWER, fetch_page, parse_page
from green_core.testing.dcgm import DcgmBoard, DcgmDouble


def page(*lines):
    return "".join(f"{line}\n" for line in lines)


def line(value, *, metric=ENERGY, gpu=0, more=""):
    return f'{metric}{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="H100",Hostname="a"{more}}} {value}'


def test_energy_is_millijoules_and_power_watts():
    found = parse_page(
        page(
            f"# HELP {ENERGY} Total energy consumption since boot (in mJ).",
            f"# TYPE {ENERGY} counter",
            line(257858316),
            line(187554325, gpu=1),
            f"# TYPE {POWER} gauge",
            line(58.643000, metric=POWER),
            line(99, metric=f"{POWER}_INSTANT", gpu=7),
        )
    )
    assert found["GPU-0"].energy_j == pytest.approx(257858.316)
    assert found["GPU-0"].power_w == pytest.approx(58.643)
    assert (found["GPU-1"].power_w, found["GPU-1"].index) == (None, "1")
    assert set(found) == {"GPU-0", "GPU-1"}


def test_a_board_is_counted_once_however_many_slices_and_pods_share_it():
    """FIELD E5, E8: the exporter repeats the board's value for each of them."""
    with DcgmDouble(
        [DcgmBoard("GPU-a", slices=((3, "2g.20gb"), (5, "2g.20gb")), pods=("one", "two"))]
    ) as exporter:
        found = fetch_page(exporter.url)
    assert [(b.energy_j, b.has_slices) for b in found.values()] == [(1000.0, True)]


@pytest.mark.parametrize(
    "value", ["NaN", "+Inf", "-5", "9223372036854775794", "9223372036854775792"]
)
def test_a_value_that_is_none_is_none(value):
    """FIELD E2, E11: DCGM marks what it does not know by numbers near the end of the range."""
    found = parse_page(page(line(value), line("140737488355328.000000", metric=POWER)))
    assert (found["GPU-0"].energy_j, found["GPU-0"].power_w) == (None, None)


def test_a_value_after_an_unknown_one_of_the_same_board_counts():
    assert parse_page(page(line("NaN"), line(5000), line(6000)))["GPU-0"].energy_j == 5.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null\n",
        "<html><body>Log in</body></html>\n",
        page("# TYPE DCGM_FI_DEV_GPU_TEMP gauge", 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 41'),
        page(f'{ENERGY}{{gpu="0"}} 12'),  # without a UUID
        page(line("twelve")),
        page(line(1))[:-1],  # it may go on with more digits
        page(line(1))[:-9] + "\n",
    ],
)
def test_what_is_no_whole_page_is_refused(text):
    """FIELD E17: half a page is a gap, never half a number."""
    with pytest.raises(ValueError, match="."):
        parse_page(text)


@given(st.text() | st.integers(0, 200).map(lambda cut: page(line(123456), line(7, gpu=1))[:cut]))
def test_no_page_breaks_the_parser_or_yields_a_value_it_does_not_show(text):
    try:
        found = parse_page(text)
    except ValueError:
        return
    assert {entry.energy_j for entry in found.values()} <= {123.456, 0.007}


def test_a_page_that_trickles_in_is_given_up(monkeypatch):
    """FIELD E17: a time-out is for the whole page, not for each byte of it."""
    import httpx

    monkeypatch.setattr(dcgm_page, "TIMEOUT_S", 1.0)
    with DcgmDouble([DcgmBoard("GPU-a")]) as exporter:
        exporter.mood = "trickle"
        with pytest.raises(httpx.TimeoutException, match="longer than 1 s"):
            fetch_page(exporter.url)


def test_a_proxy_of_the_environment_is_not_used_for_the_nodes_own_exporter(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with DcgmDouble([DcgmBoard("GPU-a")]) as exporter:
        assert set(fetch_page(exporter.url)) == {"GPU-a"}
