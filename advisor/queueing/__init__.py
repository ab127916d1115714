"""Queueing models: floats and arrays in, distributions of the response time out."""
