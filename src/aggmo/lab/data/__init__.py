"""The data sets of the paper's tasks, one a file, as whole tensors; and where their files come from."""
