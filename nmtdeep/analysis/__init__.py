"""Measurements of models before, during and after training: tables, CSV, pictures."""
