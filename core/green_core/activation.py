"""Being asked for: how a process knows that green is on, and with which configuration.

The first process that is asked resolves the configuration once and freezes it, the folder shared
by the server's processes and the instant a replayed signal counts from into the environment;
children inherit all three. Nothing here starts a thread or imports an engine.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from green_core import config as configuration
from green_core.config import ENV_CONFIG, ENV_RESOLVED, GreenConfig, Resolved
from green_core.errors import ConfigError, EngineUnsupported

ENV_ENABLE = "GREEN_ENABLE"
ENV_RUN_DIR = "GREEN_RUN_DIR"
ENV_EPOCH = "GREEN_EPOCH"
_PROOF_FOLDER = "live"
_RUN_PREFIX = "greenserve-run-"
_OWNER_FILE = "owner"


def asked() -> bool:
    """Whether this process was asked to be green."""
    value = os.environ.get(ENV_ENABLE, "").strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    if value:
        raise ConfigError(ENV_ENABLE, f"{value!r} is not 1 or 0")
    return bool(os.environ.get(ENV_CONFIG) or os.environ.get(ENV_RESOLVED))


def activate(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    check: Callable[[GreenConfig], None] | None = None,
) -> Resolved:
    """Resolve and freeze the configuration; a second call answers the frozen one.

    ``check`` may refuse what was resolved. Raises ``GreenError`` before anything was frozen, so
    a bad file stops the start-up.
    """
    if path is None and overrides is None and (frozen := os.environ.get(ENV_RESOLVED)):
        return configuration.thaw(frozen)
    resolved = configuration.load(path, overrides=overrides)
    if check is not None:
        check(resolved.config)
    os.environ[ENV_ENABLE] = "1"
    os.environ[ENV_RESOLVED] = configuration.freeze(resolved)
    os.environ.setdefault(ENV_EPOCH, repr(time.time()))
    if ENV_RUN_DIR not in os.environ:
        _sweep()
        run_dir = tempfile.mkdtemp(prefix=_RUN_PREFIX)
        Path(run_dir, _OWNER_FILE).write_text(str(os.getpid()), encoding="ascii")
        os.environ[ENV_RUN_DIR] = run_dir
        owner = os.getpid()
        atexit.register(_remove_run_dir, run_dir, owner)
    return resolved


def deactivate() -> None:
    """Forget the freeze (a test or an embedder is done); children started later are dormant."""
    if run_dir := os.environ.pop(ENV_RUN_DIR, None):
        _remove_run_dir(run_dir, os.getpid())
    for name in (ENV_ENABLE, ENV_RESOLVED, ENV_EPOCH):
        os.environ.pop(name, None)


def run_dir() -> Path:
    """The folder that this server's processes share."""
    return Path(os.environ[ENV_RUN_DIR])


def anchor_s() -> float:
    """The epoch time that a replayed signal counts from."""
    return float(os.environ[ENV_EPOCH])


def prove_live(part: str, facts: Mapping[str, Any]) -> None:
    """State that ``part`` of the pack is live in this process (FIELD P2)."""
    folder = run_dir() / _PROOF_FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{part}-{os.getpid()}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"pid": os.getpid(), **facts}), encoding="utf-8")
    temporary.replace(path)


def owner_pid() -> int:
    """The process that was asked first: the root of the server's processes."""
    try:
        return int((run_dir() / _OWNER_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return os.getpid()


def proofs() -> list[tuple[str, dict[str, Any]]]:
    """Every part that was proved live in a process that still runs, with its statement."""
    found = []
    for path in sorted((run_dir() / _PROOF_FOLDER).glob("*-*.json")):
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            if Path(f"/proc/{facts['pid']}").exists():
                found.append((path.stem.rpartition("-")[0], facts))
    return found


def live(part: str, remedy: str) -> dict[str, Any]:
    """What a process stated when it proved ``part`` live.

    Raises ``EngineUnsupported``, ending in ``remedy``, when no process did.
    """
    for path in sorted((run_dir() / _PROOF_FOLDER).glob(f"{part}-*.json")):
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return facts
    raise EngineUnsupported(
        f"green was asked for but its {part} part is not live in any process. {remedy}"
    )


def _sweep() -> None:
    """Remove the folders of servers that were killed; only our own user's, only of dead owners."""
    for folder in Path(tempfile.gettempdir()).glob(_RUN_PREFIX + "*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(Path(folder, _OWNER_FILE).read_text(encoding="ascii"))
            if folder.stat().st_uid == os.getuid() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder)


def _remove_run_dir(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove its parent's folder
        shutil.rmtree(path, ignore_errors=True)
