"""Public corpora: downloaded, unpacked and prepared as the papers did."""
