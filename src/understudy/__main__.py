"""Entry point of `python -m understudy`, for when the command is not on the path."""

from understudy.cli import main

main()
