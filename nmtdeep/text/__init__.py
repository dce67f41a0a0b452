"""From a raw line to subword ids and back."""
