from tests.unit.launch.kubernetes.rendered import RUN
from understudy.kube.identity import Identity


def test_names_differ_by_run_and_by_work_and_by_nothing_else() -> None:
    names = {RUN.name, Identity("other", RUN.step, RUN.key).name, Identity(RUN.run, RUN.step, "f" * 64).name}
    assert len(names) == 3
    assert Identity(RUN.run, RUN.step, RUN.key).name == RUN.name
    assert all(len(f"{name}-worker-999") <= 63 and name[0].isalpha() for name in names)
