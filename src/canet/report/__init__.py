"""The report: tables, figures and one HTML page from run folders."""

from canet.report.comparison import ReportContext
from canet.report.html import write_report

__all__ = ["ReportContext", "write_report"]
