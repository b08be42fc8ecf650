"""Say which tests a run skipped; refuse skips for want of data that is there.

    python .ci/skipped.py REPORT.xml

The tests against published traces skip where the folder ../shared is absent. Where it is present
they must have run.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared"


def main(report: str) -> None:
    """Print the skipped tests with their reasons."""
    wrongly = 0
    for case in ElementTree.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if skip is None:
            continue
        reason = skip.get("message", "")
        print(f"skipped {case.get('classname')}::{case.get('name')}: {reason}")
        wrongly += "shared" in reason and SHARED.is_dir()
    if wrongly:
        sys.exit(f"{wrongly} tests skipped for want of ../shared, which is there")


if __name__ == "__main__":
    main(sys.argv[1])
