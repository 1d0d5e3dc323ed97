"""The example in docs/writing-a-policy.md, run as a reader would run it."""

import re
import sys
import tomllib
from importlib.metadata import entry_points

import pytest

from green_core import Admit, ConfigError, Hold
from green_core import config as configuration
from green_core.manager import GROUP, GreenManager
from green_core.testing.builders import grid_view, request_view

PAGE = "docs/writing-a-policy.md"


@pytest.fixture
def installed(blocks, tmp_path, monkeypatch):
    """The page's files in a folder on the path, with the metadata that installing would write."""
    metadata = tmp_path / "patient_tenants-1.0.dist-info"
    metadata.mkdir()
    for page, language, rest, code in blocks:
        if page == PAGE and language == "python":
            (tmp_path / re.fullmatch(r"file=(\w+\.py)", rest)[1]).write_text(code, "utf-8")
        elif page == PAGE and language == "toml" and "[project]" in code:
            project = tomllib.loads(code)["project"]
            (group,) = project["entry-points"].items()
            lines = [f"[{group[0]}]", *(f"{name} = {value}" for name, value in group[1].items())]
            (metadata / "entry_points.txt").write_text("\n".join(lines), "utf-8")
            (metadata / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
            )
        elif page == PAGE and language == "toml":
            (tmp_path / "green.toml").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("patient_tenants", "test_patient_tenants"):
        sys.modules.pop(name, None)


def test_the_example_names_the_module_to_install_and_no_other(blocks):
    """Two modules beside each other: setuptools would refuse to guess."""
    (toml,) = [
        c for page, kind, _, c in blocks if (page, kind) == (PAGE, "toml") and "[project" in c
    ]
    written = tomllib.loads(toml)
    (target,) = written["project"]["entry-points"][GROUP].values()
    assert written["tool"]["setuptools"]["py-modules"] == [target.partition(":")[0]]


def test_the_examples_own_tests_pass(installed):
    import test_patient_tenants as example

    tests = [value for name, value in vars(example).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_example_is_found_by_its_entry_point_and_its_parameters_are_checked(installed):
    assert "patient_tenants" in entry_points(group=GROUP).names
    config = configuration.load(installed / "green.toml", env={}).config
    assert config.policies.shadow == ("admission",)
    decide = GreenManager(config).policy("admission")
    reports = request_view(tenant="reports")
    assert decide(reports, grid_view()) == Hold(reports.now_s + 60.0, "grid is dirty")
    assert isinstance(decide(request_view(tenant="chat"), grid_view()), Admit)


@pytest.mark.parametrize(
    ("table", "says"),
    [("tenats = []", r"policies\.patient_tenants\.tenats"), ("recheck_s = 0.0", "recheck_s")],
)
def test_a_bad_parameter_of_the_example_is_refused_with_its_path(installed, table, says):
    file = installed / "bad.toml"
    known = 'tenants = ["a"]\n' if "recheck" in table else ""
    file.write_text(
        f'[policies]\nadmission = "patient_tenants"\n[policies.patient_tenants]\n{known}{table}\n'
    )
    manager = GreenManager(configuration.load(file, env={}).config)
    with pytest.raises(ConfigError, match=says):
        manager.policy("admission")
