"""`python -m natvi` is the command line."""

from natvi.cli import main

if __name__ == "__main__":
    main()
