"""The `fleetsim` command."""

from fleetsim.cli.app import main

__all__ = ["main"]
