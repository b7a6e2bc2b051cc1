"""Convolution, pooling and normalisation, fast under a client axis."""
