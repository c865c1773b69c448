from understudy.kube.quantities import amount, seconds


def test_quantities() -> None:
    assert [float(amount(text)) for text in ("500m", "2", "1Ki", "1.5Gi", "3k")] == [0.5, 2, 1024, 1.5 * 2**30, 3000]


def test_times() -> None:
    assert seconds("1970-01-01T00:01:00Z") == seconds("1970-01-01T01:01:00+01:00") == 60
