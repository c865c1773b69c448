"""How often the gate passes a student whose true loss is exactly the margin, where at most 2.5 % may pass.

python -m benchmarks.gate_rates [--sets 1000] [--resamples 500] [--only WORDS]

Test sets are drawn from models of which the true loss is known, and the gate's own code decides on each. Beside it, how
often a student passes that loses nothing: the power. Both with their Monte Carlo errors, as a table in Markdown.
"""

import argparse
import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.metrics import BINS, FloatArray, bin_of
from understudy.evaluate.quality import loss
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName

CONFIDENCE = 0.95
IMAGES = (200, 1000, 5000)
DOCUMENTS = (2, 5, 10, 50, 200)
POPULATION = 400_000
SPREAD = 1.5  # of the log-odds that an image gives a model
TOKENS = 400  # of a document of the usual length
NATS = 2.5  # per token, the teacher's
TOKEN_NOISE = 0.35  # of a single token's relative loss
TENTH = 0.1

Generator = np.random.Generator
Arrays = dict[str, FloatArray]


@dataclass(frozen=True)
class Case:
    """A kind of test set: `draw` gives the per-example results of one, with a true loss of the margin or of zero."""

    metric: MetricName
    kind: str
    examples: int
    margin: float
    draw: Callable[[Generator, int, bool], Arrays]


@dataclass(frozen=True)
class Population:
    """Log-odds of the right label that two models give to the same images, and the scales that sharpen them.

    Both are normal, about means of their own; an image that is hard for one is hard for the other (`agreement`).
    """

    means: tuple[float, float]
    scales: tuple[float, float]
    agreement: float

    def roles(self) -> dict[str, FloatArray]:
        """(POPULATION,) log-odds by role, always the same for the same population."""
        odds = {}
        for role, mean, scale, normal in zip(
            ("teacher", "student"), self.means, self.scales, normals(self.agreement), strict=True
        ):
            odds[role] = scale * (mean + SPREAD * normal)
        return odds


@cache
def normals(agreement: float) -> list[FloatArray]:
    """Two standard normals (POPULATION,) whose correlation is the square of `agreement`."""
    generator = np.random.default_rng(5)
    shared = generator.normal(size=POPULATION)
    independent = math.sqrt(1 - agreement**2)
    return [agreement * shared + independent * generator.normal(size=POPULATION) for _ in range(2)]


def image_results(odds: dict[str, FloatArray], metric: MetricName) -> Arrays:
    """Per-example results of images with these log-odds; only the arrays that the metric needs."""
    count = len(odds["teacher"])
    arrays = {"weights.tokens": np.ones(count), "weights.bytes": np.zeros(count)}
    for role, values in odds.items():
        correct = (values > 0).astype(np.float64)
        arrays |= {f"{role}.nll": np.logaddexp(0, -values), f"{role}.correct": correct}
        if metric == "calibration_error":
            confidence = 1 / (1 + np.exp(-np.abs(values)))
            indices = (np.arange(count), bin_of(confidence))
            for part, content in (("count", np.ones(count)), ("sum", confidence), ("correct", correct)):
                arrays[f"{role}.confidence_{part}"] = np.zeros((count, BINS))
                arrays[f"{role}.confidence_{part}"][indices] = content
    return arrays


def true_loss(population: Population, metric: MetricName) -> float:
    """The loss over the whole population."""
    teacher, student = population.roles().values()
    if metric == "accuracy":
        return float(np.mean(teacher > 0) - np.mean(student > 0))
    if metric == "nll":
        return float(np.logaddexp(0, -student).mean() / np.logaddexp(0, -teacher).mean() - 1)
    return _calibration_error(student) - _calibration_error(teacher)


def _calibration_error(odds: FloatArray) -> float:
    confidence = 1 / (1 + np.exp(-np.abs(odds)))
    gaps = np.bincount(bin_of(confidence), (odds > 0) - confidence, BINS)
    return float(np.abs(gaps).sum() / len(odds))


@cache
def losing(teacher: Population, metric: MetricName, margin: float) -> Population:
    """The population whose student has this true loss, by bisection: a lower mean, or an overconfident scale."""
    mean, scale = teacher.means[0], teacher.scales[0]
    near, far = 0.0, 20.0
    for _ in range(25):
        middle = (near + far) / 2
        means, scales = (mean, mean - middle), (scale, scale)
        if metric == "calibration_error":
            means, scales = (mean, mean), (scale, scale * (1 + middle))
        population = Population(means, scales, teacher.agreement)
        near, far = (middle, far) if true_loss(population, metric) < margin else (near, middle)
    assert abs(true_loss(population, metric) - margin) < 1e-4, "no such student in this population"
    return population


