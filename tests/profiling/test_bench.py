"""The protocol: anchors around turns of the whole grid, what is disturbed again, and a profile that can be read."""

import datetime
import time
from dataclasses import replace

import numpy as np
import pytest

from advisor.domain.profile import Device, ModelInfo, Profile
from advisor.domain.record import parse_record
from advisor.errors import InputError, MeasurementError
from advisor.profiling.bench import measure
from advisor.profiling.cell import Configuration
from advisor.profiling.engines import Placement
from advisor.profiling.grid import plan_grid
from advisor.profiling.host import HostReading
from advisor.profiling.instruments import Instruments, Observation
from advisor.profiling.journal import Journal
from advisor.profiling.meters import AssumedMeter, AssumedPower
from advisor.profiling.power import NoMeter
from advisor.profiling.window import WindowRules

TODAY = datetime.date(2026, 1, 2)
QUICK = WindowRules(warmup_calls=3, warmup_s=0.0, min_calls=5, min_s=0.02)
BUDGET_S = 4.0
ALONE = (Configuration(1, 1),)
TWO_WAYS = (Configuration(threads=1, concurrency=2), Configuration(threads=2, concurrency=1))


def test_a_model_is_measured_from_end_to_end(tiny_model, quiet, begin):
    """A real model gives a complete profile, and the file read again is the same value."""
    plan = plan_grid(
        tiny_model,
        batch_sizes=(4, 1),
        configurations=TWO_WAYS,
        repeats=2,
        most_repeats=2,
        rules=QUICK,
        budget_s=3 * BUDGET_S,  # a busy machine must not drop a batch
    )
    seen = []
    profile = measure(tiny_model, begin(plan), quiet, today=TODAY, on_progress=lambda *state: seen.append(state))
    assert parse_record(Profile, profile.model_dump_json(), file="tiny.json") == profile
    assert profile.status == "complete"
    assert profile.evidence.source == "advisor profile tiny.onnx"
    assert profile.evidence.date == TODAY
    assert profile.profile_id.startswith("tiny-fp32-")
    assert [(cell.batch_size, cell.threads, cell.concurrency) for cell in profile.cells] == [
        (1, 1, 2),
        (4, 1, 2),
        (1, 2, 1),
        (4, 2, 1),
    ]
    for cell in profile.cells:
        assert cell.count == sum(cell.histogram.counts) >= 10
        assert len(cell.repeats) >= 2
        assert all(repeat.warmup_calls >= 3 for repeat in cell.repeats)
        assert cell.cpu_mean_s > 0
        assert cell.mean_ci95_frac is not None
        assert 2 <= len(cell.series_s) <= min(1000, cell.count)
        assert max(cell.series_s) <= cell.service_max_s * (1 + 1e-4)
    assert [state[0] for state in seen] == list(range(len(seen)))
    assert seen[0][1] == 2 * 4 + 2 + 2  # turns, anchors, idle starts of one and of two threads
    assert seen[-1][0] == seen[-1][1] >= 12
    assert seen[-1][2] == 0
    assert "items/s" in seen[-1][3]
    assert [(anchor.batch_size, anchor.concurrency) for anchor in profile.anchors] == [(1, 2), (1, 2)]
    assert [start.threads for start in profile.idle_starts] == [1, 2]
    assert all(start.count == sum(start.gap.counts) == sum(start.service.counts) for start in profile.idle_starts)
    assert [join.batch_size for join in profile.join_times] == [4]
    assert profile.protocol.sittings == 1
    assert profile.idle_power is None
    steal = profile.environment["steal_frac"]
    assert steal.why is not None or 0 <= steal.value <= 1


def test_options_that_differ_between_configurations_are_all_recorded(tiny_model, quiet, begin):
    """Spinning is on for one replica on two threads, off for two replicas."""
    plan = plan_grid(tiny_model, batch_sizes=(1,), configurations=TWO_WAYS, repeats=1, rules=QUICK, budget_s=BUDGET_S)
    options = measure(tiny_model, begin(plan), quiet, today=TODAY).runtime.options
    assert options["allow_spinning[threads=1,concurrency=2]"] is False
    assert options["allow_spinning[threads=2,concurrency=1]"] is True
    assert options["inter_op_threads"] == 1


