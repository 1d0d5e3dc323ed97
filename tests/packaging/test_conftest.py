"""tests/conftest.py: a run that has shown nothing does not pass."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = "import pytest\n\ndef test_a():\n    pytest.skip()\n"
PASSED = "def test_b():\n    pass\n"
NOTHING_RAN = pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    ("tests", "options", "status"),
    [
        ("", [], NOTHING_RAN),
        (SKIPPED, [], NOTHING_RAN),
        (SKIPPED + PASSED, [], pytest.ExitCode.OK),
        (SKIPPED, ["--collect-only"], pytest.ExitCode.OK),
        (PASSED + "\ndef test_c():\n    assert False\n", [], pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_run_without_a_passed_test_fails(
    repository: Path, tmp_path: Path, tests: str, options: list[str], status: int
) -> None:
    shutil.copy(repository / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert answer.returncode == status, answer.stdout.decode()
