"""The ladder: up while there is doubt, and back to the last answer where a rung breaks."""

from natvi.judge.ladder import BrokenRungError, Stage, climb, doubts_in
from natvi.judge.trust import Trust


def stay(stage: Stage, trouble: str) -> Stage:
    return Stage(f"{stage.answer}, since {trouble}", stage.concerns, stage.doubts)


def test_an_answer_without_doubt_stays() -> None:
    assert climb(Stage("first", ()), [lambda below: Stage("second", ())], stay).answer == "first"


def test_rungs_are_taken_while_there_is_doubt() -> None:
    rungs = [lambda below: Stage("second", (), ("why",)), lambda below: Stage(f"third after {below.answer}", ())]
    assert climb(Stage("first", (), ("why",)), rungs, stay).answer == "third after second"


def test_a_rung_that_breaks_leaves_the_answer() -> None:
    def broken(below: Stage) -> Stage:
        raise BrokenRungError("it broke")

    assert climb(Stage("first", (), ("why",)), [broken], stay).answer == "first, since it broke"


def test_doubts_are_the_reasons_of_what_is_not_good() -> None:
    assert doubts_in((Trust("good", ("a",)), Trust("do not use", ("b",)))) == ("b",)
