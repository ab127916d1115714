"""From a profile and an SLA to the rate that a machine sustains."""
