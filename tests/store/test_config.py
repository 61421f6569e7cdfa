"""Runs keep their names and can be read when a setting is added to the package."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from canet.methods import Settings
from canet.store import RunConfig, RunFolder
from canet.store.config import ADDED_SETTINGS


def config(**settings: object) -> RunConfig:
    return RunConfig("cora", "paper", 0, "original", False, "erm", "gcn", settings, seed=0)


def test_added_settings_with_their_defaults_do_not_change_the_name() -> None:
    defaults = asdict(Settings())
    assert {name: defaults[name] for name in ADDED_SETTINGS} == ADDED_SETTINGS
    assert config(hidden=8, **ADDED_SETTINGS).name == config(hidden=8).name
    assert config(hidden=8, norm="layer").name != config(hidden=8).name


def test_a_run_without_an_added_setting_has_its_default(tmp_path: Path) -> None:
    old = config(hidden=8)
    assert old == config(hidden=8, **ADDED_SETTINGS)
    folder = RunFolder(tmp_path)
    folder.begin(old)
    content = json.loads((tmp_path / "config.json").read_text())
    content["config"]["settings"] = {"hidden": 8}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert folder.read_config() == old
