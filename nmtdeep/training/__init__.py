"""From a config and a corpus to a trained model."""
