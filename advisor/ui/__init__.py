"""Pages: read state, call planning through one cached wrapper, draw charts and tables."""
