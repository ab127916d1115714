"""Examples that can be measured; see the folders."""
