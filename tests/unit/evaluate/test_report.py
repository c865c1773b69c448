import base64
import html
import html.parser
import io
import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.unit.train.profiles import profile
from understudy.evaluate.completions import Completed
from understudy.evaluate.contents import Origin
from understudy.evaluate.gate import Circumstances, decide
from understudy.evaluate.plots import SLICES, smoothed, training_plot
from understudy.evaluate.report import WIDEST, mistakes, si, write
from understudy.evaluate.worst import Example
from understudy.evaluate.worst_answers import WorstAnswer
from understudy.recipe import Gate

EVIL = "<script>alert('1')</script> & \"$x$\" {{ 7 * 7 }}"
HISTORY = [{"step": step, "loss": 2.0 / step, "learning_rate": 1e-3, "grad_norm": 1.0} for step in range(1, 60)]
HISTORIES = {"teacher": HISTORY, "student": HISTORY, "control": HISTORY}


def written(folder, arrays, measures, histories=HISTORIES, name="digits", profiles=None, benchmarks=None):
    folder.mkdir(exist_ok=True)
    verdict = decide(measures, arrays, Gate(), measures["gate_metric"])
    recipe = {"name": name, "task": measures["task"], "seed": 0, "data": {"source": {"path": EVIL}}}
    lineage = {"records": "a" * 64, EVIL: EVIL}
    write(folder, recipe, measures, verdict, histories, lineage, arrays, profiles or {}, benchmarks=benchmarks)
    return (folder / "report.html").read_text(encoding="utf-8")


class Tags(html.parser.HTMLParser):
    VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


@pytest.fixture(scope="module")
def page(tmp_path_factory, images, measured):
    folder = tmp_path_factory.mktemp("report")
    arrays = images(300, {"teacher": 0.98, "student": 0.97, "control": 0.93, "champion": 0.95})
    return folder, written(folder, arrays, measured(arrays, "image-classification"))


def test_the_page_needs_nothing_else(page):
    tags = parsed(page[1])
    sources = [value for name, value in tags.attributes if name in ("src", "href")]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "script" not in tags.seen
    assert "link" not in tags.seen


def test_the_plots_are_saved_and_embedded(page):
    folder, text = page
    names = {path.stem for path in (folder / "plots").iterdir()}
    assert names == {"differences", "quality", "training", "calibration", "slices"}
    for name in names:
        content = (folder / "plots" / f"{name}.png").read_bytes()
        assert base64.b64encode(content).decode() in text
        assert Image.open(io.BytesIO(content)).width == 1728


def test_the_page_gives_the_decision_and_its_reasons(page):
    text = page[1]
    for expected in (
        "Quality against the teacher",
        "Quality against the champion",
        "✓ passed",
        "student − control",
        "The smallest true loss",
        "a" * 64,
        "AMD EPYC",
        "730 images/s",
        "790 kB",
    ):
        assert expected in text
    assert re.search(r"<title>digits: (approved|rejected)</title>", text)


def test_cautions_come_before_the_rules(tmp_path, images, measured):
    arrays = images(600, {"teacher": 0.97, "student": 0.93, "control": 0.99})
    text = written(tmp_path, arrays, measured(arrays, "image-classification"))
    caution = "The control, which was trained without the teacher, is better than the student."
    assert text.index(caution) < text.index("The verdict, rule by rule")
    assert "Quality against the trivial predictor" in text
    assert "&lt; 0" in text


def test_an_unknown_end_is_not_shown(tmp_path, texts, measured):
    arrays = texts(50, {"teacher": 2.3, "student": 2.3})
    arrays["student.nll"] = arrays["teacher.nll"].copy()
    arrays["student.nll"][7] *= 1.2
    text = written(tmp_path, arrays, measured(arrays, "causal-lm"))
    assert "too few test examples carry the difference" in text
    assert "inf " not in text


def test_the_same_evidence_gives_the_same_bytes(tmp_path, texts, measured):
    arrays = texts(60, {"teacher": 2.3, "student": 2.4})
    measures = measured(arrays, "causal-lm")
    first, second = (written(tmp_path / name, arrays, measures) for name in ("a", "b"))
    assert first == second


def test_names_cannot_become_markup(tmp_path, images, measured):
    labels = [EVIL, *(f"{EVIL} {number}" for number in range(SLICES + 3))]
    arrays = images(200, {"teacher": 0.98, "student": 0.97})
    measures = measured(arrays, "image-classification", labels)
    measures["hardware"]["cpu"] = EVIL
    text = written(tmp_path, arrays, measures, name=EVIL)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > len(labels)
    assert "{{ 7 * 7 }}" in text
    parsed(text)


