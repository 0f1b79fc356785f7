"""Tests on the real cluster."""
