"""The report with the published scores of the paper."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet import defaults, report
from canet.methods import METHODS
from canet.paper.published import published
from canet.store import RunConfig


def write_report(out: Path, target: Path) -> None:
    """`canet.report.write_report` with published scores and default settings."""
    report.write_report(out, target, CONTEXT)


def _default_settings(config: RunConfig) -> dict[str, Any] | None:
    """The default settings of such a run; None for a method that is not in the package."""
    if config.method not in METHODS:
        return None
    names = config.task, config.method, config.backbone
    return asdict(defaults.task_settings(*names, features=config.features))


def _searched(config: RunConfig) -> bool:
    found = defaults.searched(config.task, config.method, config.backbone, config.features)
    return found is not None and config.settings == asdict(found)


CONTEXT = report.ReportContext(published, _default_settings, _searched)
