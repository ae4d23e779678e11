import pytest

from atoll.agent.interpreter.kernels.atoll_kernel import failures


def _raised(code: str, name: str = "<cell 1>") -> BaseException:
    try:
        exec(compile(code, name, "exec"), {})
    except BaseException as error:
        return error
    pytest.fail("nothing was raised")


def test_the_line_is_that_of_the_code() -> None:
    found = failures.describe(_raised("def f():\n    1/0\n\nf()"), "<cell 1>")
    assert (found["name"], found["lineNumber"]) == ("ZeroDivisionError", 2)
    assert found["traceback"][-1] == "ZeroDivisionError: division by zero"
    assert failures.describe(_raised("x ="), "<cell 1>")["lineNumber"] == 1
    assert failures.line_number(ValueError(), "<cell 1>") is None


def test_an_exception_without_a_text_is_told() -> None:
    code = "class E(Exception):\n    def __str__(self): raise ValueError\nraise E"
    assert failures.describe(_raised(code), "<cell 1>")["message"] == "<its text cannot be had>"


def test_a_traceback_without_end_is_cut() -> None:
    found = failures.describe(ValueError("x"), "c", [str(n) for n in range(10_000)])
    assert len(found["traceback"]) == failures.MAX_LINES + 1