def test_an_unmeasured_metric_is_reported_and_not_drawn(tmp_path, images, measured):
    arrays = images(50, {"teacher": 0.98, "student": 0.97})
    for name in [name for name in arrays if name.startswith("student.")]:
        arrays[name][0] = np.nan
    text = written(tmp_path, arrays, measured(arrays, "image-classification"), histories={})
    assert "<title>digits: rejected</title>" in text
    assert "not measured" in text
    assert "the student&#39;s accuracy was not measured" in text
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == {"quality", "calibration", "slices"}


def test_nothing_measured_at_all_is_a_report_too(tmp_path, images, measured):
    arrays = images(50, {"teacher": 0.98, "student": 0.97})
    for name in [name for name in arrays if not name.startswith("weights.")]:
        arrays[name][0] = np.nan
    measures = measured(arrays, "image-classification")
    measures["slices"] = []
    parsed(written(tmp_path, arrays, measures, histories={"teacher": []}))
    assert list((tmp_path / "plots").iterdir()) == []


def test_a_margin_of_zero_and_equal_models_can_be_drawn(tmp_path, images, measured):
    arrays = images(30, {"teacher": 0.9})
    arrays |= {name.replace("teacher", "student"): array for name, array in arrays.items()}
    measures = measured(arrays, "image-classification")
    verdict = decide(measures, arrays, Gate(margin=0), "accuracy")
    assert not verdict["approved"], "no test set can rule out every loss"
    recipe = {"name": "digits", "task": "image-classification", "seed": 0}
    write(tmp_path, recipe, measures, verdict, {}, {}, arrays, {})
    assert "the student was turned down" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_shows_where_a_steps_time_went_where_that_was_recorded(tmp_path, images, measured):
    arrays = images(30, {"teacher": 0.9, "student": 0.8})
    measures = measured(arrays, "image-classification")
    assert "Where a step" not in written(tmp_path / "plain", arrays, measures)
    fast = profile(mfu=0.4321, no_mfu="", device=EVIL)
    page = written(tmp_path / "profiled", arrays, measures, profiles={"teacher": profile(), "student": fast})
    tags = parsed(page)
    assert "Where a step's time went" in page
    assert "80 ms<small>100 ms recorded" in page
    assert "43.2 %" in page
    assert "No MFU: the peak speed of this CPU is not known." in page
    assert "script" not in tags.seen
    assert "asking the teacher" not in page, "no training has asked one"
    widths = [float(share) for share in re.findall(r"width: ([0-9.]+)%; background", page)]
    assert sum(widths) == pytest.approx(200)


def test_the_validation_loss_is_drawn_where_it_was_measured():
    points = [{"step": step, "loss": 1 / step} for step in range(1, 9)]
    measured = [
        {**point, "validation_loss": 1.5 / point["step"]} if point["step"] % 4 == 0 else point for point in points
    ]
    figure = training_plot({"teacher": points, "student": measured})
    plain, validated = figure.axes
    assert len(plain.lines) == 2
    assert validated.lines[-1].get_xydata().tolist() == [[4, 1.5 / 4], [8, 1.5 / 8]]


def test_steps_that_were_skipped_are_marked_and_counted_and_are_no_part_of_the_curve():
    points = [
        {**point, "skipped": {7: 1, 9: 2}[point["step"]]} if point["step"] in (7, 9) else point for point in HISTORY
    ]
    points[8].pop("loss")
    points[20] = {**points[20], "passed_over": 5}
    axes = training_plot({"teacher": points}).axes[0]
    assert axes.get_title() == "teacher\n2 steps skipped\n5 batches passed over"
    assert {7.0, 9.0} & set(axes.lines[0].get_xdata()) == set()
    assert [line.get_xdata()[0] for line in axes.lines[2:]] == [7, 9]


def test_smoothing_keeps_a_line_and_damps_noise():
    line = np.linspace(3, 1, 200)
    np.testing.assert_allclose(smoothed(line)[5:-5], line[5:-5])
    noise = np.random.default_rng(0).normal(0, 1, 400)
    assert smoothed(noise).std() < 0.4
    np.testing.assert_array_equal(smoothed(np.array([1.0, 5.0])), [1, 5])


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1_234_567, "B", "1.23 MB"),
        (999, "B", "999 B"),
        (730.4, "", "730"),
        (4.2e9, "FLOP", "4.2 GFLOP"),
        (None, "B", "not measured"),
    ],
)
def test_sizes_are_shown_with_a_prefix(value, unit, shown):
    assert si(value, unit) == shown


