"""One run from its options to its report: what the two ways in, ``cli`` and ``pytest``, share."""

import dataclasses
import functools
import multiprocessing
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from bench import reporting, resuming
from bench.analysis.stopping import is_narrow_enough
from bench.engine import clock
from bench.engine.checks import answer_row, run_checks
from bench.engine.processes import ArmFailed, Processes
from bench.engine.replicate import Bench, Group, Pace
from bench.engine.rounds import End, Progress, remaining_seconds, run_rounds
from bench.errors import UserError
from bench.options import PROFILES, Options, check_options
from bench.records import machine
from bench.records.effects import Effect
from bench.records.measurements import (
    CHECK,
    MeasurementWriter,
    Turn,
    read_measurements,
    read_turns,
)
from bench.records.plan import Plan, PlannedTip, PlannedVariant, PlannedWorkload, write_plan
from bench.records.privacy import scrubbed
from bench.records.run_folder import RESULTS, RunFolder, made
from bench.tips import catalogue
from bench.tips.tip import Tip, Variant, Workload
from bench.workloads.corpus import checksum, prepare
from bench.workloads.device import probe
from bench.workloads.models import (
    check_model,
    folder_of_model,
    model_label,
    model_name,
    with_absolute_path,
)
from bench.workloads.nvml import Gpu
from bench.workloads.ranks import nodes
from bench.workloads.scan import scan
from bench.workloads.work import NO_IMAGES, Context, Images

_PREPARE_SECONDS = 1800.0
_START_ON_GPU_SECONDS = 3.0
_SERVE_SECONDS = 7 * 86400.0


