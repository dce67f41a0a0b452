"""Whether this machine, and a text, are fit for what is planned."""
