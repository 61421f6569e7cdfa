"""Diagnosis of a model: what it relies on, what has shifted, and which score to expect."""

from canet.diagnosis.diagnosis import Diagnosis, diagnose
from canet.diagnosis.sections.expected import ExpectedScore, expected_score

__all__ = ["Diagnosis", "ExpectedScore", "diagnose", "expected_score"]
