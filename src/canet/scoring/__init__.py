"""From logits and labels to numbers: metrics, the one calibration, scores, intervals."""