def images(metric: MetricName, kind: str, margin: float, mean: float, scale: float, agreement: float) -> Iterator[Case]:
    """Test sets of images, one case for each size."""
    equal = Population((mean, mean), (scale, scale), agreement)

    @cache
    def roles(loses: bool) -> dict[str, FloatArray]:
        return (losing(equal, metric, margin) if loses else equal).roles()

    def draw(generator: Generator, count: int, loses: bool) -> Arrays:
        rows = generator.integers(0, POPULATION, count)
        return image_results({role: values[rows] for role, values in roles(loses).items()}, metric)

    for count in IMAGES:
        yield Case(metric, f"images, {kind}", count, margin, draw)


def documents(metric: MetricName, margin: float, spread: float, share: float) -> Iterator[Case]:
    """Test sets of documents, one case for each size: log-normal lengths, the loss in a share of the documents."""
    lengths = "equal" if spread == 0 else "very unequal"
    location = "all" if share == 1 else "a tenth"
    true = math.log1p(margin) if metric == "perplexity" else margin

    def draw(generator: Generator, count: int, loses: bool) -> Arrays:
        tokens = np.maximum(20, np.round(TOKENS * np.exp(generator.normal(0, spread, count))))
        hurt = generator.random(count) < share
        losses = generator.normal(0, TOKEN_NOISE, count) / np.sqrt(tokens)
        if share == 1:
            losses += generator.normal(0, 0.03, count)  # documents differ in how much they lose
        if loses:
            losses += hurt * true / share
        return _document_results(generator, metric, tokens, losses)

    for count in DOCUMENTS:
        yield Case(metric, f"documents of {lengths} length, the loss in {location}", count, margin, draw)


def _document_results(generator: Generator, metric: MetricName, tokens: FloatArray, losses: FloatArray) -> Arrays:
    nll = tokens * NATS * np.exp(generator.normal(0, 0.15, len(tokens)))
    right = tokens * np.clip(generator.normal(0.45, 0.05, len(tokens)), 0, 1)
    return {
        "weights.tokens": tokens,
        "weights.bytes": np.round(3.6 * tokens),
        "teacher.nll": nll,
        "student.nll": nll * (1 + losses) if metric == "bits_per_byte" else nll + tokens * losses,
        "teacher.correct": right,
        "student.correct": right - tokens * losses,
    }


def passes(case: Case, arrays: Arrays, resamples: int) -> bool:
    """The decision of the gate's rule of quality on one test set."""
    bootstrap = Bootstrap(arrays, ["student", "teacher"], resamples=resamples)
    try:
        return loss(bootstrap, case.metric, "teacher", CONFIDENCE).high <= case.margin
    except Unmeasured:
        return False


def rate(case: Case, loses: bool, sets: int, resamples: int) -> str:
    """The share of test sets that pass, in percent, with its standard error."""
    seed = zlib.crc32(
        f"{case.metric} {case.kind} {case.examples} {loses}".encode()
    )  # test sets of its own for each cell
    generator = np.random.default_rng(seed)
    passed = sum(passes(case, case.draw(generator, case.examples, loses), resamples) for _ in range(sets))
    share = (passed + 1) / (sets + 2)  # an error of zero would claim too much where none or all passed
    return f"{100 * passed / sets:.1f} ± {100 * math.sqrt(share * (1 - share) / sets):.1f}"


def cases() -> Iterator[Case]:
    """Everything that is simulated, in the order of the table."""
    for agreement, word in ((0.9, "much"), (0.6, "little")):
        yield from images("accuracy", f"95 % right, agreeing {word}", 0.02, 2.5, 1.5, agreement)
    for mean, scale, word in (
        (2.5, 1.5, "95 % right"),
        (2.5, 4.0, "95 % right, overconfident"),
        (4.0, 3.0, "99.6 % right"),
    ):
        yield from images("nll", word, 0.05, mean, scale, 0.9)
    for scale, word in ((2.2, "calibrated"), (3.0, "overconfident")):  # calibrated: 2 * mean / SPREAD**2
        yield from images("calibration_error", f"teacher {word}", 0.02, 2.5, scale, 0.9)
    text: tuple[MetricName, ...] = ("bits_per_byte", "perplexity", "accuracy")
    for metric in text:
        for spread in (0.0, 1.5):
            for share in (1.0, TENTH):
                yield from documents(metric, 0.02, spread, share)


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--only", default="", help="only cases whose metric and kind have these words")
    options = parser.parse_args()
    print("| metric | test set | examples | margin | passes at a loss of the margin, % | passes at no loss, % |")
    print("|---|---|---|---|---|---|")
    for case in cases():
        if options.only in f"{case.metric} {case.kind}":
            rates = " | ".join(rate(case, loses, options.sets, options.resamples) for loses in (True, False))
            name = f"{case.metric} | {case.kind} | {case.examples:,} | {case.margin}"
            print(f"| {name} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
