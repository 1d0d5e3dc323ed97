"""What this pack supports: vLLM versions verified by running them, and families of policies."""

from __future__ import annotations

from green_core.errors import EngineUnsupported

# Verified with a real server (CPU build). Same seams, same tests: add a version only after that.
VERIFIED = ("0.32.0",)
# Policy families with a lever in this pack.
SERVED = ("batch", "admission", "exit", "power")


def engine_version() -> str:
    """Version of the running vLLM without its local part (``0.32.0+cpu`` is ``0.32.0``)."""
    from vllm.version import __version__

    return str(__version__).partition("+")[0]


def require_verified() -> str:
    """The version; ``EngineUnsupported`` when it was never verified (never half-patched)."""
    version = engine_version()
    if version not in VERIFIED:
        raise EngineUnsupported(
            f"vLLM {version} was not verified with this greenserve (verified: "
            f"{', '.join(VERIFIED)}). Install one of these, or a greenserve that lists {version}, "
            "or start without --plugins green"
        )
    return version
