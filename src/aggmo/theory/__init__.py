"""The theory of momentum as functions: NumPy and SciPy only."""
