"""Inference Fleet Advisor: from measured inference to the cheapest fleet that answers in time."""

__version__ = "0.1.0"
