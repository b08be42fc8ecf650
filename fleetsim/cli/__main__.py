"""`python -m fleetsim.cli`: the command without its console script."""

import sys

from fleetsim.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
