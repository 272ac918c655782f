"""A back end of Keras is for a whole process: `../test_keras.py` names these files to one process for each."""

collect_ignore_glob = ["test_*.py"]  # what is named on the command line is collected all the same
