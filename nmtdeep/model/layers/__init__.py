"""Tensors in, tensors out: the pieces a Transformer is assembled from."""
