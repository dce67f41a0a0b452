"""From parallel text files to a data directory: tokenize, learn BPE, split, clean, binarize."""
