"""Servers are dear (about a minute each): one per set-up, shared by all tests that fit it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from otlp import Receiver
from policy_grid import grid_csv, policy_config
from trapped import CARBON_TOKEN, trapped_server_in
from vllm_server import Server

from green_core.testing.carbon_api import CarbonApi
from green_core.testing.carbon_services import serve_electricity_maps
from green_core.testing.nvml import NvmlStub


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """Where the policy server sends its spans."""
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="session")
def policy_server(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Server]:
    """One API server; tests choose its policies by editing its config."""
    folder = tmp_path_factory.mktemp("policy")
    (folder / "grid.csv").write_text(grid_csv())
    server = Server(
        folder,
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--otlp-traces-endpoint", f"http://127.0.0.1:{receiver.port}"),
        *("--enable-scale-out", "--shutdown-timeout", "60"),
        config=policy_config(folder),
        env={"OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true"},
    )
    yield server.wait_healthy()
    server.kill()


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """The scripted NVML that the metered server reads."""
    return NvmlStub(tmp_path_factory.mktemp("nvml"), watts=80.0)


@pytest.fixture(scope="session")
def metered_server(tmp_path_factory: pytest.TempPathFactory, nvml: NvmlStub) -> Iterator[Server]:
    """Two API servers over one engine whose energy a counter measures."""
    folder = tmp_path_factory.mktemp("metered")
    config = f"""
[energy]
meter = "test_nvml"
[carbon]
zone = "DE"
[policies]
admission = "test_hold"
[policies.test_hold]
margin_s = 15
[ledger]
path = "{folder}/ledger.sqlite"
"""
    server = Server(
        folder,
        *("--api-server-count", "2", "--shutdown-timeout", "30"),
        config=config,
        env=nvml.env(),
    )
    yield server.wait_healthy()
    server.kill()


@pytest.fixture(scope="session")
def carbon_api() -> Iterator[CarbonApi]:
    """The carbon service that the trapped server asks."""
    with CarbonApi() as api:
        serve_electricity_maps(api, [300.0], token=CARBON_TOKEN)
        yield api


@pytest.fixture(scope="session")
def trapped_server(
    tmp_path_factory: pytest.TempPathFactory, carbon_api: CarbonApi
) -> Iterator[Server]:
    """Badly set up in three ways; its carbon signal is live and its API has a key."""
    server = trapped_server_in(tmp_path_factory.mktemp("trapped"), carbon_api.url)
    yield server.wait_healthy()
    server.kill()


@pytest.fixture(scope="session")
def embedding_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A pooling model, asked by environment instead of flags."""
    folder = tmp_path_factory.mktemp("embed")
    server = Server(
        folder,
        *("--runner", "pooling", "--convert", "embed"),
        env={
            "GREEN_ENABLE": "1",
            "GREEN_POLICIES_ADMISSION": "test_hold",
            "GREEN_LEDGER_PATH": str(folder / "ledger.sqlite"),
        },
    )
    yield server.wait_healthy()
    server.kill()


@pytest.fixture(scope="session")
def stock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """greenserve is installed and nobody asked for it."""
    server = Server(tmp_path_factory.mktemp("stock"))
    yield server.wait_healthy()
    server.kill()
