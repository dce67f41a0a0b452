"""The papers' tables and figures again: what is printed there beside what is computed here."""
