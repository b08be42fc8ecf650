"""Seeing a result: a table for the terminal, figures for the page."""