def page_of(folder, arrays, measures, around, margin=0.02):
    folder.mkdir(exist_ok=True)
    verdict = decide(measures, arrays, Gate(margin=margin), measures["gate_metric"], around)
    recipe = {"name": "digits", "task": measures["task"], "seed": 0}
    write(folder, recipe, measures, verdict, HISTORIES, {}, arrays, {})
    return html.unescape((folder / "report.html").read_text(encoding="utf-8"))


def test_a_student_that_its_control_beats_is_shown_with_advice(tmp_path, images, measured):
    arrays = images(600, {"teacher": 0.97, "student": 0.7, "control": 0.8})
    measures = measured(arrays, "image-classification")
    text = page_of(tmp_path, arrays, measures, Circumstances(judged=12), margin=0.5)
    assert "digits: the student was turned down" in text
    assert "<b>rejected by quality-against-control; not compared with what you serve" in text
    assert "Not worse than the control" in text
    assert "What to change:" in text
    assert "register.control=true" in text
    assert "The student recovered −" in text
    assert "It is number 12 of those that this store has judged" in text
    assert "This test split wears out" in text
    put_up = page_of(tmp_path, arrays, measures, Circumstances(candidate="control"), margin=0.5)
    assert "digits: the control may step in" in put_up
    assert "control's accuracy" in put_up
    assert "What to change:" not in put_up


def test_a_champion_of_another_origin_is_compared_though_it_has_no_measures(tmp_path, images, measured):
    arrays = images(600, {"teacher": 0.97, "student": 0.97})
    measures = measured(arrays, "image-classification")
    arrays["champion.correct"] = arrays["teacher.correct"]
    text = page_of(tmp_path, arrays, measures, Circumstances(foreign="digits version 3"))
    assert "student − champion" in text
    assert "its size and speed were not measured" in text


def test_the_report_says_when_there_is_no_gap(tmp_path, images, measured):
    arrays = images(600, {"teacher": 0.8, "student": 0.8, "control": 0.8})
    text = page_of(tmp_path, arrays, measured(arrays, "image-classification"), Circumstances())
    assert "There was no gap to recover" in text


def test_the_evidence_of_registration_has_a_section_in_a_report_and_is_only_text(page):
    from understudy.registry import evidence

    figures = {"examples": 32, "predictions": 1234, "largest_difference": 1e-6, "largest_share_of_tolerance": 0.01}
    paragraph = evidence.served({"pyfunc": figures, "transformers": figures, "note": "<b>a note</b>"})
    text = page[1]
    complete = evidence.report_with(text, paragraph)
    parsed(complete)
    assert (text.count("What is served"), complete.count("What is served")) == (0, 1)
    assert "32 test examples with 1,234 predictions" in complete
    assert "&lt;b&gt;a note" in complete
    assert "was not scored when it was registered: its model was measured in shards" in evidence.served(
        evidence.UNSCORED
    )


def page_about(folder, arrays, measures, origin, examples, completions=(), answers=(), learned=()):
    verdict = decide(measures, arrays, Gate(), measures["gate_metric"])
    recipe = {"name": "digits", "task": measures["task"], "seed": 0}
    write(folder, recipe, measures, verdict, {}, {}, arrays, {}, origin, examples, completions, answers, learned)
    return (folder / "report.html").read_text(encoding="utf-8")


ORIGIN = Origin("2026-11-28 06:40 UTC", "digits-1", "understudy 0.1.0", {"source": "image-folder", "licence": "mit"})


@pytest.fixture(scope="module")
def confused(images, measured):
    """Arrays and measures with a confusion matrix of three labels."""
    arrays = images(60, {"teacher": 0.98, "student": 0.9})
    measures = measured(arrays, "image-classification")
    measures["slices"] = []
    counts = [[18, 2, 0], [0, 19, 1], [0, 0, 20]]
    return arrays, {**measures, "confusion": {"labels": ["a", "b", "c"], "counts": counts}}


EXAMPLE = Example(7, "3f2a9c81d0e4", "aGVsbG8=", "a text", "a label", "0.52 bits per byte", "0.31 bits per byte")
COMPLETED = Completed(4, "a beginning", {"data": "goes on so", "student": "writes this"})
ANY = st.text(min_size=1) | st.sampled_from([EVIL, '"><img src=x onerror=alert(1)>', "</pre></style><script>", "' x='"])


