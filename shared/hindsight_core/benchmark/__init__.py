"""Measuring retrieval: data sets, configurations, measures, runs and their reports."""
