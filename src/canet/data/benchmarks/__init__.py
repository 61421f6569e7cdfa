"""The benchmark tasks: one file per data set, and the catalogue of all."""
