"""The recorded day, its replay, and the requests."""

from itertools import pairwise

import pytest
from greendemo.grid import Replay, load_day, write_replay
from greendemo.plan import build_plan, scaled, warm_up_job

from green_core.grid.series import read_series

ANCHOR_S = 1_800_000_000.0


def test_the_day_is_dirty_first_and_clean_from_the_middle_on(day):
    assert min(day.intensities[:12]) >= 200 > max(day.intensities[12:])
    assert min(day.intensities[:8]) >= 300


def test_the_days_file_names_source_licence_and_changes(request):
    text = (request.config.rootpath / "demo" / "day.csv").read_text("utf-8")
    notice = (request.config.rootpath / "NOTICE").read_text("utf-8")
    for words in ("Bundesnetzagentur | SMARD.de", "https://creativecommons.org/licenses/by/4.0/"):
        assert words in text
        assert words in notice
    assert "Changed:" in text


def test_a_day_with_a_missing_hour_is_refused(day, tmp_path):
    file = tmp_path / "day.csv"
    write_replay(day, file, days=1)
    assert load_day(file) == day
    lines = file.read_text("utf-8").splitlines()
    file.write_text("\n".join(lines[:5] + lines[6:]), "utf-8")
    with pytest.raises(ValueError, match="24 hours"):
        load_day(file)


def test_greenserve_reads_the_replay_as_the_same_day_again_and_again(day, tmp_path):
    write_replay(day, tmp_path / "grid.csv", days=3)
    points = read_series(str(tmp_path / "grid.csv"))
    assert [point.intensity_g_per_kwh for point in points] == list(day.intensities) * 3
    assert {b.at_s - a.at_s for a, b in pairwise(points)} == {3600.0}


def test_every_arm_starts_at_the_same_hour_of_the_day(replay: Replay, day):
    first_s = replay.next_start_s(ANCHOR_S + 50)
    second_s = replay.next_start_s(first_s + 79.2)
    assert second_s - first_s == pytest.approx(replay.day_s)
    for offset_s in (0.0, 1.0, 43.3, 70.0):
        assert replay.intensity_at(first_s + offset_s) == replay.intensity_at(second_s + offset_s)
    assert replay.intensity_at(first_s) == day.intensities[0]
    assert replay.label(first_s) == "20:00 UTC"
    assert replay.next_start_s(ANCHOR_S - 5) == ANCHOR_S


def test_the_plan_is_the_same_each_time_and_has_enough_interactive_requests():
    plan = build_plan(last_s=75.2, due_s=75.6)
    assert plan == build_plan(last_s=75.2, due_s=75.6)
    interactive = [ask for ask in plan if ask.urgency == "interactive"]
    assert len(interactive) >= 40
    assert max(ask.at_s for ask in plan) < 79.2 - 3
    assert len({ask.prompt for ask in plan}) == len(plan)
    assert {ask.due_s for ask in plan} == {None, 75.6}


def test_a_slow_machine_gets_shorter_answers_and_the_same_requests():
    usual, short = (build_plan(last_s=75.2, due_s=75.6, size=size) for size in (1.0, 0.5))
    assert [ask.prompt for ask in usual] == [ask.prompt for ask in short]
    assert all(b.max_tokens < a.max_tokens for a, b in zip(usual, short, strict=True))
    assert scaled(12, 0.01) == 4
    assert scaled(12, 3.0) == 12


def test_the_warm_up_does_not_send_a_prompt_of_the_plan():
    prompts = {ask.prompt for ask in build_plan(last_s=75.2, due_s=75.6)}
    assert prompts.isdisjoint(ask.prompt for ask in warm_up_job())
