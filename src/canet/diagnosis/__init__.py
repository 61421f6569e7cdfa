"""Understand one model: what it relies on, what shifted, what to expect, when to trust it."""

from canet.diagnosis.diagnosis import Diagnosis, diagnose
from canet.diagnosis.sections.expected import ExpectedScore, expected_score

__all__ = ["Diagnosis", "ExpectedScore", "diagnose", "expected_score"]
