"""What a person sees."""

import io
import json

from greendemo import report
from greendemo.checks import Check, run_checks
from greendemo.control import Control
from greendemo.progress import Progress
from greendemo.server import samples

CONTROL = Control(intensity_g_per_kwh=260.0, off_g=0.02, on_g=0.02, held_recorded=3, held_flat=0)


def test_the_table_fits_a_hundred_columns_and_keeps_its_columns(off, on):
    lines = report.render_table(off, on, CONTROL).splitlines()
    assert max(map(len, lines)) <= 100
    # Numbers stand right-aligned under their heads.
    ends = {len(lines[0][: lines[0].index(head)] + head) for head in ("joules", "mgCO2e")}
    totals = [line for line in lines if line.startswith("  total")]
    assert len(totals) == 4
    for line in totals:
        assert {i for i in ends if line[i - 1] != " " and line[i : i + 1] in {"", " "}} == ends


def test_the_table_tells_both_arms_idle_totals_and_the_control(off, on):
    text = report.render_table(off, on, CONTROL)
    for words in ("policies off", "policies on", "idle", "total", "flat grid at 260 g/kWh"):
        assert words in text
    assert f"{off.account.energy_j:.1f}" in text
    assert f"{on.account.carbon_g * 1e3:.2f}" in text
    assert "+0.0%" in text.splitlines()[-1]


def test_the_conclusion_says_what_the_figures_rest_on(off, on):
    text = " ".join(report.conclusion(off, on, speed=1000.0).split())
    assert "joules are estimated" in text
    assert "perfect forecast" in text
    assert "11 hours of the recorded day" in text
    assert "joules are measured" in report.method_note("nvml:counter")


def test_a_failed_condition_stands_out(plan, off, on, replay):
    good = run_checks(plan, off, on, CONTROL, replay, clean_below=200.0)
    assert "FAIL" not in report.render_checks(good)
    bad = Check("grams fall", False, "+1.0%")
    assert "FAIL  grams fall" in report.render_checks([*good, bad])
    assert all(len(line) <= 100 for line in report.render_checks(good).splitlines())


def test_the_json_holds_the_figures_of_the_table(plan, off, on, replay):
    checks = run_checks(plan, off, on, CONTROL, replay, clean_below=200.0)
    tree = json.loads(json.dumps(report.as_json(off, on, CONTROL, checks)))
    assert tree["arms"]["on"]["joules"] == on.account.energy_j
    assert tree["arms"]["off"]["classes"]["flex"]["requests"] == 3
    assert len(tree["checks"]) == len(checks)


def test_a_log_is_not_flooded_with_progress():
    stream = io.StringIO()
    progress = Progress(stream)
    for n in range(100):
        progress.tell(f"state {n}")
    progress.say("done")
    assert stream.getvalue() == "state 0\ndone\n"


def test_samples_of_one_metric_are_read_with_and_without_labels():
    page = '# HELP a x\na{b="c d"} 1.0\na{b="e"} 0.0\nab 3\na_total 4\n'
    assert samples(page, "a") == [1.0, 0.0]
    assert samples(page, "ab") == [3.0]
