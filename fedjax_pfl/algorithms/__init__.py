"""One federated method a file; `fedjax_pfl.algorithm.load` finds them."""
