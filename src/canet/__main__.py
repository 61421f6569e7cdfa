"""`python -m canet` is the command `canet`."""

from canet.cli.main import main

main()
