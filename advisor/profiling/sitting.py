"""One sitting of a measurement: replicas opened once, and whatever its journal does not hold yet."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np

from advisor.domain.measurement import IdleStart, JoinTime
from advisor.domain.profile import ModelInfo, RuntimeInfo
from advisor.errors import InputError, MeasurementError
from advisor.profiling.acceptance import disturbances
from advisor.profiling.cell import ITEMS_PER_CELL, Configuration
from advisor.profiling.engines import Engine, EngineFactory, Item, OutOfMemory
from advisor.profiling.idle import measure_idle_starts, measure_join_s
from advisor.profiling.instruments import Instruments, around
from advisor.profiling.journal import Entry, Journal, Sample
from advisor.profiling.sample import make_sample, of_others
from advisor.profiling.schedule import Key, further_turn, planned_turn
from advisor.profiling.statistics import histogram
from advisor.profiling.window import WindowRules, run_window
from advisor.units import s_to_ms

Progress: TypeAlias = Callable[[int, int, float, str], None]
"""Called with windows done, windows in all, seconds left, and the last result as a line."""

LONG_WARM_UPS = 2
"""A cell whose calls do not settle is waited for so many times, ten seconds each, and not in every window."""
IDLE_START_TRIES = 3
SETTINGS = ("provider", "device", "autocast", "compile", "tf32", "wire_format")
"""Options of the runtimes that are the same for all configurations, and that a later sitting may not change."""
SLACK_FRAC = 0.1
"""Planned repeats may take this much more than the budget: their times were estimated from single calls."""

_NS_PER_S = 1e9


class Sitting:
    """All replicas of one sitting, opened once, and what is done with them."""

    def __init__(
        self, engine_factory: EngineFactory, journal: Journal, instruments: Instruments, on_progress: Progress | None
    ) -> None:
        self._factory, self._journal, self._instruments = engine_factory, journal, instruments
        self._on_progress = on_progress
        self._plan = journal.start.plan
        self._replicas: dict[Configuration, list[Engine]] = {}
        self._warm_ups: defaultdict[Key, list[bool | None]] = defaultdict(list)
        self.without_room: dict[Key, str] = {}
        """Cells given up, since memory was full with all replicas at work, with what was said."""
        last = journal.samples[-1].repeat if journal.samples else None
        # Time goes on where the last sitting ended: the pause between them is not part of the measurement.
        before_s = last.started_s + last.duration_s if last else 0.0
        self._origin_ns = time.perf_counter_ns() - round(before_s * _NS_PER_S)
        self._steps_done, self._todo, self._todo_beside_s = 0, list[Key](), list[float]()
        self._cells = {(cell.batch_size, cell.configuration): cell for cell in self._plan.cells}
        for sample in journal.samples:
            self._learn(sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engines in self._replicas.values():
            for engine in engines:
                # What was measured is whole, and what went wrong before says more than a replica that will not end.
                with suppress(MeasurementError):
                    engine.close()

    def open(self) -> dict[Configuration, RuntimeInfo]:
        """Open all replicas; what runs them, by configuration.

        Raises
        ------
        InputError
            When the model or the runtime is not that of the journal.
        """
        runtimes = {}
        for place in self._plan.configurations:
            opened = self._replicas.setdefault(place, [])
            for _ in range(place.concurrency):
                opened.append(self._factory.open(place.threads, concurrency=place.concurrency))
            model, runtimes[place] = opened[0].describe()
            _refuse_other(self._journal, model, runtimes[place])
        return runtimes

    def run(self) -> None:
        """Do whatever the journal does not hold yet, in the order of the protocol."""
        plan, journal = self._plan, self._journal
        anchor = (plan.anchor.batch_size, plan.anchor.configuration)
        turns = [planned_turn(plan, journal.samples, turn) for turn in range(plan.repeats)]
        threads = dict.fromkeys(place.threads for place in plan.configurations)
        to_start = [count for count in threads if all(count != found.threads for found in journal.idle_starts)]
        self._todo = [key for keys in turns for key in keys]
        self._todo_beside_s = [plan.anchor_s] * 2 + [plan.idle_start_s] * len(to_start)
        self._tell("")
        if journal.idle_before_w is None:
            idle_w = self._instruments.idle_power_w(plan.idle_power_s)
            if idle_w is not None:
                journal.append(Entry(idle_before_w=idle_w))
        self._measure_anchor(anchor)
        for turn, keys in enumerate(turns):
            # One window of each cell there is in any case; what calls slower than foreseen cost is missing further on.
            self._measure_what_fits(keys, turn, slack_s=math.inf if turn == 0 else SLACK_FRAC * plan.budget_s)
        for count in to_start:
            self._start_idle(count)
        self._measure_joins()
        self._go_on_while_there_is_time()
        self._measure_anchor(anchor)

    def _go_on_while_there_is_time(self) -> None:
        """Measure again what was disturbed or differs between repeats, until nothing does or the time is over."""
        turn = max((sample.round for sample in self._journal.samples), default=0) + 1
        while keys := further_turn(self._plan, self._journal.samples, turn):
            fitting = [key for key in keys if self._window_s(key) <= self._left_s() and key not in self.without_room]
            if not fitting:
                return
            self._todo = list(fitting)
            self._measure_what_fits(fitting, turn)
            turn += 1

    def _measure_what_fits(self, keys: Sequence[Key], turn: int, *, slack_s: float = 0.0) -> None:
        """Measure those windows of a turn that the time left and some slack allow [s]."""
        for key in keys:
            self._todo.remove(key)
            if self._window_s(key) <= self._left_s() + slack_s and key not in self.without_room:
                try:
                    self._measure(key, self._rules(key), turn=turn)
                except OutOfMemory as error:
                    # Alone it had room in the rehearsal, and with the others at work it has not.
                    self.without_room[key] = str(error)

    def _window_s(self, key: Key) -> float:
        """Time of the next window of a cell, from its last call times where there are some [s]."""
        return self._cells[key].seconds(self._rules(key))

    def _learn(self, sample: Sample) -> None:
        """Take the time of a call from a window: the rehearsal called one replica, alone."""
        key = (sample.batch_size, sample.configuration)
        self._cells[key] = replace(self._cells[key], call_s=sample.repeat.service_mean_s)

    def _left_s(self) -> float:
        """Time that may still be spent before the last anchor [s]."""
        return self._plan.budget_s - self._plan.anchor_s - self._plan.idle_power_s - self._elapsed_s()

    def _elapsed_s(self) -> float:
        """Time since the start, pauses left out [s]."""
        return (time.perf_counter_ns() - self._origin_ns) / _NS_PER_S

    def _rules(self, key: Key) -> WindowRules:
        """Rules of the next window: the first of a cell waits until its times have settled, if need be once more."""
        tries = self._warm_ups[key]
        again = not tries or (tries[-1] is False and len(tries) < LONG_WARM_UPS)
        return replace(self._plan.rules, settle=self._plan.rules.settle and again)

    def _measure_anchor(self, key: Key) -> None:
        """Measure the anchor, longer than other windows so that rare stalls show."""
        self._todo_beside_s.remove(self._plan.anchor_s)
        rules = self._rules(key)
        longer = replace(
            rules, min_s=max(rules.min_s, self._plan.anchor_s), cap_s=max(rules.cap_s, self._plan.anchor_s)
        )
        self._measure(key, longer, turn=0, anchor=True)

    def _measure(self, key: Key, rules: WindowRules, *, turn: int, anchor: bool = False) -> None:
        """Measure one window and keep it."""
        batch_size, place = key
        engines = self._replicas[place]
        seed = [self._plan.seed, len(self._journal.samples)]
        items = _prepare(engines[0], batch_size, np.random.default_rng(seed))
        window = run_window(engines, items, rules, threads=place.threads, observe=self._instruments.observe)
        if rules.settle:
            self._warm_ups[key].append(window.warm_up.settled)
        elif self._warm_ups[key][-1:] == [False]:
            # A short warm-up judges nothing: what the long ones found still holds.
            window = replace(window, warm_up=replace(window.warm_up, settled=False))
        sample = make_sample(
            window, key, placement=self._plan.placement, turn=turn, anchor=anchor, origin_ns=self._origin_ns
        )
        self._journal.append(Entry(sample=sample))
        keep_failures(self._journal, self._instruments)
        self._learn(sample)
        self._tell(_line(sample))

    def _start_idle(self, threads: int) -> None:
        """Take calls of an idle replica, at the smallest batch; again when the machine was not quiet."""
        self._todo_beside_s.remove(self._plan.idle_start_s)
        place = next(place for place in self._plan.configurations if place.threads == threads)
        cell = min((cell for cell in self._plan.cells if cell.configuration == place), key=lambda cell: cell.batch_size)
        rng = np.random.default_rng([self._plan.seed, threads])
        engine = self._replicas[place][0]
        items = _prepare(engine, cell.batch_size, rng)
        seconds = self._plan.idle_start_s
        for _ in range(IDLE_START_TRIES):
            before = self._instruments.observe()
            found = measure_idle_starts(engine, items, service_s=cell.call_s, seconds=seconds, rng=rng)
            seen = around(before, self._instruments.observe())
            # Waking a thread and speeding up the clock are what an idle start costs, and no disturbance of it.
            seen = of_others(seen, Configuration(threads, 1), self._plan.placement)
            rejected = disturbances(seen.model_copy(update={"clock_change_frac": None, "run_delay_frac": None}))
            if not rejected or seconds > self._left_s():
                break
        self._journal.append(
            Entry(
                idle_start=IdleStart(
                    threads=threads,
                    batch_size=cell.batch_size,
                    count=found.service_s.size,
                    gap=histogram(found.gap_s),
                    gap_mean_s=float(found.gap_s.mean()),
                    service=histogram(found.service_s),
                    service_mean_s=float(found.service_s.mean()),
                    rejected=rejected,
                )
            )
        )
        self._tell(
            f"threads {threads}, idle before each call: {s_to_ms(float(found.service_s.mean())):.3g} ms per call"
        )

    def _measure_joins(self) -> None:
        """Time putting single requests together, for every batch size that needs it."""
        known = {found.batch_size for found in self._journal.join_times}
        engine = next(iter(self._replicas.values()))[0]
        if 1 not in self._plan.batch_sizes:
            return  # the model takes no single items, so nobody puts them together
        for size in self._plan.batch_sizes:
            if size > 1 and size not in known:
                median_s = measure_join_s(engine, size, np.random.default_rng(self._plan.seed))
                self._journal.append(Entry(join_time=JoinTime(batch_size=size, median_s=median_s)))

    def _tell(self, line: str) -> None:
        """Report progress: a line for what was done, the time of what is to be done, and no more than is left."""
        self._steps_done += bool(line)
        if self._on_progress is not None:
            steps = self._steps_done + len(self._todo) + len(self._todo_beside_s)
            todo_s = sum(self._todo_beside_s) + sum(map(self._window_s, self._todo))
            left_s = max(0.0, min(todo_s, self._plan.budget_s - self._elapsed_s()))
            self._on_progress(self._steps_done, steps, left_s, line)


def keep_failures(journal: Journal, instruments: Instruments) -> None:
    """Put failures of the meter into the journal, so that a later sitting still tells of them."""
    for failure in instruments.failures:
        if failure not in journal.meter_failures:
            journal.append(Entry(meter_failure=failure))


def _prepare(engine: Engine, batch_size: int, rng: np.random.Generator) -> list[Item]:
    """Different inputs for the callers to rotate through."""
    return [engine.prepare(batch_size, rng) for _ in range(ITEMS_PER_CELL)]


def _refuse_other(journal: Journal, model: ModelInfo, runtime: RuntimeInfo) -> None:
    """Refuse to go on with another model or runtime: the cells would not belong together."""
    start = journal.start
    if model.sha256 != start.model.sha256:
        raise InputError("model", model.name, f"the model of the journal, {start.model.name} with the same bytes")
    if (model.inputs, model.sequence_length) != (start.model.inputs, start.model.sequence_length):
        shapes = "; ".join(f"{spec.name} {list(spec.shape)}, {spec.fill}" for spec in start.model.inputs)
        raise InputError("inputs", "others", f"those of the journal, {shapes}: give the same options again")
    if (model.target, model.precision) != (start.model.target, start.model.precision):
        here, there = (" in ".join(filter(None, (of.target or of.name, of.precision))) for of in (model, start.model))
        raise InputError("model", here, f"that of the journal, {there}")
    for option in SETTINGS:
        now, then = runtime.options.get(option), start.plan.runtime.options.get(option)
        if now != then:
            raise InputError(option.replace("_", " "), now, f"that of the journal, {then}: give the same options again")
    if (runtime.name, runtime.version) != (start.plan.runtime.name, start.plan.runtime.version):
        raise InputError(
            "runtime",
            f"{runtime.name} {runtime.version}",
            f"{start.plan.runtime.name} {start.plan.runtime.version}, as in the journal",
        )


def _line(sample: Sample) -> str:
    """Show the result of one window as a line for people."""
    repeat = sample.repeat
    doubt = f" ({repeat.rejected[0].split(':')[0]}, does not count)" if repeat.rejected else ""
    return (
        f"batch {sample.batch_size}, threads {sample.threads} × replicas {sample.concurrency}: "
        f"{s_to_ms(repeat.service_mean_s):.3g} ms per call, {repeat.throughput_rps:.4g} items/s{doubt}"
    )
