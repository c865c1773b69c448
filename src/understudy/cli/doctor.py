"""understudy doctor: checks that this machine has the requirements of a run, with a fix for each problem."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.check import Check
from understudy.cli.output import print_json, print_table, size
from understudy.cli.settings import Settings
from understudy.errors import BAD_INPUT, FAILED, InputError, UnderstudyError, disk_errors

PYTHON = (3, 11)
MEMORY, DISK = 4e9, 2e9  # bytes that the example recipes need


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="Check the cluster that KUBECONFIG names.")] = False,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="In the cluster.")] = None,
    manifests: Annotated[
        Path | None, typer.Option(help="Check manifests, such as manifests/clusters/production, without a cluster.")
    ] = None,
    collectives: Annotated[
        str | None, typer.Option(metavar="POOL", help="With --cluster: measure all-reduces over nodes of this pool.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="With --collectives.")] = 2,
    processes: Annotated[int, typer.Option(min=1, help="With --collectives: on each node, with a GPU each.")] = 1,
) -> None:
    """Check this machine with store and tracking server, a cluster, or manifests; give a fix for each problem."""
    settings: Settings = ctx.obj
    if collectives:
        from understudy.cli.collectives import measure

        if not cluster or as_json:
            raise InputError("--collectives: measures a cluster, and prints a table; add --cluster, leave --json out")
        raise typer.Exit(measure(namespace, collectives, nodes, processes, settings.quiet))
    if manifests:
        from understudy.cli import doctor_manifests

        checks = list(doctor_manifests.checks(manifests))
    elif cluster:
        from understudy.cli import doctor_cluster

        checks = list(doctor_cluster.checks(namespace))
    else:
        checks = list(_local_checks(settings))
    if not _show(checks, as_json, settings.quiet):
        raise typer.Exit(BAD_INPUT if manifests else FAILED)


def _local_checks(settings: Settings) -> Iterator[Check]:
    yield from _machine(settings.home)
    yield from _libraries()
    yield _gpu()
    yield from _store(settings)
    yield from _remote_cache()
    server = _server(settings)
    yield server
    if server.ok:
        yield from _registry(settings.tracking_uri)


def _registry(uri: str) -> Iterator[Check]:
    """Check the files of the registry's versions."""
    from understudy.registry.contents import checked_versions

    count, changed = 0, list[str]()
    try:
        for version, is_whole in checked_versions(uri):
            count += 1
            changed += [] if is_whole else [f"{version.name} version {version.number}"]
    except UnderstudyError as error:
        yield Check("registered versions", "cannot be checked", str(error))
        return
    if changed:
        fix = "their files are not those that were registered: delete the version and run its recipe again"
        yield Check("registered versions", f"{', '.join(changed)}: changed since registration, or gone", fix)
    elif count:
        yield Check("registered versions", f"{count} checked, all as registered")


def _show(checks: list[Check], as_json: bool, quiet: bool) -> bool:
    """Print the checks and return whether all of them passed."""
    problems = [check for check in checks if not check.ok]
    if as_json:
        print_json({"ok": not problems, "checks": [{**asdict(check), "ok": check.ok} for check in checks]})
    elif not quiet or problems:
        printed = problems if quiet else checks
        rows = [[check.what, "ok" if check.ok else "problem", check.found, check.fix] for check in printed]
        print_table(("what", "", "found", "what to do"), rows)
    return not problems


