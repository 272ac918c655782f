"""The networks of the paper's tasks, one architecture a file; every size is an argument."""
