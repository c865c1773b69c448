"""What pytest's JUnit file says: files that passed whole, and why tests were skipped."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree


def clean(results: Path, files: Iterable[str]) -> list[str]:
    """The files all of whose tests ran and passed; one with a skipped test is not among them."""
    ran, unclean = set[str](), set[str]()
    for file, case in _cases(results, files):
        ran.add(file)
        if len(case):  # a failure, an error or a skip
            unclean.add(file)
    return sorted(ran - unclean)


def _cases(results: Path, files: Iterable[str]) -> Iterator[tuple[str, ElementTree.Element]]:
    """Each test case and its file; a case names its module, and its class behind that."""
    modules = {file.removesuffix(".py").replace("/", "."): file for file in files}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = case.get("classname", "")
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if name:
            yield modules[name], case


def reasons(results: Path) -> Counter[str]:
    """How often a test was skipped for a reason."""
    skipped = ElementTree.parse(results).getroot().iter("skipped")
    return Counter(
        " ".join(result.get("message", "").split()) for result in skipped if result.get("type") != "pytest.xfail"
    )


def skips(results: Path) -> str:
    """A line for each reason, under their number."""
    counts = reasons(results)
    cases = sum(1 for _ in ElementTree.parse(results).getroot().iter("testcase"))
    lines = [f"{counts.total()} of {cases} tests were skipped"]
    return "\n".join([*lines, *(f"  {count}: {reason}" for reason, count in counts.most_common())])


def unexpected(results: Path, allowed: Path) -> list[str]:
    """Reasons that match none of the allowed patterns, a regular expression a line."""
    patterns = [line for line in allowed.read_text().splitlines() if line and not line.startswith("#")]
    return [reason for reason in reasons(results) if not any(re.match(pattern, reason) for pattern in patterns)]
