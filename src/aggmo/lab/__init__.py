"""Experiments: the paper's tasks, their data and models, training, studies, and the records that these leave behind."""
