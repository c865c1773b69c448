"""`python -m understudy`: the command, where it is not on the path."""

from understudy.cli import main

main()
