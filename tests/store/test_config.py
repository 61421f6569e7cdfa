"""A run keeps its name, and can be read, when a setting is added."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from canet.methods import Settings
from canet.store import RunConfig, RunFolder
from canet.store.config import ADDED_SETTINGS


def config(**settings: object) -> RunConfig:
    return RunConfig("cora", "paper", 0, "original", False, "erm", "gcn", settings, seed=0)


def test_later_settings_at_their_defaults_change_no_name() -> None:
    defaults = asdict(Settings())
    assert {name: defaults[name] for name in ADDED_SETTINGS} == ADDED_SETTINGS
    assert config(hidden=8, **ADDED_SETTINGS).name == config(hidden=8).name
    assert config(hidden=8, norm="layer").name != config(hidden=8).name


def test_a_run_that_is_older_than_a_setting_is_one_with_its_default(tmp_path: Path) -> None:
    old = config(hidden=8)
    assert old == config(hidden=8, **ADDED_SETTINGS)
    place = RunFolder(tmp_path)
    place.begin(old)
    content = json.loads((tmp_path / "config.json").read_text())
    content["config"]["settings"] = {"hidden": 8}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert place.read_config() == old
