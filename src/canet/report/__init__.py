"""The report: run folders → one self-contained HTML page."""

from canet.report.page import write_report

__all__ = ["write_report"]
