"""The sections of a diagnosis: NAME.py computes one, NAME.jinja shows it on the page and as text."""
