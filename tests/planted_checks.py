"""A check with known answers: what must be recorded, shown and survived."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.tips.tip import Tip, Variant
from bench.workloads.work import CheckResult, Context


def tip(questions: Mapping[str, str], tip_id: str = "asked") -> Tip:
    """A check: question → "pass", "warn", "fail", "raise", "die" or "unmet"."""
    return Tip(
        id=tip_id,
        section="Environment",
        order=1,
        claim="a planted claim",
        card="A planted card.",
        variants=tuple(
            Variant(
                name=question,
                settings={"answer": answer},
                needs=(unmet,) if answer == "unmet" else (),
            )
            for question, answer in questions.items()
        ),
        check=check,
    )


def unmet(context: Context) -> str:
    """A need that no machine meets."""
    return "needs a unicorn"


def check(settings: Mapping[str, Any], context: Context) -> CheckResult:
    """Answer as the settings ask, and leave a mark in the cache folder for each time asked."""
    answer = settings["answer"]
    if context.cache != Path():
        with (context.cache / "asked.txt").open("a") as file:
            file.write(f"{answer}\n")
    match answer:
        case "raise":
            raise ValueError(f"nothing to read in {Path.home()}/somewhere")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return CheckResult(
        verdict=answer,
        reason=f"seen: {answer} | <b>" + ("" if answer == "pass" else ". Do this."),
        evidence={"value": 1, "place": f"{Path.home()}/data"},
    )
