"""The one switch back to the engine's stock behaviour.

Policies are off while a switch file exists: ``<config>.off`` beside the config file in use, or
``off`` in the run folder. A file of its own leaves the operator's TOML, its comments and its
version control alone, and works when there is no config at all.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from green_core.errors import ConfigError


def switch_file(
    config_path: str | os.PathLike[str] | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """The switch file of a config or, without one, of a run folder (``ConfigError`` for none)."""
    if config_path:
        return Path(os.path.abspath(config_path) + ".off")
    if run_dir:
        return Path(os.path.abspath(run_dir), "off")
    raise ConfigError(
        "switch",
        "neither a config file nor a run folder is known",
        remedy="Give --config FILE or --run-dir DIR, as the server was started",
    )


def is_off(
    config_path: str | os.PathLike[str] | None,
    run_dir: str | os.PathLike[str] | None = None,
) -> bool:
    """Whether policies are switched off by either file; never raises.

    A folder that cannot be searched counts as holding no switch file.
    """
    files = [switch_file(config_path)] if config_path else []
    if run_dir:
        files.append(switch_file(run_dir=run_dir))
    # Not Path.exists(), which raises where the folder may not be searched.
    return any(os.path.exists(file) for file in files)


def set_off(
    config_path: str | os.PathLike[str] | None,
    off: bool,
    *,
    run_dir: str | os.PathLike[str] | None = None,
) -> bool:
    """Create or remove the switch file; answers whether that changed anything.

    With ``config_path`` the file beside the config is used, else the one in ``run_dir``. Raises
    ``ConfigError`` when neither is given or the file system refuses.
    """
    file = switch_file(config_path, run_dir=run_dir)
    try:
        if not off:
            existed = file.exists()
            file.unlink(missing_ok=True)
            return existed
        with file.open("x", encoding="utf-8") as stream:
            since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            stream.write(f"greenserve policies are off since {since}; 'green on' removes this\n")
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError(
            str(file),
            f"cannot be {'written' if off else 'removed'} ({error.strerror})",
            remedy="Check the folder's permissions; a read-only config folder needs --run-dir",
        ) from error
    return True
