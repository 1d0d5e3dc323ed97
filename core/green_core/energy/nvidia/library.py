"""The NVML library: how to come by it, and what its failures mean to a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from green_core.energy.session import DriverSession
from green_core.errors import MeterUnavailable


def import_nvml() -> Any:
    """The module ``pynvml``, which loads no driver library before ``nvmlInit``.

    Raises ``MeterUnavailable`` where it is not installed.
    """
    try:
        import pynvml
    except ImportError as error:
        raise MeterUnavailable(
            "The Python package nvidia-ml-py cannot be imported. Install it, or set "
            'energy.meter = "model"'
        ) from error
    return pynvml


def nvml_session(nvml: Any, now_s: Callable[[], float]) -> DriverSession:
    """A session whose devices go by their UUID; not opened yet."""
    return DriverSession(
        start=nvml.nvmlInit,
        stop=nvml.nvmlShutdown,
        find=nvml.nvmlDeviceGetHandleByUUID,
        errors=(nvml.NVMLError,),
        now_s=now_s,
    )


def unavailable(nvml: Any, error: Exception) -> MeterUnavailable:
    """What to tell a user whose NVML answers ``error``."""
    remedies = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "Install the NVIDIA driver, or give the container "
        "access to it (--gpus all, driver capability utility)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "Load the NVIDIA driver (nvidia-smi must work)",
        nvml.NVML_ERROR_NO_PERMISSION: "Run as a user that may open /dev/nvidia*",
        nvml.NVML_ERROR_NOT_SUPPORTED: "This device reports neither energy nor power",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Driver and library differ: reload the "
        "driver or restart the container",
    }
    remedy = remedies.get(getattr(error, "value", None), "Check that nvidia-smi works")
    return MeterUnavailable(
        f'NVML cannot be used: {error}. {remedy}; energy.meter = "model" does without a meter'
    )
