"""The fleet program: arrays in, counts and a proven bound out."""
