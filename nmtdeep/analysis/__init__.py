"""What a model does before, while and after it is trained: tables, CSV, pictures."""
