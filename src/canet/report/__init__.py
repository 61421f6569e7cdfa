"""The report: run folders → scores → tables, figures and one self-contained HTML page."""

from canet.report.context import ExtraSet, ReportContext
from canet.report.html import write_report

__all__ = ["ExtraSet", "ReportContext", "write_report"]
