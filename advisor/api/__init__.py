"""HTTP routes beside the pages."""
