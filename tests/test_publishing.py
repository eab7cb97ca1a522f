"""Publishing: the README follows the files, what is stale is named, nothing private gets out."""

import dataclasses
import json
import re
import shutil
import socket
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from synthetic import as_read, make_environment, make_plan, make_tip, make_turns

from bench import publishing, reporting
from bench.analysis.effects import effects
from bench.errors import UserError
from bench.options import Options
from bench.records import privacy
from bench.records.effects import write_effects
from bench.records.measurements import MeasurementWriter
from bench.records.plan import write_plan
from bench.records.run_folder import ROOT, RunFolder
from bench.reporting.readme import BEGIN, END, SELFCHECK_BEGIN, SELFCHECK_END
from bench.session import Session
from bench.workloads.models import folder_of_model

README = f"""# A project

{BEGIN.format(folder="results/none/yet")}
{END}

## Why you can believe it

{SELFCHECK_BEGIN}
{SELFCHECK_END}

The end.
"""
SELFCHECK = """check,workload,figure,value,ci_low,ci_high,trials,required,holds
A/A,decoding,false verdicts,1,,,60,at most 6,True
A/A,decoding,"median half-width of the interval, %",2.125,,,60,,
overhead,decoding,throughput in the suite / in a bare loop,0.97,0.95,0.99,20,inside ±2 %,False
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a synthetic run, with all that a run leaves."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "2026-01-31T12-00-00Z")
    folder.path.mkdir()
    plan, environment = make_plan(make_tip("one"), make_tip("two")), make_environment()
    turns = make_turns(plan, lambda *_: 1.5, replicate_noise=0.01)
    write_plan(folder.plan, plan)
    folder.write_environment(environment)
    writer = MeasurementWriter(folder.measurements)
    for turn in turns:
        writer.append(turn)
    writer.close()
    found = effects(as_read(turns), plan, environment)
    write_effects(folder.effects, found)
    reporting.write(folder.path, plan, environment, as_read(turns), found)
    folder.benchmark.write_text(json.dumps({"benchmarks": []}), encoding="utf-8")
    return folder.path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a README and no results."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "README.md").write_text(README, encoding="utf-8")
    monkeypatch.setattr(publishing, "ROOT", root)
    monkeypatch.setattr(publishing, "RESULTS", root / "results")
    monkeypatch.setattr(publishing, "README", root / "README.md")
    return root


@pytest.fixture
def run(finished: Path, root: Path) -> Path:
    """The run, below results/local/ of the checkout."""
    return shutil.copytree(finished, root / "results" / "local" / "m" / finished.name)


def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def test_a_run_is_copied_and_shown(root: Path, run: Path) -> None:
    (run / "letter.txt").write_text("private", encoding="utf-8")
    target = publishing.publish(run)
    assert target == root / "results" / "made-up-0-2c" / run.name
    copied = {path.relative_to(target) for path in target.rglob("*") if path.is_file()}
    left = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    assert left - copied == {Path("letter.txt")}
    assert f"(results/made-up-0-2c/{run.name}/figures/overview.png)" in readme(root)
    row = r"\| `one` \| `off` \| `on` \| 7\d\d images/s \| 1\.\d+× \S+ \S+ \| helps \|"
    assert re.search(row, readme(root))
    assert readme(root).startswith("# A project")
    assert readme(root).endswith("The end.\n")
    assert publishing.stale() == []
    with pytest.raises(UserError, match="was published before"):
        publishing.publish(run)
    before = readme(root)
    assert publishing.publish(target) == target
    assert readme(root) == before


def test_what_is_stale_is_named_with_the_command_that_mends_it(root: Path, run: Path) -> None:
    target = publishing.publish(run)
    shown = f"results/made-up-0-2c/{run.name}"
    text = readme(root)
    (root / "README.md").write_text(text.replace("helps", "hurts"), encoding="utf-8")
    (problem,) = publishing.stale()
    assert problem.startswith("README.md")
    assert problem.endswith(f"python -m bench publish {shown}")
    (root / "README.md").write_text(text, encoding="utf-8")
    assert publishing.stale() == []

    (target / "report.html").unlink()
    (problem,) = publishing.stale()
    assert "report.html is not what the measurements give" in problem

    (target / "figures" / "course.svg").rename(target / "figures" / "other.svg")
    (problem,) = publishing.stale()
    assert "course.svg, other.svg" in problem
    assert problem.endswith(f"python -m bench report {shown}")

    (target / "figures" / "other.svg").rename(target / "figures" / "course.svg")
    for name in ("report.html", "report.md"):
        with (target / name).open("a", encoding="utf-8") as file:
            file.write("It helps.\n")
        (problem,) = publishing.stale()
        assert f"{name} is not what the measurements" in problem


def test_the_selfcheck_is_shown_where_it_lies_beside_the_run(root: Path, run: Path) -> None:
    target = publishing.publish(run)
    assert "bench selfcheck" not in readme(root)
    path = target.parent / "selfcheck.csv"
    path.write_text(SELFCHECK, encoding="utf-8")
    assert "README.md" in publishing.stale()[0]
    publishing.publish(target)
    assert "1 of 2 requirements hold" in readme(root)
    assert "| overhead | decoding | throughput in the suite / in a bare loop | 0.970 \\[0.950" in (
        readme(root)
    )
    assert publishing.stale() == []
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match="holds no figures of the selfcheck"):
        publishing.publish(target)


@pytest.mark.parametrize("mark", [END, SELFCHECK_BEGIN, SELFCHECK_END])
def test_a_readme_without_its_marks_is_left_alone(root: Path, run: Path, mark: str) -> None:
    text = README.replace(mark, "")
    (root / "README.md").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="markers are missing"):
        publishing.publish(run)
    assert readme(root) == text
    assert not (root / "results" / "made-up-0-2c").exists()


@pytest.mark.parametrize(
    "name", ["report.md", "figures/one.svg", "figures/one.png", "benchmark.json", "effects.csv"]
)
@pytest.mark.parametrize("private", ["{host}", "{home}/photos", "/srv/{user}/data", "{root}"])
def test_nothing_that_names_the_host_the_user_or_a_folder_is_published(
    root: Path, run: Path, name: str, private: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "ada-laptop")
    monkeypatch.setattr(privacy.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(privacy.Path, "home", lambda: Path("/elsewhere/ada"))
    told = private.format(host="ada-laptop", user="ada", home="/elsewhere/ada", root=ROOT)
    path = run / name
    if path.suffix == ".png":
        information = PngInfo()
        information.add_text("Comment", told)
        with Image.open(path) as picture:
            picture.save(path, pnginfo=information)
    else:
        path.write_text(f"{path.read_text(encoding='utf-8')} {told} ", encoding="utf-8")
    with pytest.raises(UserError, match="names what is private") as raised:
        publishing.publish(run)
    assert name.rpartition("/")[2] in raised.value.problem
    assert readme(root) == README
    assert not (root / "results" / "made-up-0-2c").exists()


def test_words_that_only_look_like_the_host_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "ada")
    monkeypatch.setattr(privacy.getpass, "getuser", lambda: "img")
    monkeypatch.setattr(privacy.Path, "home", lambda: Path("/"))
    assert privacy.names_of_this_user("adam optimises, canada, /usr/lib, img 3, /imgs/") == set()
    assert privacy.names_of_this_user("on ada: /img/1.jpg") == {"ada", "img"}
    assert privacy.scrub("on ada: /img/1.jpg") == "on <host>: /<user>/1.jpg"


def test_errors_are_kept_without_anybodys_home_or_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(privacy.getpass, "getuser", lambda: "img")
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "vm")
    home = "/" + "home/ada"
    said = f"on vm for img@vm: {home}/x, C:\\Users\\ada\\y, img and vms"
    assert privacy.scrub(said) == "on <host> for <user>@<host>: <home>/x, <home>\\y, img and vms"


def test_evidence_is_masked_text_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "gpu")
    home = "/" + "home/jürgen"
    (turn, *_) = make_turns(make_plan())
    seen = {"gpu": 1, "library": f'{home}/"x".so', "all": [f"on gpu: {home}"]}
    masked = privacy.scrubbed(dataclasses.replace(turn, evidence=seen)).evidence
    assert masked == {"gpu": 1, "library": '<home>/"x".so', "all": ["on <host>: <home>"]}


def test_a_user_without_a_name_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(privacy.getpass, "getuser", nameless)
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "vm")
    assert privacy.scrub("on vm") == "on <host>"


def test_the_folder_of_the_users_model_is_masked() -> None:
    (folder,) = folder_of_model("/srv/ada/net.py:build")
    assert privacy.scrub("/srv/ada/weights", [folder]) == "<ada>/weights"
    assert folder_of_model("resnet18") == folder_of_model(None) == []


def test_a_run_without_verdicts_is_not_published(root: Path, run: Path) -> None:
    plan = RunFolder(run).read_plan()
    write_plan(run / "plan.json", dataclasses.replace(plan, claims_verdicts=False))
    before = readme(root)
    with pytest.raises(UserError, match="claims no verdicts"):
        publishing.publish(run)
    assert readme(root) == before


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp", ".", ""])
def test_a_machine_whose_name_is_no_folder_is_refused(root: Path, run: Path, name: str) -> None:
    path = run / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine_name": name}))
    with pytest.raises(UserError, match=r"environment\.json"):
        publishing.publish(run)


@pytest.mark.parametrize("margin", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_margin_that_is_none_is_refused_before_anything_runs(margin: float) -> None:
    with pytest.raises(UserError, match="is no share above 0"):
        Session(Options(margin=margin))
