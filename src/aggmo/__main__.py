"""`python -m aggmo`, for where the console script is not on the path."""

from aggmo.cli import main

main()