def test_replicas_together_answer_more_than_one(sleeping_model, quiet, begin):
    """Three replicas that only sleep have three times the throughput of one, over the same overlap."""
    model = sleeping_model(0.002)
    places = (Configuration(1, 1), Configuration(1, 3))
    plan = plan_grid(model, batch_sizes=(2,), configurations=places, repeats=1, rules=QUICK, budget_s=BUDGET_S)
    alone, together = measure(model, begin(plan), quiet, today=TODAY).cells
    assert together.throughput_rps == pytest.approx(3 * alone.throughput_rps, rel=0.35)
    assert alone.throughput_rps == pytest.approx(2 / alone.service_mean_s, rel=0.25)
    assert all(engine.closed for engine in model.opened)


def test_a_call_that_waits_is_told_by_its_two_clocks(sleeping_model, quiet, begin):
    """Sleep takes wall time and no CPU time, which at one thread is a warning."""
    plan = plan_grid(
        sleeping_model(),
        batch_sizes=(1,),
        configurations=[Configuration(1, 1)],
        repeats=1,
        rules=QUICK,
        budget_s=BUDGET_S,
    )
    (cell,) = measure(sleeping_model(), begin(plan), quiet, today=TODAY).cells
    assert cell.cpu_mean_s < 0.5 * cell.service_mean_s
    codes = {warning.split(":")[0] for warning in cell.warnings}
    assert {"WALL_OVER_CPU", "MEMORY_UNKNOWN"} <= codes


def test_an_interrupt_keeps_the_whole_cells(sleeping_model, quiet, begin):
    """Stopped after the anchor and the first turn, the profile is partial and says so."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1, 2), configurations=[Configuration(1, 1)], repeats=2, rules=QUICK, budget_s=3 * BUDGET_S
    )

    def stop_after_a_turn(done, total, seconds_left, line):
        if done == 3:
            raise KeyboardInterrupt

    profile = measure(model, begin(plan), quiet, today=TODAY, on_progress=stop_after_a_turn)
    assert profile.status == "partial"
    assert len(profile.cells) == 2
    assert len(profile.anchors) == 1
    assert any(warning.startswith("STOPPED") for warning in profile.warnings)
    assert all(cell.warnings[0].startswith("FEW_REPEATS: 1 of 2 repeats") for cell in profile.cells)
    assert all(engine.closed for engine in model.opened)


def test_an_interrupt_before_the_first_cell_leaves_nothing(sleeping_model, quiet, begin):
    """Without a whole cell there is no profile, only the interrupt."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 2)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )

    def stop_at_once(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(model, begin(plan), quiet, today=TODAY, on_progress=stop_at_once)
    assert all(engine.closed for engine in model.opened)


def test_a_replica_that_fails_ends_the_measurement_with_its_sentence(sleeping_model, quiet, begin):
    """The other callers stop too, and their broken barrier is not what the user reads."""
    plan = plan_grid(
        sleeping_model(),
        batch_sizes=(1,),
        configurations=[Configuration(1, 3)],
        repeats=1,
        rules=QUICK,
        budget_s=BUDGET_S,
    )
    model = sleeping_model(fail_after=4)
    with pytest.raises(MeasurementError, match=r"^sleeper: it broke\.$"):
        measure(model, begin(plan), quiet, today=TODAY)
    assert all(engine.closed for engine in model.opened)


def test_a_replica_that_fails_on_the_way_leaves_what_was_measured(sleeping_model, quiet, begin):
    """A server that dies after an hour has still been measured for an hour; the profile says how it ended."""
    plan = plan_grid(
        sleeping_model(), batch_sizes=(1, 2), configurations=ALONE, repeats=2, rules=QUICK, budget_s=BUDGET_S
    )
    model = sleeping_model(0.001)

    def break_later(done, _total, _left_s, _line):
        model.fail_after = model.calls + 7 if done == 3 else model.fail_after

    profile = measure(model, begin(plan), quiet, today=TODAY, on_progress=break_later)
    assert profile.status == "partial"
    assert "FAILED: sleeper: it broke." in profile.warnings
    assert parse_record(Profile, profile.model_dump_json(), file="part.json") == profile
    assert sum(len(cell.repeats) for cell in profile.cells) >= 3
    assert all(engine.closed for engine in model.opened)


def test_a_cell_without_room_among_the_others_is_given_up(sleeping_model, quiet, begin):
    """Alone it had room; the rest is measured, and a warning names it."""
    model = sleeping_model(0.0005)
    plan = plan_grid(
        model, batch_sizes=(1, 2), configurations=ALONE, repeats=2, rules=QUICK, most_repeats=2, budget_s=3 * BUDGET_S
    )
    model.room = 1
    profile = measure(model, begin(plan), quiet, today=TODAY)
    assert profile.status == "complete"
    assert [cell.batch_size for cell in profile.cells] == [1]
    assert "MEMORY: batch 2 on 1 replicas of 1 threads was given up: sleeper: no room for batch 2." in profile.warnings


def test_a_replica_that_will_not_end_spoils_nothing(sleeping_model, quiet, begin):
    """What was measured is whole, and the others are closed all the same."""

    class Stubborn(sleeping_model):
        def open(self, threads, *, concurrency):
            engine = super().open(threads, concurrency=concurrency)
            if len(self.opened) == 2:
                engine.close = lambda: (_ for _ in ()).throw(MeasurementError("it will not end."))
            return engine

    model = Stubborn(0.0005)
    plan = plan_grid(
        sleeping_model(), batch_sizes=(1,), configurations=[Configuration(1, 3)], repeats=1, rules=QUICK, budget_s=2.0
    )
    assert measure(model, begin(plan), quiet, today=TODAY).status == "complete"
    assert [engine.closed for engine in model.opened] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model": ModelInfo(name="sleeper", target="http://b/x")},
            "model is 'http://b/x'; allowed: that of the journal",
        ),
        ({"model": ModelInfo(name="sleeper", precision="fp16")}, "allowed: that of the journal, sleeper"),
        ({"options": {"device": "cuda"}}, "device is 'cuda'; allowed: that of the journal, None"),
        ({"options": {"autocast": "bf16"}}, "autocast is 'bf16'"),
    ],
)
def test_other_settings_cannot_go_on_with_a_journal(sleeping_model, quiet, begin, changes, sentence):
    """One cell would pool two systems."""
    model = sleeping_model(0.0005)
    plan = plan_grid(model, batch_sizes=(1,), configurations=ALONE, repeats=1, rules=QUICK, budget_s=2.0)
    for name, value in changes.items():
        setattr(model, name, value)
    with pytest.raises(InputError, match=sentence):
        measure(model, begin(plan), quiet, today=TODAY)


