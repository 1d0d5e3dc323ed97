"""Guarantees of the exported files."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.export.ledger import write_csv, write_jsonl
from green_core.export.ledger.dump import COLUMNS
from green_core.export.text import csv_cell


@pytest.fixture
def row(make_record):
    record = make_record(3.6e6, arrival_s=0.0, finished_s=1_769_904_000.25)
    values = {name: getattr(record, name, 0.0) for name in COLUMNS}
    return values | {"instance_id": "i", "engine": "vllm", "engine_index": 0, "model": "m"}


def as_csv(rows):
    stream = io.StringIO()
    write_csv(rows, stream)
    return list(csv.DictReader(io.StringIO(stream.getvalue(), newline="")))


def as_jsonl(rows):
    stream = io.StringIO()
    write_jsonl(rows, stream)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def stored(row):
    """The row as the ledger gives it: without what the export works out."""
    return {k: v for k, v in row.items() if k not in COLUMNS[:4]}


def test_both_formats_say_kwh_grams_and_utc(row):
    (line,) = as_csv([stored(row)])
    (entry,) = as_jsonl([stored(row)])
    assert float(line["energy_kwh"]) == entry["energy_kwh"] == 1.0
    assert float(line["carbon_g"]) == entry["carbon_g"] == pytest.approx(0.005)
    assert line["finished_time"] == entry["finished_time"] == "2026-02-01T00:00:00.250Z"
    assert line["arrival_time"] == "1970-01-01T00:00:00.000Z"
    assert (line["method"], line["kind"]) == ("measured:nvml-counter", "average")
    assert (line["settled"], entry["settled"]) == ("true", True)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\u00a0=", "\uff1d"])
def test_no_cell_starts_as_a_formula(row, start):
    tenant = start + "HYPERLINK(1)"
    (line,) = as_csv([stored(row) | {"tenant": tenant, "request_id": tenant}])
    assert line["tenant"] == line["request_id"] == "'" + tenant


def test_json_lines_keep_text_as_it_is(row):
    tenant = '=1+1\r\n"\0;'
    (entry,) = as_jsonl([stored(row) | {"tenant": tenant}])
    assert entry["tenant"] == tenant


def test_negative_numbers_stay_numbers(row):
    (line,) = as_csv([stored(row) | {"energy_j": -1.0}])
    assert line["energy_j"] == "-1.0"


def test_all_text_is_quoted_so_other_separators_do_not_split_it(row):
    stream = io.StringIO()
    write_csv([stored(row) | {"tenant": "a;=1+1"}], stream)
    assert '"a;=1+1"' in stream.getvalue()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_tenant_comes_back_from_csv(text):
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerow([csv_cell(text)])
    ((cell,),) = csv.reader(io.StringIO(stream.getvalue(), newline=""))
    assert cell in (text, "'" + text)
