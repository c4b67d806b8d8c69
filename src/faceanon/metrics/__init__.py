"""Figures on anonymization and recovery."""
