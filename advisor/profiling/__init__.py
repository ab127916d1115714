"""Profiling: measure a model on the hardware at hand and write what was seen as a `Profile`."""
