import pytest

from green_core import ConfigError
from green_core.config import (
    CarbonConfig,
    EnergyConfig,
    GreenConfig,
    LedgerConfig,
    MarksConfig,
    PoliciesConfig,
)
from green_core.preflight import check

SERVED = ("batch", "admission")


def test_the_default_and_every_profiles_policies_pass():
    check(GreenConfig(), served=SERVED)
    check(GreenConfig(policies=PoliciesConfig(batch="slo", admission="deadline")), served=SERVED)


def test_a_policy_without_a_lever_is_refused():
    """FIELD P21."""
    config = GreenConfig(policies=PoliciesConfig(kv="slo"))
    with pytest.raises(ConfigError, match=r"policies\.kv: .*no lever for kv policies"):
        check(config, served=SERVED)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"policies": PoliciesConfig(batch="sloo")}, r"policies\.batch: unknown name 'sloo'"),
        ({"policies": PoliciesConfig(batch="deadline")}, "does not implement"),
        (
            {"policies": PoliciesConfig(batch="slo", params={"slo": {"min_runing": 1}})},
            r"policies\.slo\.min_runing: unknown key",
        ),
        ({"carbon": CarbonConfig(zone="Germny")}, "Germny"),
        ({"carbon": CarbonConfig(source="fiel")}, r"carbon\.source.*'file'"),
        ({"carbon": CarbonConfig(source="file", path="/no/such.csv")}, r"/no/such\.csv"),
        ({"energy": EnergyConfig(meter="nvlm")}, r"energy\.meter: unknown meter 'nvlm'.*'nvml'"),
        ({"ledger": LedgerConfig(path="/no/such/folder/x.sqlite")}, r"ledger\.path: the folder"),
        ({"marks": MarksConfig(callers=("everyone",))}, r"marks\.callers: 'everyone'"),
    ],
)
def test_what_cannot_work_is_refused_before_an_engine_starts(tables, message):
    with pytest.raises(ConfigError, match=message) as caught:
        check(GreenConfig(**tables), served=SERVED)
    assert "\n" not in str(caught.value)