@settings(max_examples=15, deadline=None)
@given(words=st.lists(ANY, min_size=11, max_size=11), task=st.sampled_from(["image-classification", "causal-lm"]))
def test_no_word_of_the_data_becomes_markup(words, task, tmp_path_factory, confused):
    """Labels, texts, paths, licences: the page has the same tags and attributes, for any values of them."""
    folder = tmp_path_factory.mktemp("evil")
    arrays, measures = confused
    labels, name = [f"{word}{index}" for index, word in enumerate(words[:3])], f"{words[7]}!"
    evil = Example(7, "3f2a9c81d0e4", "aGVsbG8=", words[4], words[5], "1", "2")
    pages = []
    for run, answers, example, completion, data in (
        ("run", ["a", "b", "c"], EXAMPLE, COMPLETED, {"source": "image-folder", "path": "here"}),
        (
            words[3],
            labels,
            evil,
            Completed(1, words[9], {"data": "1", "student": words[10]}),
            {"source": words[6], name: words[8]},
        ),
    ):
        confusion = {**measures["confusion"], "labels": answers}
        changed = {**measures, "task": task, "confusion": confusion}
        with patch("understudy.evaluate.report.draw", return_value={}):  # pictures, which take seconds
            pages.append(page_about(folder, arrays, changed, Origin("now", run, run, data), [example], [completion]))
    plain, attacked = map(parsed, pages)
    assert attacked.seen == plain.seen
    assert [name for name, _ in attacked.attributes] == [name for name, _ in plain.attributes]


def test_the_page_gives_the_time_the_version_and_the_data(tmp_path, confused):
    text = page_about(tmp_path, *confused, ORIGIN, [EXAMPLE])
    assert "judged 2026-11-28 06:40 UTC · run digits-1 · understudy 0.1.0" in text
    assert re.search(r"licence</th><td>mit</td>", text)
    assert "not known" in page_about(tmp_path, *confused, Origin("now", "run", "tool", {"source": "digits"}), [])


def test_mistakes_are_in_a_matrix_with_the_most_frequent_first(tmp_path, confused):
    arrays, measures = confused
    text = page_about(tmp_path, arrays, measures, ORIGIN, [])
    rows = re.findall(r"<tr><th>(\w)</th>(.*?)</tr>", text.split('class="matrix"')[1].split("</table>")[0])
    cells = {label: re.findall(r">(\d+|·)</td>", cells) for label, cells in rows}
    assert cells == {"a": ["18", "2", "·"], "b": ["·", "19", "1"], "c": ["·", "·", "20"]}
    assert "a taken for b (2), b taken for c (1)." in text
    many = [str(number) for number in range(WIDEST + 1)]
    counts = np.eye(len(many), dtype=int)
    counts[0, 3] = 5
    text = page_about(
        tmp_path, arrays, {**measures, "confusion": {"labels": many, "counts": counts.tolist()}}, ORIGIN, []
    )
    assert 'class="matrix"' not in text
    assert "0 taken for 3 (5)." in text
    assert mistakes(None) == []


def test_a_worst_picture_is_shown_with_its_label_and_the_models_answers(tmp_path, confused):
    text = page_about(tmp_path, *confused, ORIGIN, [EXAMPLE])
    assert "data:image/png;base64,aGVsbG8=" in text
    assert "<b>a label</b><br>student 0.52 bits per byte<br>teacher 0.31" in text


def test_a_worst_text_of_a_classifier_has_its_label_and_the_students_prediction(tmp_path, confused):
    arrays, measures = confused
    wrong = Example(
        7, "3f2a9c81d0e4", text="a text", label="billing", prediction="delivery", student="2 %", teacher="9 %"
    )
    text = page_about(tmp_path, arrays, {**measures, "task": "text-classification"}, ORIGIN, [wrong])
    assert "<h2>Texts that the student gets most wrong</h2>" in text
    assert "wrong answers whose label it finds least likely" in text
    assert "label <b>billing</b>, predicted <b>delivery</b>, student 2 %, teacher 9 %" in text
    assert "bits per byte" not in text
    assert "farthest behind" not in text


def test_a_worst_text_of_a_language_model_has_its_bits_per_byte(tmp_path, confused):
    arrays, measures = confused
    text = page_about(tmp_path, arrays, {**measures, "task": "causal-lm"}, ORIGIN, [replace(EXAMPLE, picture="")])
    assert "<h2>Texts on which the student is farthest behind its teacher</h2>" in text
    assert "student 0.52 bits per byte, teacher 0.31 bits per byte" in text
    assert "predicted" not in text


