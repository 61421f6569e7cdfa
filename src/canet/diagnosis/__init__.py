"""Understand one model: what it relies on, what moved, what to expect, when to believe it."""

from canet.diagnosis.diagnosis import Diagnosis, diagnose
from canet.diagnosis.expected import ExpectedScore, expected_score

__all__ = ["Diagnosis", "ExpectedScore", "diagnose", "expected_score"]
