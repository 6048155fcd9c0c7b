"""Runs the Python parts of a deployment that are not graphs."""