def test_tokens_of_streamed_answers_are_kept(sleeping_model, quiet, begin):
    """First token, times between tokens and parts per answer; the journal holds them as well."""
    model = sleeping_model(0.008, tokens=4)
    plan = plan_grid(model, batch_sizes=(1,), configurations=ALONE, repeats=2, rules=QUICK, budget_s=BUDGET_S)
    (cell,) = measure(model, begin(plan), quiet, today=TODAY).cells
    assert cell.streaming.parts_mean == 4
    assert 0.002 <= cell.streaming.first_token.p50_s <= cell.service_p50_s / 2
    assert cell.streaming.first_token.count == cell.count
    assert 0.002 <= cell.streaming.inter_token.p50_s <= cell.service_p50_s / 2
    assert cell.streaming.inter_token.count == 3 * cell.count


def test_what_an_endpoint_cannot_tell_is_left_out(sleeping_model, quiet, begin):
    """Neither the CPU time of its client nor the memory of its replicas is that of the model."""
    device = Device(kind="cpu", name="a box elsewhere")
    model = sleeping_model(0.002, placement=Placement(kind="endpoint", takes_threads=False, local=False))
    plan = plan_grid(model, batch_sizes=(1,), repeats=1, rules=QUICK, budget_s=BUDGET_S)
    assert [place.concurrency for place in plan.configurations] == [1, 2, 4, 8]
    journal = Journal.begin(begin(plan).start.model_copy(update={"device": device}), None)
    profile = measure(model, journal, quiet, today=TODAY, device=device)
    assert profile.device == device
    assert profile.profile_id == "sleeper-a-box-elsewhere"
    assert "client" in profile.environment["observed_on"].value
    assert profile.environment["dreams"].value is False
    assert {cell.cpu_mean_s for cell in profile.cells} == {None}
    assert not any("WALL_OVER_CPU" in warning for cell in profile.cells for warning in cell.warnings)


def test_items_differ_between_calls(tiny_model):
    """Inputs of one cell come from one stream, so that no call finds its data in the cache of the last."""
    engine, rng = tiny_model.open(1, concurrency=1), np.random.default_rng(0)
    first, second = engine.prepare(1, rng), engine.prepare(1, rng)
    assert not np.array_equal(first["features"], second["features"])


