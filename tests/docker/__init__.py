"""Tests of the cluster itself: the rig, and the faults."""
