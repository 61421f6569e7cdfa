"""The report: tables, figures and one HTML page from run folders."""

from canet.report.context import ExtraSet, ReportContext
from canet.report.html import write_report

__all__ = ["ExtraSet", "ReportContext", "write_report"]