class Session:
    """A run: ``prepare`` makes the plan, ``measure`` the measurements, ``conclude`` the report.

    Use it as a context manager: leaving it ends every process that it started.
    """

    def __init__(self, options: Options) -> None:
        self._resumed: tuple[RunFolder, Plan] | None = None
        if options.resume is not None:
            folder = RunFolder.existing(options.resume)
            plan = folder.read_plan()
            options = resuming.options_of(plan, options)
            self._resumed = folder, plan
        check_options(options)
        self.options = options
        self.profile = PROFILES[options.profile]
        self.processes = Processes()
        self.cores = machine.core_ids()
        self.folder: RunFolder
        """Where the run is kept; there once ``is_prepared``."""
        self.is_prepared = False
        self.end: End | None = None
        self.resumed_replicates = 0
        """Finished replicates of a resumed run: they are not measured again."""
        self._deadline = (
            None if options.budget_seconds is None else clock.now() + options.budget_seconds
        )
        self._stack = ExitStack()
        self._turns: list[Turn] = []

    def __enter__(self) -> "Session":
        self._stack.enter_context(self.processes)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @functools.cached_property
    def _probed(self) -> dict[str, Any]:
        wanted = self.options.device
        try:
            found: dict[str, Any] = self.processes.call(probe, wanted, cores=self.cores)
        except ArmFailed as failure:
            raise UserError(
                f"torch cannot be used here: {failure}.",
                'Try: python -c "import torch, torchvision"',
            ) from failure
        if wanted is not None and wanted != found["device"]:
            raise UserError(
                f"--device {wanted}: {found['cuda_reason']}.", "Leave --device out, or give cpu."
            )
        return found

    @functools.cached_property
    def gpu(self) -> Gpu | None:
        """The GPU that torch uses, as NVML sees it."""
        return Gpu.find(self._probed.get("gpu_uuid"))

    @functools.cached_property
    def device(self) -> dict[str, Any]:
        """What ``bench.workloads.device.probe`` saw, without what names this one machine."""
        driver = self.gpu.driver_version() if self.gpu else None
        return {k: v for k, v in self._probed.items() if k != "gpu_uuid"} | {
            "driver_version": driver
        }

    @functools.cached_property
    def pace(self) -> Pace:
        """The profile's pace, with what starting an arm takes on this device."""
        pace = self.profile.pace
        if self.device["device"] == "cpu":
            return pace
        return dataclasses.replace(pace, start_seconds=_START_ON_GPU_SECONDS)

    @property
    def environment(self) -> dict[str, Any]:
        """The machine and its software, as ``environment.json`` holds them."""
        return machine.environment(self.device)

    @functools.cached_property
    def context(self) -> Context:
        """What the arms are told, without the images: enough for the catalogue.

        Raises UserError for a device or a model that there isn't.
        """
        options, on_cuda = self.options, self.device["device"] != "cpu"
        model = None if options.model is None else with_absolute_path(options.model)
        if model is not None:
            self.processes.call(check_model, model, cores=self.cores)
        return Context(
            images=NO_IMAGES,
            cache=made(
                machine.cache_folder(),
                "cache folder",
                "Set XDG_CACHE_HOME to a folder that you may read and write.",
            ),
            seed=options.seed,
            threads=machine.usable_cores(),
            cores=machine.usable_cores(),
            physical_cores=machine.physical_cores(),
            start_method=multiprocessing.get_all_start_methods()[0],
            torch_threads=self.device["default_threads"],
            device=self.device["device"],
            batch_size=options.batch_size or (32 if on_cuda else 8),
            image_size=options.image_size,
            model=model,
            storage=options.storage,
            gpus=self.device["gpu_count"],
            nnodes=options.nnodes,
            rdzv_endpoint=options.rdzv_endpoint,
            machine_id=machine.machine_id(),
            stopwatch=clock.stopwatch,
        )

    @functools.cached_property
    def tips(self) -> tuple[Tip, ...]:
        """The chosen tips, as they stand on this machine."""
        chosen = self.options.tips
        return tuple(tip for tip in catalogue(self.context) if not chosen or tip.id in chosen)

    @property
    def resumed_plan(self) -> Plan | None:
        """The plan of the run that goes on, if one does."""
        return self._resumed[1] if self._resumed else None

    def unmet_needs(self, tips: Sequence[Tip]) -> dict[tuple[str, str], str]:
        """Why variants cannot be measured here: (tip, variant) → reason."""
        found = self._unmet([(tip.id, variant) for tip in tips for variant in tip.variants])
        for tip in tips:
            if not tip.is_check:
                own = {name: reason for (tip_id, name), reason in found.items() if tip_id == tip.id}
                reasons = _without_partner(tip, own)
                found |= {(tip.id, name): reason for name, reason in reasons.items()}
        return found

    def unmet_workloads(self, tips: Sequence[Tip]) -> dict[tuple[str, str], str]:
        """Why workloads cannot be measured here with any variant: (tip, workload) → reason."""
        return self._unmet([(tip.id, its) for tip in tips for its in tip.workloads if its.needs])

    def _unmet(self, parts: Sequence[tuple[str, Variant | Workload]]) -> dict[tuple[str, str], str]:
        """Asked in a process of their own, by tip and part.

        Where a library crashes that process, each half is asked again: it takes no other part
        along.
        """
        if not parts:
            return {}
        try:
            found: dict[tuple[str, str], str] = self.processes.call(
                _unmet, parts, self.context, cores=self.cores
            )
        except ArmFailed as failure:
            if len(parts) == 1:
                ((tip, part),) = parts
                return {(tip, part.name): f"its needs cannot be seen: {failure}"}
            middle = len(parts) // 2
            return self._unmet(parts[:middle]) | self._unmet(parts[middle:])
        return found

    def prepare(self, selected: Collection[tuple[str, str]]) -> Plan:
        """Prepare the images, find out what is measurable, make the run folder, write the plan.

        ``selected``: (tip, variant) pairs; baselines are added. Raises UserError for a
        folder of images or a run folder that cannot be used.
        """
        tips = [
            dataclasses.replace(
                tip,
                variants=tuple(
                    v
                    for v in tip.variants
                    if (tip.id, v.name) in selected or (v is tip.baseline and not tip.is_check)
                ),
            )
            for tip in self.tips
            if any(tip_id == tip.id for tip_id, _ in selected)
        ]
        self.context = dataclasses.replace(self.context, images=self.images())
        environment = self.environment
        if self._resumed:
            folder, plan = self._resumed
            resuming.check_same(plan, self.context.images, environment, folder)
            self._turns = read_turns(folder.measurements) if folder.measurements.exists() else []
        else:
            plan = self.new_plan(tips, self.unmet_needs(tips) | self.unmet_workloads(tips))
            folder = RunFolder.new(
                self.options.out, results=RESULTS, machine_name=environment["machine_name"]
            )
            write_plan(folder.plan, plan)
            folder.write_environment(environment)
        self.folder, self.plan, self.is_prepared = folder, plan, True
        unmet = {
            (tip.id, part.name)
            for tip in plan.tips
            for part in tip.parts
            if part.reason is not None
        }
        self._groups = [
            Group(tip=tip, workload=workload, variants=measurable)
            for tip in tips
            for workload in tip.workloads
            if (tip.id, workload.name) not in unmet
            if (measurable := tuple(v for v in tip.variants if (tip.id, v.name) not in unmet))
        ]
        self._checks = [
            (tip, unanswered)
            for tip in tips
            if tip.is_check
            and (
                unanswered := [
                    v
                    for v in tip.variants
                    if (tip.id, v.name) not in unmet and not self.turns(tip.id, CHECK, v.name)
                ]
            )
        ]
        pace = self.pace
        self._standings = {
            group.key: resuming.standing(self._turns, group, pace.blocks_of(group.workload))
            for group in self._groups
        }
        self.resumed_replicates = sum(
            standing.done.get(group.tip.baseline.name, 0)
            for group in self._groups
            for standing in [self._standings[group.key]]
        )
        return plan

    @property
    def expected_seconds(self) -> float:
        """What measuring will take at least, as far as it can be told before anything has run."""
        return sum(
            remaining_seconds(self.pace, group, self.profile.policy, self._standings[group.key])
            for group in self._groups
        )

    def measure(self, on_progress: Callable[[Progress], None] = lambda progress: None) -> End:
        """Ask the checks' questions, then measure in rounds.

        Every answer and every finished turn is in ``measurements.csv`` when it ends.
        """
        writer = MeasurementWriter(self.folder.measurements)
        try:
            bench = self.bench(self.plan.run_id, functools.partial(self._record, writer))
            for tip, questions in self._checks:
                run_checks(bench, tip, questions)
            self.end = run_rounds(
                bench,
                self._groups,
                self.profile.policy,
                standings=self._standings,
                is_settled=self._is_settled,
                deadline=self._deadline,
                on_progress=on_progress,
            )
            return self.end
        finally:
            writer.close()
            if self.options.nnodes > 1:
                # A node that cannot be told stops by itself after a while.
                with suppress(ArmFailed):
                    self.processes.call(nodes.dismiss, self.context, cores=self.cores)

    def serve(self) -> int:
        """Take part in what the first node measures until it is done; how many jobs there were.

        Raises UserError when the first node is not heard of.
        """
        try:
            jobs: int = self.processes.call(
                nodes.serve,
                self.context,
                self.options.node_rank,
                cores=self.cores,
                timeout=_SERVE_SECONDS,
            )
        except ArmFailed as failure:
            raise UserError(
                f"This node cannot take part: {failure}",
                "Type the same command on every node, with its own --node-rank.",
            ) from failure
        return jobs

    def answers(self, tip: Tip) -> list[Turn]:
        """Ask the questions of a check outside a run: a row each, also for what can't be asked."""
        unmet = self.unmet_needs([tip])
        found: dict[str, Turn] = {}
        bench = self.bench("", lambda turn: found.update({turn.variant: scrubbed(turn)}))
        run_checks(bench, tip, [v for v in tip.variants if (tip.id, v.name) not in unmet])
        return [
            found.get(v.name)
            or answer_row(bench, tip, v, status="not measurable here", reason=unmet[tip.id, v.name])
            for v in tip.variants
        ]

    def bench(self, run_id: str, record: Callable[[Turn], None]) -> Bench:
        """What the engine needs to measure replicates on this machine."""
        return Bench(
            processes=self.processes,
            context=self.context,
            cores=self.cores,
            pace=self.pace,
            run_id=run_id,
            machine_id=machine.machine_id(),
            record=record,
            gpu=self.gpu,
        )

    def turns(self, tip: str, workload: str, variant: str) -> list[Turn]:
        """The rows that were recorded for a variant, those of a resumed run included."""
        return [
            turn
            for turn in self._turns
            if (turn.tip, turn.workload, turn.variant) == (tip, workload, variant)
        ]

    def conclude(self) -> list[Effect]:
        """Write ``effects.csv``, the reports and the figures from what was measured so far."""
        return reporting.conclude(self.folder)

    def _record(self, writer: MeasurementWriter, turn: Turn) -> None:
        own = [path for path in (self.options.data, *self.options.storage) if path is not None]
        own += folder_of_model(self.options.model)
        turn = scrubbed(turn, own)
        self._turns.append(turn)
        writer.append(turn)

    def _is_settled(self, group: Group, variant: Variant) -> bool:
        tip = next(tip for tip in self.plan.tips if tip.id == group.tip.id)
        return is_narrow_enough(
            self._measurements(len(self._turns)),
            self.plan,
            tip,
            next(w for w in tip.workloads if w.name == group.workload.name),
            next(v for v in tip.variants if v.name == variant.name),
        )

    @functools.lru_cache(maxsize=1)  # noqa: B019 - a session lives as long as its program
    def _measurements(self, rows: int) -> Any:
        """The frame of the first ``rows`` recorded turns, read once however often it is asked."""
        return read_measurements(self.folder.measurements)

    def images(self) -> Images:
        """The embedded corpus, or the user's own images after their scan; UserError if none."""
        count = self.profile.images
        if self.options.data is None:
            get = functools.partial(prepare, machine.cache_folder(), count)
        else:
            get = functools.partial(scan, self.options.data, limit=count, seed=self.options.seed)
        try:
            images: Images = self.processes.call(get, cores=self.cores, timeout=_PREPARE_SECONDS)
        except ArmFailed as failure:
            raise UserError(
                f"The images cannot be prepared: {failure}.",
                "Give a folder of your own: --data DIR.",
            ) from failure
        return images

    def new_plan(self, tips: Sequence[Tip], unmet: Mapping[tuple[str, str], str]) -> Plan:
        """The plan of a run of these tips on the context's images."""
        images, context, profile = self.context.images, self.context, self.profile
        return Plan(
            run_id=uuid.uuid4().hex[:12],
            profile=profile.name,
            claims_verdicts=profile.claims_verdicts,
            seed=self.options.seed,
            margin=self.options.margin,
            primary_replicates=profile.policy.primary,
            other_replicates=profile.policy.others,
            most_replicates=max(profile.policy.most, profile.policy.primary),
            blocks=profile.pace.blocks,
            turn_seconds=profile.pace.turn_seconds,
            model=model_label(model_name(context)),
            batch_size=context.batch_size,
            image_size=context.image_size,
            threads=context.threads,
            device=context.device,
            start_method=context.start_method,
            images={
                "name": images.name,
                "count": len(images.paths),
                "total_bytes": images.total_bytes,
                "checksum": checksum(images),
                "left_out": {kind: list(names) for kind, names in images.left_out.items()},
            },
            tips=tuple(planned_tip(tip, unmet, profile.pace) for tip in tips),
            options={
                "budget_seconds": self.options.budget_seconds,
                "own_images": self.options.data is not None,
                "own_model": self.options.model is not None,
                "storage_places": len(self.options.storage),
                "nnodes": self.options.nnodes,
            },
        )