def test_a_stopped_measurement_goes_on_where_it_was(sleeping_model, quiet, begin, tmp_path):
    """Every cell is measured once in every turn, whatever the sitting, and time goes on without the pause."""
    model, path = sleeping_model(), tmp_path / "run.jsonl"
    place = [Configuration(1, 1)]
    plan = plan_grid(
        model,
        batch_sizes=(1, 2, 4),
        configurations=place,
        repeats=3,
        most_repeats=3,
        rules=QUICK,
        budget_s=3 * BUDGET_S,
    )

    def stop_in_the_second_turn(done, total, seconds_left, line):
        if done == 6:
            raise KeyboardInterrupt

    measure(model, begin(plan, path), quiet, today=TODAY, on_progress=stop_in_the_second_turn)
    first = path.read_bytes()
    journal = Journal.resume(path)
    profile = measure(model, journal, quiet, today=TODAY)
    assert path.read_bytes().startswith(first)
    assert profile.status == "complete"
    assert profile.protocol.sittings == 2
    planned = [
        (sample.round, sample.batch_size) for sample in journal.samples if not sample.anchor and sample.round < 3
    ]
    assert sorted(planned) == [(turn, size) for turn in range(3) for size in (1, 2, 4)]
    starts = [sample.repeat.started_s for sample in journal.samples]
    assert starts == sorted(starts)
    assert len(profile.idle_starts) == 1
    assert [join.batch_size for join in profile.join_times] == [2, 4]


