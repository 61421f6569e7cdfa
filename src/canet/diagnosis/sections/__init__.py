"""The sections of a diagnosis: NAME.py computes a section, NAME.jinja renders it."""
