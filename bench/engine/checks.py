"""Checks: tips that are answered pass, warn or fail instead of being timed."""

from collections.abc import Collection

from bench.engine import clock
from bench.engine.arm import Call
from bench.engine.processes import ArmFailed
from bench.engine.replicate import Bench
from bench.records.measurements import CHECK, Turn
from bench.tips.tip import Tip, Variant
from bench.workloads.work import CheckResult


def run_checks(bench: Bench, tip: Tip, variants: Collection[Variant]) -> None:
    """Answer a check's variants, each in a process of its own, and record a row for each."""
    for variant in variants:
        try:
            result = _answer(bench, tip, variant)
        except ArmFailed as failure:
            bench.record(answer_row(bench, tip, variant, status="failed", reason=failure.reason))
        else:
            bench.record(
                answer_row(
                    bench,
                    tip,
                    variant,
                    verdict=result.verdict,
                    reason=result.reason,
                    evidence=result.evidence,
                )
            )


def _answer(bench: Bench, tip: Tip, variant: Variant) -> CheckResult:
    assert tip.check is not None
    arm = bench.processes.start(
        cores=bench.cores,
        threads=bench.context.threads,
        fresh=variant.fresh,
        environment=variant.environment,
    )
    try:
        arguments = (variant.settings, bench.context)
        answer: CheckResult = arm.ask(Call(function=tip.check, arguments=arguments))
        return answer
    finally:
        bench.processes.end(arm)


def answer_row(bench: Bench, tip: Tip, variant: Variant, **columns: object) -> Turn:
    """The row of ``measurements.csv`` that holds the answer to one question."""
    return Turn(
        run_id=bench.run_id,
        machine_id=bench.machine_id,
        tip=tip.id,
        workload=CHECK,
        variant=variant.name,
        is_baseline=False,
        ended_at=clock.date(),
        **columns,  # type: ignore[arg-type]
    )
