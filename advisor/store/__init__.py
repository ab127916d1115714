"""Profiles and scenarios kept in files."""
