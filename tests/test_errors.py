from canet.errors import unknown_name


def test_unknown_name_puts_the_nearest_first_and_lists_all_in_one_line() -> None:
    message = str(unknown_name("task", "cita", ["cora", "citeseer", "arxiv"]))
    assert message == "unknown task 'cita': valid are cora, citeseer, arxiv"
    message = str(unknown_name("task", "citeser", ["cora", "citeseer", "arxiv"]))
    assert message == (
        "unknown task 'citeser': did you mean 'citeseer'? valid are cora, citeseer, arxiv"
    )


def test_unknown_name_takes_any_iterable() -> None:
    message = str(unknown_name("method", "errm", iter(["erm", "canet"])))
    assert message == "unknown method 'errm': did you mean 'erm'? valid are erm, canet"