def _machine(home: Path) -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    tested_version = ".".join(map(str, PYTHON))
    yield Check(
        "python",
        version,
        "" if sys.version_info[:2] == PYTHON else f"install Python {tested_version}, the tested version",
    )
    yield Check("cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Check("memory", size(memory), "" if memory >= MEMORY else f"training needs {size(MEMORY)} at least")
    free = shutil.disk_usage(_existing(home)).free
    fix = f"make room, or point --home at a disk with {size(DISK)}; understudy store gc shows what can go"
    yield Check("disk", f"{size(free)} free at {home}", "" if free >= DISK else fix)


def _libraries() -> Iterator[Check]:
    from importlib import metadata

    from packaging.requirements import Requirement

    for text in metadata.requires("understudy") or ():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        specification = f"{requirement.name}{requirement.specifier}"
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Check(requirement.name, "not installed", f"python -m pip install {specification}")
            continue
        fits = requirement.specifier.contains(installed, prereleases=True)
        yield Check(requirement.name, installed, "" if fits else f"python -m pip install {specification}")


def _gpu() -> Check:
    """The GPUs by /dev, and torch's CUDA by its version file; importing torch would take seconds."""
    from importlib import util

    devices = sorted(path for path in Path("/dev").glob("nvidia[0-9]*"))
    if not devices:
        return Check("GPU", "none; training runs on the CPU")
    spec = util.find_spec("torch")
    if spec is None or spec.origin is None:
        return Check("GPU", f"{len(devices)} NVIDIA")  # _libraries() reports that torch is missing
    namespace: dict[str, object] = {}
    exec((Path(spec.origin).parent / "version.py").read_text(), namespace)
    if cuda := namespace.get("cuda"):
        return Check("GPU", f"{len(devices)} NVIDIA, torch built for CUDA {cuda}")
    return Check("GPU", f"{len(devices)} NVIDIA, torch built without CUDA", "install a torch that is built for CUDA")


def _store(settings: Settings) -> Iterator[Check]:
    folder = settings.store_folder
    fix = "point --home or UNDERSTUDY_HOME at another disk"
    file = next((path for path in (folder, *folder.absolute().parents) if path.is_file()), None)
    if file:
        yield Check("store", f"{file}: is a file, not a folder", "point --home or UNDERSTUDY_HOME at a folder")
        return
    try:
        _exercise(_existing(folder))
    except UnderstudyError as error:
        yield Check("store", f"{folder}: cannot be written", str(error))
        return
    except OSError as error:
        yield Check("store", f"{folder}: its disk lacks an operation that a store needs ({error.strerror})", fix)
        return
    if not (folder / "version.json").exists():
        yield Check("store", f"{folder}: none yet; the first run creates it")
        return
    try:
        store = settings.open_store()
    except UnderstudyError as error:
        yield Check("store", f"{folder}: cannot be used", str(error))
        return
    yield Check("store", f"{store.folder}: {sum(1 for _ in store.objects)} objects")


def _remote_cache() -> Iterator[Check]:
    """Check the bucket, if there is one: it must accept a file, and report a missing one as missing."""
    from understudy.store.bucket import Bucket
    from understudy.store.remote_cache import OLD_ADDRESS, address, entry

    try:
        url = address()
    except InputError as error:
        yield Check("remote cache", f"{OLD_ADDRESS} is set, but no longer read", str(error))
        return
    if not url:
        return
    try:
        bucket = Bucket(url)
        bucket.write("doctor", b"")
        bucket.read(entry("none"))  # S3 reports a missing key only to accounts that may list
    except (UnderstudyError, OSError) as error:
        yield Check("remote cache", f"{url}: cannot be used", str(error))
        return
    yield Check("remote cache", url)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def _exercise(folder: Path) -> None:
    """Write, flush and rename on the store's disk, as publishing does."""
    from understudy.store.files import flush

    probe = folder / f".understudy-doctor-{os.getpid()}"
    with disk_errors(folder):
        try:
            (probe / "a").mkdir(parents=True)
            (probe / "a" / "file").write_bytes(b"understudy")
            flush(probe / "a" / "file")
            flush(probe / "a")
            os.rename(probe / "a", probe / "b")
            flush(probe)
            (probe / "b" / "file").read_bytes()
        finally:
            shutil.rmtree(probe, ignore_errors=True)


def _server(settings: Settings) -> Check:
    from understudy.registry.client import server_at
    from understudy.registry.server import database, public_uri

    uri = settings.tracking_uri
    path = database(uri)
    if path and not path.exists():
        return Check("tracking server", f"{path}: none yet; the first run creates it")
    try:
        server_at(uri).check()
    except UnderstudyError as error:
        return Check("tracking server", f"{public_uri(uri)}: does not answer", str(error))
    return Check("tracking server", public_uri(uri))
