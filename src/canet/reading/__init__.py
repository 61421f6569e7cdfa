"""Graphs as models read them: normalised, scaled, row by row, at once or in pieces."""
