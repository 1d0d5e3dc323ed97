"""Parts that are made from code and tests, and the list of guarantees."""

import re


def test_generated_parts_are_up_to_date(pages, doc_tables):
    """Run ``python tools/doc_tables.py`` when this fails."""
    for page, text in pages.items():
        assert doc_tables.filled(text) == text, page


def test_the_compatibility_table_needs_no_engine(doc_tables):
    assert "vllm.v1.core.sched.scheduler:Scheduler.schedule(" in doc_tables.seams()


def test_every_guarantee_that_a_test_names_is_listed(pages, doc_tables):
    listed = re.findall(r"^\| ([PEG]\d+) \|", pages["docs/guarantees.md"], re.M)
    assert len(set(listed)) == len(listed)
    assert set(doc_tables.tests_by_field()) <= set(listed)


def test_what_is_called_out_of_reach_is_held_by_no_test(pages, doc_tables):
    section = pages["docs/guarantees.md"].partition("## Out of reach")[2]
    named = re.findall(r"\b[PEG]\d+\b", section)
    assert named
    assert [number for number in named if number in doc_tables.tests_by_field()] == []
