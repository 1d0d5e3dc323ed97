"""``green forecast``."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from importlib import import_module
from typing import Any

import msgspec
from msgspec.structs import replace

from green_core.cli.common import Commands, print_json, print_table, utc
from green_core.cli.grid import Reading, add_parser, as_json, provenance, read_signal, tell_problem
from green_core.errors import GreenError
from green_core.values import GridView

_PLOT_LINES = 18
_PLOT_COLUMNS = 100  # at most
_PLOT_TICKS = 5
HOUR_S = 3600.0


class _Span(msgspec.Struct, frozen=True):
    """An expected intensity, g/kWh, and from when to when it holds (epoch seconds)."""

    start_s: float
    end_s: float
    intensity_g_per_kwh: float


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_parser(
        commands,
        "forecast",
        help="show the intensity that is expected",
        more="Show what the source itself forecasts or, where it has no forecast, the same hour "
        "of the day before, and say which. Exits with 1 when there is no forecast, or when a live "
        "source fails and its last word is not fresh any more.",
    )
    parser.add_argument(
        "--hours", metavar="N", type=_hours, help="how far (default: carbon.forecast_hours)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--plot", action="store_true", help="draw it (needs greenserve[plot])")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    hours = arguments.hours or 0.0
    reading = read_signal(arguments, hours=hours)
    if hours:
        speed = reading.carbon.speed if reading.carbon.source == "file" else 1.0
        reading = replace(reading, view=_cut(reading.view, hours * HOUR_S / speed))
    spans = _spans(reading.view)
    if arguments.json:
        print_json(_as_json(reading, spans))
    elif spans:
        _print(reading, spans, plot=arguments.plot)
    code = tell_problem(reading)
    if not spans:
        print(f"no forecast: {_why_none(reading)}", file=sys.stderr)
        return 1
    return code


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours above 0")
    return hours


def _cut(view: GridView, length_s: float) -> GridView:
    """The view with ``length_s`` of its forecast."""
    if not view.forecast:
        return view
    end_s = min(view.forecast_end_s, view.forecast[0].start_s + length_s)
    points = tuple(point for point in view.forecast if point.start_s < end_s)
    return replace(view, forecast=points, forecast_end_s=end_s)


def _spans(view: GridView) -> list[_Span]:
    points = view.forecast
    ends_s = [*(point.start_s for point in points[1:]), view.forecast_end_s][: len(points)]
    return [
        _Span(point.start_s, end_s, point.intensity_g_per_kwh)
        for point, end_s in zip(points, ends_s, strict=True)
    ]


def _why_none(reading: Reading) -> str:
    """What a user can do about it."""
    carbon, view = reading.carbon, reading.view
    if carbon.forecast == "none":
        return 'carbon.forecast is "none". Set it to "auto"'
    if view.quality != "fresh":
        return f"{carbon.source} is not heard; see the problem"
    if not math.isfinite(view.valid_until_s) and carbon.source in {"static", "yearly"}:
        live = f" For {view.zone}: --source {reading.others}" if reading.others else ""
        return f"a yearly average tells nothing of the hours to come.{live}"
    if carbon.forecast == "source":
        return f'{carbon.source} serves none here. Set carbon.forecast to "auto" for persistence'
    return f"{carbon.source} knows no values from here on"


def _as_json(reading: Reading, spans: list[_Span]) -> dict[str, Any]:
    points = [
        {
            "start": utc(span.start_s),
            "end": utc(span.end_s),
            "intensity_g_per_kwh": span.intensity_g_per_kwh,
            "state": reading.carbon.state(span.intensity_g_per_kwh).value,
        }
        for span in spans
    ]
    return {**as_json(reading), "forecast": points}


def _print(reading: Reading, spans: list[_Span], *, plot: bool) -> None:
    picture = _plot(spans) if plot else ""
    print(f"{reading.view.kind} gCO2e/kWh to come: {reading.method}")
    for label, text in provenance(reading):
        print(f"{label:<9}  {text}")
    print()
    if plot:
        print(picture)
        return
    print_table(
        ("from (UTC)", "to (UTC)", "gCO2e/kWh", "state"),
        [
            (
                utc(span.start_s),
                utc(span.end_s),
                f"{span.intensity_g_per_kwh:.1f}",
                reading.carbon.state(span.intensity_g_per_kwh).value,
            )
            for span in spans
        ],
    )


def _plot(spans: list[_Span]) -> str:
    """Steps over time as text without colours. Raises ``GreenError`` where that cannot be."""
    try:
        plotext: Any = import_module("plotext")
    except ImportError as error:
        raise GreenError(
            "--plot needs the library plotext: pip install 'greenserve[plot]'"
        ) from error
    first_s, last_s = spans[0].start_s, spans[-1].end_s
    times = [at_s for span in spans for at_s in (span.start_s, span.end_s)]
    values = [span.intensity_g_per_kwh for span in spans for _ in range(2)]
    ticks = [first_s + n * (last_s - first_s) / (_PLOT_TICKS - 1) for n in range(_PLOT_TICKS)]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    columns = min(shutil.get_terminal_size().columns, _PLOT_COLUMNS)
    figure.plot_size(columns, _PLOT_LINES)
    line = figure.signal(times, values)
    line.lines()
    figure.draw(line)
    figure.ruler("y").lim(0, max(values) * 1.05 or 1.0)
    figure.ruler("x").ticks(ticks, [utc(at_s)[8:16].replace("T", " ") for at_s in ticks])
    figure.title("gCO2e/kWh by day and time (UTC)")
    picture = str(plotext.uncolorize(str(figure.build())))
    try:
        picture.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError as error:
        raise GreenError(
            f"--plot draws with characters that this terminal's encoding ({error.encoding}) lacks. "
            "Set PYTHONUTF8=1, or use the table"
        ) from error
    return picture
