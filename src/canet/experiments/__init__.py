"""Experiments: presets, the demonstration, tables and figures."""
