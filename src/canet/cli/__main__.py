"""`python -m canet.cli`."""

from canet.cli import main

main()
