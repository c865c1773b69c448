"""understudy review: list and show versions for review, and promote one to champion by a commit."""

import shlex
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.output import print_json, print_table
from understudy.errors import InputError, UnderstudyError

if TYPE_CHECKING:
    from understudy.registry.promotion_files import Promotion
    from understudy.registry.review import Review

app = typer.Typer(invoke_without_command=True, help="Review students, and promote them by a commit.")
Model = Annotated[str, typer.Argument(help="The registered model.")]
Folder = Annotated[Path, typer.Option("--promotions", help="The folder with policy.yaml and a file per model.")]
FOLDER = Path("manifests/promotions")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def list_(ctx: typer.Context, as_json: Json = False) -> None:
    """List the versions up for review: challengers that are not the champion."""
    if ctx.invoked_subcommand:
        return
    from understudy.registry.read_only import readable
    from understudy.registry.review import up_for_review

    with readable(ctx.obj.tracking_uri) as uri:
        reviews = up_for_review(uri)
    rows = [
        [version.name, version.number, champion.number if champion else "", _date(version.created)]
        for version, champion in reviews
    ]
    names = ("model", "version", "champion", "judged")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table(names, rows, right=("version", "champion"))
    else:
        print("nothing is up for review")


@app.command()
def show(
    ctx: typer.Context,
    model: Model,
    version: Annotated[str | None, typer.Argument(help="Its version; the challenger without one.")] = None,
    as_json: Json = False,
) -> None:
    """Show a version's evidence, and its differences from the champion."""
    review = _review(ctx, model, version)
    print_json(review.facts()) if as_json else print(review.text())


@app.command()
def request(
    ctx: typer.Context,
    model: Model,
    version: Annotated[str | None, typer.Argument(help="Its version; the challenger without one.")] = None,
    folder: Folder = FOLDER,
) -> None:
    """Ask for a promotion: a commit on a branch of its own, with the evidence in its message."""
    from understudy.cli.branch import commit
    from understudy.registry.promotion_files import Promotion, listing, promotion_path
    from understudy.registry.read_only import readable
    from understudy.registry.version_files import files_digest

    path = promotion_path(folder, model)
    review = _review(ctx, model, version)
    if not review.verdict["approved"]:
        raise InputError(f"{model}, version {review.version.number}: the gate rejected it; it cannot be promoted")
    with readable(ctx.obj.tracking_uri) as uri:
        files = files_digest(uri, model, review.version.number, review.digest)
    promotion = Promotion(model=model, version=review.version.number, digest=review.digest, files=files)
    title = f"Promote {model} to version {promotion.version}"
    branch = f"promote/{path.stem}-{promotion.version}"
    digest = commit(branch, {path: promotion.text(), **listing(folder, path.name)}, f"{title}\n\n{review.text()}\n")
    print(f"{branch}: {digest[:12]}, {path}")
    command = shlex.join(["understudy", "review", "approve", model, "--promotions", str(folder)])
    print(f"next: git switch {branch}; {command} --as YOU --key KEY; commit, merge")


@app.command()
def approve(
    ctx: typer.Context,
    model: Model,
    name: Annotated[str, typer.Option("--as", help="Your name in policy.yaml.")],
    key: Annotated[Path, typer.Option(help="Your private Ed25519 key, as ssh-keygen writes it.")],
    folder: Folder = FOLDER,
) -> None:
    """Sign a promotion in the files that are checked out. Read `understudy review show` before."""
    from understudy.registry.promotion_files import check_approval, promotions, signing_key

    by_model = {promotion.model: (path, promotion) for path, promotion in promotions(folder).items()}
    if model not in by_model:
        raise InputError(f"{folder}: no file promotes {model}; understudy review request {model} writes one")
    path, promotion = by_model[model]
    signed = promotion.approved_by(name, signing_key(key, lambda: str(typer.prompt("passphrase", hide_input=True))))
    check_approval(signed, name, folder)
    path.write_text(signed.text(), encoding="utf-8")
    if not ctx.obj.quiet:
        print(f"{path}: {model}, version {signed.version}, approved by {', '.join(signed.approvals)}; commit it")


@app.command()
def apply(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="The folder with policy.yaml and a file per model.")] = FOLDER,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; fail where registry and files differ.")
    ] = False,
) -> None:
    """Make the registry's champions those of the files; a GitOps engine runs this after a merge."""
    from understudy.registry import promotions
    from understudy.registry.client import server_at
    from understudy.registry.read_only import readable
    from understudy.registry.version_files import files_digest

    with readable(ctx.obj.tracking_uri) if check else nullcontext(ctx.obj.tracking_uri) as uri:

        def files(promotion: "Promotion") -> str:
            return files_digest(uri, promotion.model, promotion.version, promotion.digest)

        changes = promotions.apply(folder, server_at(uri), time.time(), change=not check, files=files)
    if check and changes:
        raise UnderstudyError("registry and files differ:\n" + "\n".join(changes))
    if not ctx.obj.quiet:
        print("\n".join(changes) or "registry and files agree")


def _review(ctx: typer.Context, model: str, version: str | None) -> "Review":
    from understudy.registry.read_only import readable
    from understudy.registry.review import review

    with readable(ctx.obj.tracking_uri) as uri:
        return review(uri, model, version)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
