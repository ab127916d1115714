"""The parts of one profile on the Profiles page: all of them when the file has them, none that it lacks."""

import pytest
from streamlit.testing.v1 import AppTest

from advisor.domain.profile import Profile
from advisor.ui.frames import number_format
from advisor.ui.profile_charts import DOUBTFUL, load_figure
from tests.conftest import cpu_profile
from tests.measured_profile import LOAD_RUNS, full_profile, load_run

TIMEOUT_S = 180
pytestmark = pytest.mark.xdist_group("pages")


def page_of(profile: Profile) -> AppTest:
    """Open the Profiles page with an uploaded profile, which is shown first."""

    def script() -> None:
        from advisor.ui.views import profiles  # noqa: PLC0415 - AppTest runs the body of this function alone

        profiles.page()

    page = AppTest.from_function(script, default_timeout=TIMEOUT_S).run()
    page.file_uploader[0].upload("mine.json", profile.model_dump_json().encode(), "application/json")
    page.run()
    assert not page.exception
    assert page.selectbox(key="profiles_one").value == profile.profile_id
    return page


def words(page: AppTest) -> str:
    """Sentences on the page, without the escapes of Markdown."""
    return "\n".join(element.value for element in (*page.markdown, *page.caption)).replace("\\", "")


def test_a_full_profile_shows_all_its_parts() -> None:
    """Headings in order, verdict, floor, estimate, drift."""
    page = page_of(full_profile(is_estimate=True))
    assert [section.value for section in page.subheader] == [
        "Verified under load",
        "Time per call",
        "Where it saturates",
        "Energy",
        "Calls after idling",
    ]
    assert [box.label for box in page.expander] == ["The machine and its state: 3 facts"]
    assert page.expander[0].code[0].value == "advisor profile net.onnx -o net.json"
    said = words(page)
    assert "In 2 of 3 clean runs from 30% to 70% load" in said
    assert "(+2.0%)" in said
    assert "21 of 28 windows were undisturbed" in said
    columns = [set(table.value.columns) for table in page.dataframe]
    assert any("Energy (J/item)" in names for names in columns)
    assert any("Most (items/s)" in names for names in columns)
    assert page.dataframe[0].value["Verified under load"].iloc[0] == "2 of 3 runs"


def test_an_old_profile_shows_nothing_empty() -> None:
    """Without runs, energy, idle starts or facts there is no heading and no table for them."""
    page = page_of(cpu_profile({1: 0.01, 2: 0.02}, profile_id="old-file"))
    assert [section.value for section in page.subheader] == ["Time per call", "Where it saturates"]
    assert not page.expander
    assert len(page.dataframe) == 3


def test_the_page_names_every_command_of_a_measurement() -> None:
    """Check the machine, measure, verify, compare."""
    page = page_of(full_profile())
    for command in ("doctor", "profile", "verify", "compare"):
        assert f"python -m advisor {command} " in page.code[0].value.replace("\n", " ")


def test_the_figure_holds_predictions_and_observations() -> None:
    """Each figure of each run: the interval as a bar, the observation where it was."""
    traces = {trace.name: trace for trace in load_figure(LOAD_RUNS).data}
    p99 = traces["p99 predicted"]
    first = LOAD_RUNS[0].p99
    assert p99.y[0] + p99.error_y.array[0] == pytest.approx(1e3 * first.predicted.high_s)
    assert p99.y[0] - p99.error_y.arrayminus[0] == pytest.approx(1e3 * first.predicted.low_s)
    assert traces["p99 observed"].y[0] == pytest.approx(1e3 * first.observed_s)
    assert list(traces["mean observed"].x) == pytest.approx([30, 50, 70])


def test_runs_of_one_load_stand_side_by_side_under_their_load() -> None:
    """Ten runs at half load and one at 70 %: no two in one place, none nearer to another load than to its own."""
    figure = load_figure([*(load_run(0.5) for _ in range(10)), load_run(0.7)])
    places = next(trace.x for trace in figure.data if trace.name == "p99 observed")
    assert len(set(places)) == 11
    assert all(abs(place - 50) < 10 for place in places[:10])
    assert sum(places[:10]) == pytest.approx(500)
    assert places[10] == pytest.approx(70)
    assert list(figure.layout.xaxis.tickvals) == pytest.approx([50, 70])


def test_doubtful_runs_differ_by_symbol_and_name() -> None:
    """Color is not needed to tell them apart, nor which figure is which."""
    traces = {trace.name: trace for trace in load_figure(LOAD_RUNS).data}
    observed = [trace for name, trace in traces.items() if "observed" in name]
    symbols = [trace.marker.symbol for trace in observed]
    assert len(symbols) == len(set(symbols))
    assert traces["observed in a doubtful run"].marker.symbol == DOUBTFUL
    assert len(traces["observed in a doubtful run"].x) == 3


def test_runs_that_are_all_doubtful_can_be_drawn() -> None:
    """No clean observation is in the legend."""
    names = [trace.name for trace in load_figure((load_run(0.5, doubts=("late",)),)).data]
    assert "observed in a doubtful run" in names
    assert "p99 observed" not in names


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [("Energy (J/item)", 0.0123456, "0.01235"), ("Power (W)", 24.0, "24"), ("Mean batch", 1.5, "1.50")],
)
def test_small_energies_keep_their_digits(column: str, value: float, text: str) -> None:
    """Joules per item are mostly far below one."""
    assert number_format(column).format(value) == text
