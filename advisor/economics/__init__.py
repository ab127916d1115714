"""Time, energy and money of work: pure formulas."""
