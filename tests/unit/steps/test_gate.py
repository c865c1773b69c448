from understudy.steps.champion import FILE
from understudy.steps.gate import GATE
from understudy.store import Run, Store
from understudy.store.files import write_json


def test_why_a_champion_was_not_measured_decides_the_verdict(store: Store, run: Run) -> None:
    assert GATE.outside(run, store, {}).facts == {}
    write_json(run.folder / FILE, {"problem": ""})
    assert GATE.outside(run, store, {}).facts == {}
    write_json(run.folder / FILE, {"problem": "no answer"})
    assert GATE.outside(run, store, {}).facts == {"champion_problem": "no answer"}