def test_another_model_cannot_go_on_with_a_journal(tiny_model, sleeping_model, quiet, begin):
    """Its cells would not belong to the same model."""
    plan = plan_grid(
        tiny_model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    with pytest.raises(InputError, match="the model of the journal, tiny"):
        measure(sleeping_model(), begin(plan), quiet, today=TODAY)


def test_other_inputs_cannot_go_on_with_a_journal(tiny_model, quiet, begin):
    """The same model with sequences of another length does other work."""
    plan = plan_grid(
        tiny_model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    start = begin(plan).start
    longer = start.model.model_copy(update={"sequence_length": 512})
    with pytest.raises(InputError, match=r"those of the journal, features \['batch', 16\]"):
        measure(tiny_model, Journal.begin(start.model_copy(update={"model": longer}), None), quiet, today=TODAY)


def test_what_spoke_against_measuring_stays_with_the_journal(sleeping_model, quiet, begin):
    """Also when a later sitting finds the machine fit."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    journal = begin(plan)
    first = measure(model, journal, quiet, today=TODAY, findings=["FORCED: it was busy."])
    again = measure(model, journal, quiet, today=TODAY)
    assert first.protocol.forced
    assert again.protocol.forced
    assert "FORCED: it was busy." in again.warnings


def test_another_power_meter_cannot_go_on_with_a_journal(sleeping_model, quiet, begin):
    """Joules of two meters make no mean."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    journal = begin(plan)
    measure(model, journal, quiet, today=TODAY)
    watts = AssumedPower("user_watts", idle_w=1.0, busy_w=2.0, scope="a test", error_frac=0.2)
    other = Instruments(AssumedMeter(watts, busy_cpu_s=None, cpus=1))
    with pytest.raises(InputError, match=r"power meter is 'user_watts, a test.*'; allowed: that of the journal, none"):
        measure(model, journal, other, today=TODAY)


def test_another_machine_cannot_go_on_with_a_journal(sleeping_model, quiet, begin):
    """Nor can a machine with another number of CPUs."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    start = begin(plan).start
    cpu = start.device.cpu.model_copy(update={"logical_cpus": start.device.cpu.logical_cpus + 1})
    other = start.model_copy(update={"device": start.device.model_copy(update={"cpu": cpu})})
    with pytest.raises(InputError, match="the machine of the journal"):
        measure(model, Journal.begin(other, None), quiet, today=TODAY)


def test_time_that_is_left_goes_to_cells_that_differ(sleeping_model, quiet, begin):
    """A model whose times wander gets more repeats than planned, but no more than the most."""

    class Wandering(sleeping_model):
        """A model that is slower in each new window."""

        def open(self, threads, *, concurrency):
            """Sleep longer the more calls there were."""
            engine = super().open(threads, concurrency=concurrency)
            call = engine.call

            def slower(item):
                self.item_s = 0.001 * (1 + self.calls // 40 % 2)
                call(item)

            engine.call = slower
            return engine

    model = Wandering()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=2, rules=QUICK, budget_s=6.0
    )
    (cell,) = measure(model, begin(plan), quiet, today=TODAY).cells
    assert 2 + 2 < len(cell.repeats) <= plan.most_repeats + 6 + 2


def test_a_model_slower_than_foreseen_keeps_to_its_budget(sleeping_model, quiet, begin):
    """Every cell is measured once; what the time does not allow is left out, and each cell says so."""
    model = sleeping_model(0.001)
    plan = plan_grid(
        model, batch_sizes=(1, 2, 3), configurations=[Configuration(1, 1)], repeats=5, rules=QUICK, budget_s=3.0
    )
    model.item_s = 0.05
    profile = measure(model, begin(plan), quiet, today=TODAY)
    turns = [len(cell.repeats) - (2 if cell.batch_size == 1 else 0) for cell in profile.cells]
    assert all(1 <= count < 5 for count in turns)
    assert profile.status == "complete"
    assert all(cell.warnings[0].startswith("FEW_REPEATS: ") for cell in profile.cells)
    # Every cell once, with its warm-up, and both anchors take 5 s; all repeats would take 15 s.
    assert profile.duration_s < 8


def test_calls_that_never_settle_are_waited_for_twice(sleeping_model, quiet, begin):
    """Not in every window; and all of them say that the times had not settled."""

    class Restless(sleeping_model):
        """A model that takes longer with every call."""

        def open(self, threads, *, concurrency):
            engine = super().open(threads, concurrency=concurrency)

            def slower(item):
                self.calls += 1
                time.sleep(0.0005 * 1.03 ** (self.calls % 150))

            engine.call = slower
            return engine

    model = Restless()
    rules = replace(QUICK, cap_s=0.5)
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=4, rules=rules, budget_s=8.0
    )
    (cell,) = measure(model, begin(plan), quiet, today=TODAY).cells
    assert [repeat.warmup_settled for repeat in cell.repeats] == [False] * len(cell.repeats)
    long_ones = [repeat.warmup_calls > 20 for repeat in cell.repeats]
    assert long_ones == [True, True] + [False] * (len(cell.repeats) - 2)
    assert any(warning.startswith("WARM_UP") for warning in cell.warnings)


class Crowded(Instruments):
    """Instruments of a machine on which others keep one CPU busy all the time."""

    def observe(self):
        """Read the clock twice: as time, and as the time of a CPU that is always at work."""
        now_s = time.perf_counter()
        host = HostReading(
            at_s=now_s,
            own_cpu_s=0.0,
            busy_cpu_s=now_s,
            steal_s=None,
            tasks={},
            throttled_s=None,
            clock_mhz=None,
        )
        return Observation(host, None, ())


def test_idle_starts_are_judged_too(sleeping_model, begin):
    """Calls of an idle replica on a crowded machine are tried again, kept, and marked."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    profile = measure(model, begin(plan), Crowded(NoMeter("none here")), today=TODAY)
    (start,) = profile.idle_starts
    assert start.rejected[0].startswith("OTHER_LOAD: other processes kept ")
    told = "IDLE_START: the calls of an idle replica of 1 threads were disturbed"
    assert any(warning.startswith(told) for warning in profile.warnings)


def test_failures_of_the_meter_stay_with_the_journal(sleeping_model, quiet, begin):
    """A later sitting with a meter that works still tells of the earlier one."""
    model = sleeping_model()
    plan = plan_grid(
        model, batch_sizes=(1,), configurations=[Configuration(1, 1)], repeats=1, rules=QUICK, budget_s=BUDGET_S
    )
    journal = begin(plan)
    measure(model, journal, replace(quiet, failures=["the card fell off the bus."]), today=TODAY)
    again = measure(model, journal, quiet, today=TODAY)
    assert "METER: the card fell off the bus." in again.warnings


def test_the_time_left_is_never_more_than_the_budget_leaves(sleeping_model, quiet, begin):
    """It falls to nothing, whatever the calls turn out to take."""
    model = sleeping_model(0.001)
    plan = plan_grid(
        model, batch_sizes=(1, 2), configurations=[Configuration(1, 1)], repeats=3, rules=QUICK, budget_s=3.0
    )
    model.item_s = 0.02
    seen = []
    began = time.perf_counter()

    def note(done, total, left_s, line):
        seen.append((time.perf_counter() - began + left_s, left_s, done, total))

    measure(model, begin(plan), quiet, today=TODAY, on_progress=note)
    assert all(end_s <= plan.budget_s + 0.1 or left_s == 0 for end_s, left_s, _, _ in seen)
    assert seen[-1][1] == 0
    assert seen[-1][2] == seen[-1][3]
