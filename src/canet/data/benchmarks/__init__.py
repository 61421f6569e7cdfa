"""The benchmark tasks: one file per data set, and a catalogue of all data sets."""