def planned_tip(tip: Tip, unmet: Mapping[tuple[str, str], str], pace: Pace) -> PlannedTip:
    """What the plan says of a tip.

    ``unmet``: (tip, variant or workload) → why it isn't measurable here.
    """
    return PlannedTip(
        id=tip.id,
        section=tip.section,
        claim=tip.claim,
        card=tip.card,
        is_price=tip.is_price,
        note=tip.note,
        is_followed=tip.is_followed,
        variants=tuple(
            PlannedVariant(
                name=variant.name,
                is_baseline=variant is tip.baseline and not tip.is_check,
                is_recommended=variant.recommended,
                is_exploratory=variant.exploratory,
                reason=unmet.get((tip.id, variant.name)),
            )
            for variant in tip.variants
        ),
        workloads=tuple(
            PlannedWorkload(
                name=workload.name,
                metrics=workload.metrics,
                reason=unmet.get((tip.id, workload.name)),
                blocks=pace.blocks_of(workload),
                turn_seconds=pace.turn_seconds_of(workload),
            )
            for workload in tip.workloads
        ),
    )


def _unmet(
    parts: Sequence[tuple[str, Variant | Workload]], context: Context
) -> dict[tuple[str, str], str]:
    """Inside a process of its own: the first need of each part of a tip that is not met."""
    found = {}
    for tip, part in parts:
        reasons = (need(context) for need in part.needs)
        if reason := next((reason for reason in reasons if reason), None):
            found[tip, part.name] = reason
    return found


def _without_partner(tip: Tip, unmet: dict[str, str]) -> dict[str, str]:
    """``unmet`` with what that leaves nothing to compare with: an effect needs a pair."""
    if len(tip.variants) == 1:
        return unmet or {tip.baseline.name: "only the baseline was chosen: nothing to compare"}
    if tip.baseline.name in unmet:
        because = f"its baseline is not measurable here: {unmet[tip.baseline.name]}"
        return {v.name: unmet.get(v.name, because) for v in tip.variants}
    if len(unmet) == len(tip.variants) - 1:
        first = next(iter(unmet.values()))
        return unmet | {tip.baseline.name: f"nothing to compare it with here: {first}"}
    return unmet
