"""The sections of a diagnosis: NAME.py computes, NAME.jinja shows it as HTML and text."""
