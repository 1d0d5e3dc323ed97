"""The effective settings as they may be shown: on a status page, in a report, in a bug report."""

from __future__ import annotations

import re
from collections.abc import Mapping

from green_core.config import Resolved, settings
from green_core.doctor.facts import SettingFacts

# Digests of other people's tokens are nobody's business: only how many there are is shown.
_COUNTED = frozenset({"marks.callers"})
_HIDDEN = "(hidden)"
_SECRET_NAME = "token|passw|secret|key|credential|auth|signature"
_USER = re.compile(r"(?<=://)[^/?#\s]*@")  # name and password of a URL
_IN_QUERY = re.compile(rf"([?&][^=&#\s]*(?:{_SECRET_NAME})[^=&#\s]*=)[^&#\s]*", re.IGNORECASE)


def setting_facts(resolved: Resolved) -> dict[str, SettingFacts]:
    """Each key of the configuration with its value and origin, without secrets."""
    facts = {
        key: SettingFacts(len(value) if key in _COUNTED else value, origin)
        for key, value, origin in settings(resolved)
    }
    return without_secrets(facts)


def without_secrets(facts: Mapping[str, SettingFacts]) -> dict[str, SettingFacts]:
    """The same with passwords in URLs hidden, and what sounds secret in URLs and in parameters."""
    return {key: SettingFacts(_shown(fact.value), fact.origin) for key, fact in facts.items()}


def _shown(value: object, name: str = "") -> object:
    if isinstance(value, Mapping):
        return {key: _shown(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each, name) for each in value]
    if not isinstance(value, str) or not value:
        return value
    if re.search(_SECRET_NAME, name, re.IGNORECASE):
        return _HIDDEN
    return _IN_QUERY.sub(rf"\1{_HIDDEN}", _USER.sub(f"{_HIDDEN}@", value))
