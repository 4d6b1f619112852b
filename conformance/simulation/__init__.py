"""Simulation: whole workloads on managers of any release and on the reference, side by side."""
