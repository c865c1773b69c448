"""Reconciliation of promotions: the files are the desired state, and the alias champion is moved to match them.

It is idempotent. To roll back, restore the earlier file.
"""

from collections.abc import Callable
from pathlib import Path

from understudy.errors import InputError, UnderstudyError, printable
from understudy.registry.names import CHAMPION, DIGEST, PROMOTED, VERDICT
from understudy.registry.promotion_files import POLICY, Policy, Promotion, policy, promotions
from understudy.registry.tracking import TrackingServer, Version

DAY = 24 * 3600.0


def problems(promotion: Promotion, rules: Policy, server: TrackingServer, now: float) -> list[str]:
    """The reasons against a promotion; empty if it is allowed.

    Args:
        promotion: the desired champion.
        rules: the policy.
        server: the registry.
        now: Unix seconds.
    """
    versions = {version.number: version for version in server.versions() if version.name == promotion.model}
    candidate = versions.get(promotion.version)
    if candidate is None:
        listed = ", ".join(sorted(versions, key=int)) or "none at all"
        return [f"the registry has no version {promotion.version} of {promotion.model}, but {listed}"]
    same = [version.created for version in versions.values() if version.tags.get(DIGEST) == promotion.digest]
    first = min([candidate.created, *same])  # a model registered again is as old as before
    return [*_mismatches(promotion, candidate, rules, now - first), *_approval_problems(promotion, rules)]


def apply(
    folder: Path, server: TrackingServer, now: float, *, change: bool, files: Callable[[Promotion], str]
) -> list[str]:
    """Move the alias champion to the versions in the files, or only report the differences.

    Args:
        folder: the promotions and their policy.
        server: the registry.
        now: Unix seconds.
        change: whether to move aliases. None is moved if any file is refused.
        files: computes the digest of all current files of a version (version_files.py).

    Returns:
        The moves or differences; empty if registry and files agree.

    Raises:
        InputError: a promotion is not allowed; the message has every reason.
        UnderstudyError: the files of a current or future champion are not the approved ones. A current champion keeps
            its alias, since it may be in use.
    """
    desired, rules = promotions(folder), policy(folder)
    refused = {path: problems(promotion, rules, server, now) for path, promotion in desired.items()}
    if any(refused.values()):
        raise InputError("\n".join(printable(f"{path}: {text}") for path, texts in refused.items() for text in texts))
    changes: list[str] = []
    for promotion in desired.values():
        current = server.aliases(promotion.model).get(CHAMPION)
        if current == promotion.version:
            differing = _changed(promotion, files)
            if change and differing:
                raise UnderstudyError("\n".join([*differing, *(f"moved before: {line}" for line in changes)]))
            changes += differing
            continue
        previous = f"it was version {current}" if current else "it had none"
        if change:
            _promote(promotion, current, server, files, changes)
        verb = "is the champion now" if change else "is to be the champion"
        changes.append(f"{promotion.model}: version {promotion.version} {verb}; {previous}")
    return changes + _unlisted_champions(server, {promotion.model for promotion in desired.values()})


def _changed(promotion: Promotion, files: Callable[[Promotion], str]) -> list[str]:
    """Report changed files of a champion: the server protects them, but not from direct writes to its bucket."""
    if files(promotion) == promotion.files:
        return []
    return [f"{promotion.model}: the files of version {promotion.version} are not those that were approved"]


def _promote(
    promotion: Promotion,
    current: str | None,
    server: TrackingServer,
    files: Callable[[Promotion], str],
    changes: list[str],
) -> None:
    """Move the alias, and move it back if the new champion is not the approved version.

    Until the alias moves, the account that made the version can replace its files and its digest tag. So both are
    checked before the move, so no client loads replaced files, and again after it, when the server protects them.
    """
    model, version = promotion.model, promotion.version
    try:
        _check_approved(promotion, server, files)
        server.set_alias(model, CHAMPION, version)
        try:
            _check_approved(promotion, server, files)
        except BaseException as error:  # of any kind: the files may not be the approved ones
            server.set_alias(model, CHAMPION, current) if current else server.drop_alias(model, CHAMPION)
            if not isinstance(error, UnderstudyError):
                raise
            raise UnderstudyError(f"{error}\nthe alias is where it was") from error
    except UnderstudyError as error:
        raise UnderstudyError("\n".join([str(error), *(f"moved before: {line}" for line in changes)])) from error


def _check_approved(promotion: Promotion, server: TrackingServer, files: Callable[[Promotion], str]) -> None:
    """Refuse a version whose digest or files are not the approved ones."""
    tags = server.version_tags(promotion.model, promotion.version) or {}
    changed = "digest" if tags.get(DIGEST) != promotion.digest else "files"
    if changed == "digest" or files(promotion) != promotion.files:
        raise UnderstudyError(
            f"{promotion.model}: the {changed} of version {promotion.version} were changed since they were approved. "
            "Find out who did it: understudy audit export, and the log of the MLflow server"
        )


def _mismatches(promotion: Promotion, candidate: Version, rules: Policy, seconds: float) -> list[str]:
    """The mismatches of the registry's version, so many seconds old, with the file or the policy."""
    named, reasons = f"version {promotion.version} of {promotion.model}", []
    digest, verdict = candidate.tags.get(DIGEST), candidate.tags.get(VERDICT)
    if digest != promotion.digest:
        reasons.append(f"{named} has the digest {digest or '(none)'}, the file says {promotion.digest}")
    if verdict != "approved":
        reasons.append(f"{named} was {verdict or 'not judged'} by the gate")
    age = seconds / DAY
    if age > rules.verdict_days and PROMOTED not in candidate.tags:  # a former champion may be old, for a roll-back
        reasons.append(
            f"{named} was registered {age:.0f} days ago, and the policy allows {rules.verdict_days:g}; train and judge "
            "it on today's data"
        )
    return reasons


def _approval_problems(promotion: Promotion, rules: Policy) -> list[str]:
    keys, valid, reasons = rules.keys(), list[str](), list[str]()
    for name in promotion.approvals:
        if name not in keys:
            reasons.append(f"{name} approved it, whom {POLICY} does not name as a reviewer")
        elif not promotion.is_approved_by(name, keys[name]):
            reasons.append(f"the approval of {name} is for other contents, or by another key; approve it again")
        else:
            valid.append(name)
    if len(valid) < rules.approvals:
        approvers = f"by {' and '.join(valid)} alone" if valid else "by nobody"
        reasons.append(f"it is approved {approvers}, and the policy asks for {rules.approvals} people")
    return reasons


def _unlisted_champions(server: TrackingServer, promoted: set[str]) -> list[str]:
    """Report champions without a file; they are left alone."""
    models = sorted({version.name for version in server.versions()} - promoted)
    stray = [(name, server.aliases(name).get(CHAMPION)) for name in models]
    lines = [
        f"{name}: version {version} is the champion, and no file promotes it" for name, version in stray if version
    ]
    return [printable(line) for line in lines]
