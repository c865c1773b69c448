"""Counts the tests that were skipped, and fails when one of them was for a reason that is not allowed.

python .ci/check_skips.py JUNIT_XML ALLOWED_REASONS
"""

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main() -> int:
    """Count, print a line for each reason, and judge."""
    results, allowed = map(Path, sys.argv[1:])
    patterns = [line for line in allowed.read_text().splitlines() if line and not line.startswith("#")]
    tests = ElementTree.parse(results).getroot()
    skipped = Counter(" ".join(found.get("message", "").split()) for found in tests.iter("skipped"))
    unexpected = [reason for reason in skipped if not any(re.match(pattern, reason) for pattern in patterns)]
    print(f"{skipped.total()} of {sum(1 for _ in tests.iter('testcase'))} tests were skipped")
    for reason, count in skipped.most_common():
        print(f"  {count} {'UNEXPECTED' if reason in unexpected else 'allowed'}: {reason}")
    if unexpected:
        print("make these tests run, or allow their reason in .ci/skips", file=sys.stderr)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
