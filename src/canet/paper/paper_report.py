"""The report with the published scores of the paper."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet import presets, report
from canet.methods import METHODS
from canet.paper.french_labels import SHIFTED_FR
from canet.paper.published import published
from canet.store import RunConfig


def write_report(out: Path, target: Path) -> None:
    """`canet.report.write_report` with published scores, presets and extra test sets."""
    report.write_report(out, target, CONTEXT)


def _preset(config: RunConfig) -> dict[str, Any] | None:
    """The preset of such a run; None for a method that is not in the package."""
    if config.method not in METHODS:
        return None
    return asdict(presets.preset(config.task, config.method, config.backbone))


def _searched(config: RunConfig) -> bool:
    found = presets.searched(config.task, config.method, config.backbone)
    return found is not None and config.settings == asdict(found)


CONTEXT = report.ReportContext(published, _preset, _searched, extra_sets=(SHIFTED_FR,))