def test_completions_stand_below_the_data(tmp_path, confused):
    text = page_about(tmp_path, *confused, ORIGIN, [], [COMPLETED])
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td>(.*?)</td></tr>", text.split("How the models go on")[1])
    assert rows[:3] == [
        ("image 4", "<b>a beginning</b>"),
        ("the data goes on", "goes on so"),
        ("student", "writes this"),
    ]
    assert "How the models go on" not in page_about(tmp_path, *confused, ORIGIN, [])


def test_the_learned_parts_of_conversations_are_marked_and_no_markup(tmp_path, confused):
    parts = [("user\n<b>why", False), ("\x1b[31mfor" + "y" * 2000, True)]
    text = page_about(tmp_path, *confused, ORIGIN, [], learned=[parts])
    assert "user\n&lt;b&gt;why<mark>\\x1b[31mfor" in text
    assert "y" * 600 not in text
    assert " … yyy" in text


def test_the_worst_answers_stand_beside_the_teachers_and_are_no_markup(tmp_path, confused):
    answer = WorstAnswer(7, "what <b>is</b> it?", "a list", "a <i>set", "a list", "chrF", "12.50 %", "100.00 %", "ab12")
    text = page_about(tmp_path, *confused, ORIGIN, [], answers=[answer])
    assert "Answers that fall farthest behind the teacher" in text
    assert "what &lt;b&gt;is&lt;/b&gt; it?" in text
    assert "<th>student, 12.50 %</th><td>a &lt;i&gt;set</td>" in text
    assert "<th>teacher, 100.00 %</th><td>a list</td>" in text


def test_of_several_teachers_the_page_names_the_one_that_counts_and_compares_with_all(tmp_path, images, measured):
    arrays = images(300, {"teacher": 0.98, "student": 0.97, "control": 0.93})
    measures = measured(arrays, "image-classification")
    arrays |= {name.replace("teacher.", "wide."): values for name, values in arrays.items() if "teacher." in name}
    measures["models"]["wide"] = {**measures["models"]["teacher"], "digest": "e" * 64}
    for row in measures["slices"]:
        row["wide"] = row["teacher"]
    measures["reference"] = "deep"
    text = written(tmp_path / "several", arrays, measures)
    assert "Of the teachers, deep is the one that the student was compared with" in text
    assert text.count("<h3>") == written(tmp_path / "one", *one_teacher(images, measured)).count("<h3>") + 1
    assert "Of the teachers" not in written(tmp_path / "again", *one_teacher(images, measured))


def one_teacher(images, measured):
    arrays = images(300, {"teacher": 0.98, "student": 0.97, "control": 0.93})
    return arrays, measured(arrays, "image-classification")


def test_a_latency_that_is_not_reliable_says_so_in_its_tile(tmp_path, images, measured):
    arrays = images(300, {"teacher": 0.97, "student": 0.96})
    measures = measured(arrays, "image-classification")
    assert "of the teacher&#39;s 4.21 ms<" in written(tmp_path / "steady", arrays, measures)
    measures["models"]["teacher"]["latency"] |= {"min_ms": 1.15, "p95_ms": 28.5}
    assert "of the teacher&#39;s 4.21 ms, not reliable<" in written(tmp_path / "noisy", arrays, measures)


def test_scores_on_tasks_of_lm_eval_are_a_table(tmp_path, images, measured):
    def model(value, stderr):
        score = {"metric": "acc", "filter": "<b>", "value": value, "stderr": stderr}
        return {"digest": "7", "tasks": {"colours": [score]}}

    benchmarks = {
        "lm_eval": "0.4.13",
        "chat_template": True,
        "tasks": {"colours": {"examples": 1234, "num_fewshot": 2, "higher_is_better": {"acc": True}}},
        "models": {"teacher": model(0.75, 0.125), "student": model(0.5, None), "control": model(None, None)},
    }
    arrays = images(200, {"teacher": 0.98, "student": 0.97})
    measures = measured(arrays, "image-classification")
    text = written(tmp_path, arrays, measures, benchmarks=benchmarks)
    parsed(text)
    section = text.partition("Tasks of lm-eval")[2].partition("</section>")[0]
    cells = [" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in re.findall("<t[hd].*?</t[hd]>", section, re.S)]
    assert cells == [
        *("Task", "Metric", "teacher", "student", "control"),
        *("colours 1,234 documents, 2-shot", "acc.&lt;b&gt; ↑", "0.75 ± 0.125", "0.5", "not measured"),
    ]
    assert "prompts by the chat template" in section
    assert "The gate does not decide by these scores." in section
    assert "lm-eval" not in written(tmp_path, arrays, measures)
