"""The tasks, figures and tables of the paper."""
