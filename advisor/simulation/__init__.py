"""Discrete-event simulation of the planned system: the judge of what the models predict."""
