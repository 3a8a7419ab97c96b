"""The command line: summaries, files, JSON for scripts, and one sentence for every mistake."""

import json
import math
import os
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import natvi
from natvi import cli
from natvi.cli import deliver, fitting
from natvi.cli.app import app
from natvi.cli.tables import Reading, check_mixed, find_decimal, read_table, write_like
from natvi.data import load_epilepsy
from natvi.models.linear.door import GlmModel
from natvi.result.text import text_summary

NOISY = ("--method", "gva", "--optimizer", "adam")
FORMULA = "y ~ base*trt + age + visit + (1 | subject)"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "seizures.csv"
    load_epilepsy().to_csv(path, index=False)
    return str(path)


def run(*arguments: str | Path, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run `main` as the shell would; return what it says on the error stream."""
    monkeypatch.setattr(sys, "argv", ["natvi", *map(str, arguments)])
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "unused")  # leaves the settings of this process alone
    with pytest.raises(SystemExit) as exit:
        cli.main()
    out, err = capsys.readouterr()
    assert exit.value.code == 2 and out == "" and "Traceback" not in err
    return err


def strict(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def check_document(document: dict[str, Any], elbo: float = -691.166) -> None:
    assert list(document) == [
        "formula",
        "family",
        "link",
        "prior",
        "rows",
        "outcome",
        "trust",
        "trust_reasons",
        "model_check",
        "model_check_reasons",
        "prior_check",
        "prior_check_reasons",
        "method",
        "optimizer",
        "elbo",
        "coefficients",
        "random_effects",
        "seconds",
        "versions",
    ]
    assert (document["outcome"], document["trust"], document["method"]) == ("converged", "good", "gva")
    assert document["trust_reasons"] and all(isinstance(reason, str) for reason in document["trust_reasons"])
    assert document["elbo"] == pytest.approx(elbo, abs=0.005)
    assert list(document["coefficients"]) == ["Intercept", "base", "trt", "base:trt", "age", "visit"]
    assert list(document["random_effects"]) == ["sd(Intercept|subject)"]
    for row in (*document["coefficients"].values(), *document["random_effects"].values()):
        assert list(row) == ["mean", "sd", "q2.5", "q97.5"] and row["q2.5"] < row["mean"] < row["q97.5"]
    assert set(document["seconds"]) == {"compile", "run", "total"}
    assert {"natvi", "jax", "jaxlib", "numpy", "python"} <= set(document["versions"])
    assert document["versions"]["natvi"] == natvi.__version__


# --- natvi fit ---------------------------------------------------------------------------------------------


def test_fit_prints_the_summary(table: str) -> None:
    result = run("fit", table, FORMULA, "--family", "poisson")
    direct = natvi.glmm(FORMULA, load_epilepsy(), family="poisson").fit()
    assert FORMULA in result.stdout and "-691.166 (exact)" in result.stdout
    assert "Approximation of the posterior: ✓ good" in result.stdout and "Model against the data:" in result.stdout
    for term in direct.summary().index:
        assert term in result.stdout
    assert result.stderr == ""


def test_json_on_the_standard_output(table: str) -> None:
    result = run("fit", table, FORMULA, "--family", "poisson", "--method", "gva", "--seed", "3", "--json", "-")
    check_document(strict(result.stdout))  # nothing but JSON


def test_json_in_a_file(table: str, tmp_path: Path) -> None:
    result = run("fit", table, FORMULA, "--family", "poisson", "--prior", "paper", "--json", tmp_path / "fit.json")
    check_document(strict((tmp_path / "fit.json").read_text(encoding="utf-8")), -695.792)
    assert "Fixed effects" in result.stdout


def test_out_folder_and_show(table: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    result = run("fit", table, FORMULA, "--family", "poisson", "--out", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["fit.natvi", "report.html", "summary.json"]
    assert f"saved: {folder}" in result.stderr
    check_document(strict((folder / "summary.json").read_text(encoding="utf-8")))
    assert "<figure>" in (folder / "report.html").read_text(encoding="utf-8")
    assert run("show", folder / "fit.natvi").stdout == result.stdout
    assert repr(natvi.load(folder / "fit.natvi")) + "\n" == result.stdout


def test_report(table: str, tmp_path: Path) -> None:
    page = tmp_path / "page [1].html"
    result = run("fit", table, FORMULA, "--family", "poisson", "--report", page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert result.stderr == f"page: {page}\n"  # in one line, brackets kept


@pytest.mark.parametrize(("name", "separator"), [("data.tsv", "\t"), ("data.csv.gz", ","), ("DATA.CSV", ",")])
def test_kinds_of_tables(tmp_path: Path, name: str, separator: str) -> None:
    load_epilepsy().to_csv(tmp_path / name, sep=separator, index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), load_epilepsy())


def test_numbers_that_json_lacks_become_null() -> None:
    document = {"elbo": -math.inf, "coefficients": {"x": {"mean": math.nan, "sd": 1.0}}}
    assert deliver.finite(document) == {"elbo": None, "coefficients": {"x": {"mean": None, "sd": 1.0}}}


def test_a_formula_without_groups_is_a_linear_model(tmp_path: Path) -> None:
    options = ("--family", "gaussian", "--prior", "5", "--weights", "visit2")
    frame = load_epilepsy().assign(visit2=1 + (load_epilepsy()["trt"] > 0))
    frame.to_csv(tmp_path / "data.csv", index=False)
    result = run("fit", tmp_path / "data.csv", "y ~ base + trt", *options, "--out", tmp_path / "out", "--json", "-")
    document = strict(result.stdout)
    assert list(document["coefficients"]) == ["Intercept", "base", "trt"] and list(document["dispersion"]) == ["sigma"]
    assert document["random_effects"] == {} and document["method"] == "gva" and document["outcome"] == "converged"
    direct = natvi.glm("y ~ base + trt", frame, prior=5.0, weights="visit2").fit()
    assert document["elbo"] == pytest.approx(direct.elbo, rel=1e-9)
    assert "N(0, 5²) on every coefficient" in run("show", tmp_path / "out" / "fit.natvi").stdout


def asked(monkeypatch: pytest.MonkeyPatch, kind: type, *arguments: str | Path) -> dict[str, Any]:
    """Return what the command hands to `fit` of a model, without fitting."""
    calls: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        patch.setattr(kind, "fit", lambda self, **options: calls.append(options))
        patch.setattr(fitting, "deliver", lambda *_: None)
        run("fit", *arguments)
    (options,) = calls
    return options


def test_settings_of_the_steps_reach_the_fit(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = ("--optimizer", "adam", "--order", "2", "--step-size", "0.01", "--num-samples", "4", "--max-steps", "70")
    settings = {"optimizer": "adam", "order": 2, "step_size": 0.01, "num_samples": 4, "max_steps": 70, "progress": True}
    grouped = (table, FORMULA, "--family", "poisson", "--method")
    for method in ("gva", "rvb1"):
        found = asked(monkeypatch, natvi.MixedModel, *grouped, method, *noise, "--seed", "3")
        assert found == settings | {"method": method, "seed": 3}
    exact = ("gva", "--optimizer", "ascent", "--tolerance", "1e-6", "--seed", "3", "--checkpoint", tmp_path / "a.ckpt")
    expected = {"method": "gva", "optimizer": "ascent", "tolerance": 1e-6, "checkpoint": tmp_path / "a.ckpt"}
    assert asked(monkeypatch, natvi.MixedModel, *grouped, *exact) == expected | {"progress": True}
    plain = (table, "y ~ base", "--method", "gva", "--batch-size", "50")
    found = asked(monkeypatch, GlmModel, *plain, *noise)
    assert found == settings | {"method": "gva", "batch_size": 50, "seed": 0}


def test_noisy_steps_of_a_linear_model(table: str) -> None:
    noise = ("--method", "gva", "--optimizer", "nagm", "--step-size", "0.01", "--seed", "5", "--max-steps", "40")
    # forty steps arrive nowhere, and the exit code says so
    document = strict(run("fit", table, "y ~ base", "--prior", "2", *noise, "--json", "-", code=3).stdout)
    assert (document["method"], document["optimizer"]) == ("gva", "nagm") and document["outcome"] == "max_steps"


def test_methods_of_before_are_understood_and_renamed(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(DeprecationWarning, match="method='stochastic' is now method='gva' with optimizer='snngm'"):
        found = asked(monkeypatch, GlmModel, table, "y ~ base", "--method", "stochastic", "--batch-size", "50")
    assert found == {"method": "gva", "optimizer": "snngm", "batch_size": 50, "seed": 0, "progress": True}


# --- mistakes ----------------------------------------------------------------------------------------------


def test_missing_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = fail(monkeypatch, capsys, "fit", "nothing.csv", FORMULA)
    assert said == "natvi: There is no file nothing.csv. Give the path of a CSV or Parquet file.\n"


def test_brackets_in_messages_are_not_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no file [/data][red]x.csv." in fail(monkeypatch, capsys, "fit", "[/data][red]x.csv", FORMULA)


@pytest.mark.parametrize(
    ("formula", "options", "words"),
    [
        ("y ~ bsae + (1 | subject)", [], "no column 'bsae' in the data. Did you mean 'base'?"),
        ("y ~ base", ["--family", "poisson", "--method", "rvb1"], "not 'rvb1'"),
        ("y ~ base", ["--family", "poisson", "--link", "probit"], "no link 'probit'"),
        (FORMULA, ["--family", "poisson", "--structure", "dense"], "without random effects"),
        ("y ~ base + (1 | subject", [], "cannot read the formula"),
        (FORMULA, ["--family", "poison"], "Did you mean 'poisson'?"),
        (FORMULA, ["--family", "bernoulli"], "must be 0 or 1"),
        (FORMULA, ["--family", "poisson", "--method", "magic"], "not 'magic'"),
        (FORMULA, ["--family", "poisson", "--prior", "flat"], "not 'flat'"),
        (FORMULA, ["--optimizer", "adam"], "--optimizer is for noisy steps, and --method auto takes exact ones. Give"),
        (
            FORMULA,
            ["--method", "marginal", "--optimizer", "adam"],
            "--method gva, rvb1 or rvb2 with it, or leave --opt",
        ),
        (FORMULA, ["--method", "gva", "--optimizer", "sgd"], "optimizer must be one of 'ascent', 'adam'"),
        (FORMULA, ["--method", "rvb1", "--optimizer", "ascent"], "method='rvb1' has none"),
        (FORMULA, ["--step-size", "0.1"], "Give --method gva --optimizer snngm, or leave --step-size out"),
        (FORMULA, ["--method", "gva", "--order", "2"], "Give --optimizer snngm, or leave --order out"),
        (FORMULA, ["--method", "gva", "--optimizer", "ascent", "--num-samples", "2"], "leave --num-samples out"),
        (FORMULA, ["--method", "rvb2", "--batch-size", "10"], "--batch-size is for models without random effects"),
        (FORMULA, ["--method", "rvb2", "--tolerance", "1e-6"], "--tolerance is for exact steps; noisy ones stop when"),
        (FORMULA, ["--method", "rvb2", "--order", "3"], "order must be 1"),
        (FORMULA, ["--method", "rvb2", "--seed", "-1"], "seed must be a whole number from 0"),
        (FORMULA, ["--max-steps", "0"], "max_steps must be a whole number of at least 1"),
        (FORMULA, ["--tolerance", "2"], "tolerance must be a number between 0 and 1"),
        (FORMULA, ["--missing", "keep"], "not 'keep'"),
        ("y ~ base", ["--optimizer", "adam"], "Give --method gva with it, or leave --optimizer out"),
        ("y ~ base", ["--method", "psis", "--optimizer", "adam"], "Give --method gva with it, or leave --optimizer"),
        ("y ~ base", ["--method", "gva", "--batch-size", "9"], "Give --optimizer snngm, or leave --batch-size out"),
        ("y ~ base", ["--method", "gva", "--optimizer", "sgd"], "optimizer must be one of 'ascent', 'adam'"),
        (
            "y ~ base",
            [*NOISY, "--tolerance", "0.1"],
            "--tolerance is for exact steps",
        ),
        ("y ~ base", [*NOISY, "--batch-size", "0"], "batch_size must be"),
        ("y ~ base", [*NOISY, "--order", "3"], "order must be"),
        ("y ~ base", [*NOISY, "--num-samples", "0"], "num_samples must be"),
        (
            "y ~ base",
            [*NOISY, "--step-size", "-1"],
            "A step size must be positive and finite",
        ),
        (FORMULA, ["--method", "rvb1", "--step-size", "-1"], "A step size must be positive and finite"),
    ],
)
def test_mistakes_give_one_sentence(
    table: str, formula: str, options: list[str], words: str, monkeypatch: Any, capsys: Any
) -> None:
    said = fail(monkeypatch, capsys, "fit", table, formula, *options)
    assert said.startswith("natvi: ") and words in said and said.count("\n") == 1 and said.endswith(".\n")


def test_files_that_are_no_tables(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    empty, binary = tmp_path / "empty.csv", tmp_path / "binary.csv"
    empty.touch()
    binary.write_bytes(bytes(range(256)) * 4)
    for path in (empty, binary):
        assert "cannot be read as a table" in fail(monkeypatch, capsys, "fit", path, FORMULA)
    assert "directory" in fail(monkeypatch, capsys, "fit", tmp_path, FORMULA)


def test_places_that_cannot_be_written(table: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    arguments = ("fit", table, FORMULA, "--family", "poisson")
    monkeypatch.setattr(sys, "argv", ["natvi", *arguments, "--report", str(tmp_path / "nowhere" / "page.html")])
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "unused")
    with pytest.raises(SystemExit) as exit:
        cli.main()
    out, err = capsys.readouterr()
    assert exit.value.code == 2 and "nowhere" in err and "Traceback" not in err
    assert out == ""  # said before the fit


def test_folders_are_looked_at_before_the_fit(table: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(natvi.MixedModel, "fit", lambda *_, **__: pytest.fail("the fit was begun"))
    arguments = ("fit", table, FORMULA, "--family", "poisson")
    assert "is a file" in fail(monkeypatch, capsys, *arguments, "--out", table)
    assert "is a folder" in fail(monkeypatch, capsys, *arguments, "--report", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode == os.R_OK)
    assert "not writable" in fail(monkeypatch, capsys, *arguments, "--out", tmp_path / "new")


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("größe;y\n1,5;2\n-2,25;3\n", "utf-8"),
        ("größe;y\n1,5;2\n-2,25;3\n", "cp1252"),
        ("größe,y\n1.5,2\n-2.25,3\n", "utf-8-sig"),
        ("größe\ty\r\n1.5\t2\r\n-2.25\t3\r\n", "utf-16"),
        ("größe|y\n1.5|2\n-2.25|3\n", "utf-8"),
        (" größe , y\n1.5,2\n-2.25,3\n", "utf-8"),
    ],
)
def test_how_a_text_is_written_is_found(tmp_path: Path, text: str, encoding: str) -> None:
    frame = read_table(write(tmp_path / "data.csv", text, encoding))
    assert frame.to_dict("list") == {"größe": [1.5, -2.25], "y": [2, 3]}


def test_how_a_text_is_written_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "data.txt", "a b\n1,5 ?\n2,5 4\n")
    frame = read_table(path, Reading("space", ",", None, ("?",)))
    assert frame["a"].tolist() == [1.5, 2.5] and frame["b"].isna().tolist() == [True, False]
    assert find_decimal(["a;b", "x;y"], ";") == "."
    with pytest.raises(ValueError, match="--delimiter must be one character"):
        read_table(path, Reading("::"))


def test_files_of_columns(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    data = polars.DataFrame({"x": [1.0, 2.0], "g": ["a", "b"]})
    data.write_parquet(tmp_path / "data.parquet")
    data.write_ipc(tmp_path / "data.arrow")
    for name in ("data.parquet", "data.arrow"):
        assert read_table(tmp_path / name).to_dict("list") == {"x": [1.0, 2.0], "g": ["a", "b"]}
    (tmp_path / "wrong.parquet").write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="cannot be read as a parquet file"):
        read_table(tmp_path / "wrong.parquet")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("y,x,x\n1,2,3\n", [], "names 'x' twice"),
        ("1.5,2\n3,4\n", [], "holds numbers only"),
        ("y,x\n1,2\n2,n/k\n3,4\n", [], "the column 'x' holds 2 numbers and 1 text, the first 'n/k' in data row 2"),
        ("y;x\n1;2\n2;3\n", ["--delimiter", ","], "was cut into one column only: is --delimiter right?"),
        ("y:x:z\n1:2:3\n2:3:4\n", [], "'y:x:z'. "),  # as it stands: no picture in place of :x:
        ("y:x:z\n1:2:3\n2:3:4\n", [], "was cut into one column only: give the sign between columns as --delimiter."),
        ("y,x\n1,2\n3,4,5\n", [], "line 3 has 3 values, those before it 2"),
        ("y,x\n1,2\n2,3,4,5\n", [], "cannot be read as a table"),
        ("y,x\n", [], "no rows"),
        ("y,x\n1,2\n", ["--encoding", "utf-33"], "no encoding 'utf-33'"),
    ],
)
def test_strange_tables(
    text: str, options: list[str], words: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    path = write(tmp_path / "data.csv", text)
    said = fail(monkeypatch, capsys, "fit", path, "y ~ x", *options)
    assert words in said and said.count("\n") == 1


def test_saved_fits_predict_are_compared_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    load_epilepsy().to_csv(path, index=False, sep=";", decimal=",")
    for name, formula in (("large", "y ~ base + trt"), ("small", "y ~ 1")):
        run("fit", path, formula, "--family", "poisson", "--method", "gva", "--out", tmp_path / name)
    large = tmp_path / "large" / "fit.natvi"
    lines = run("predict", large, path, "--prob", "0.8").stdout.splitlines()
    assert len(lines) == 237 and lines[0].endswith("subject;mean;sd;q10;q90")
    run("predict", large, path, "--kind", "predictive", "--out", tmp_path / "new.csv")
    assert len(pd.read_csv(tmp_path / "new.csv")) == 236
    table = run("compare", large, tmp_path / "small" / "fit.natvi", "--data", path).stdout
    assert table.index("large") < table.index("small") and "se of difference" in table
    with pytest.raises(ValueError, match="two or more different saved fits"):
        CliRunner().invoke(app, ["compare", str(large), str(large), "--data", str(path)], catch_exceptions=False)
    run("report", large, tmp_path / "again.html")
    assert (tmp_path / "again.html").exists()


def test_version_and_info() -> None:
    assert run("--version").stdout == f"natvi {natvi.__version__}\n"
    assert "jaxlib:" in run("info").stdout


def test_answers_that_are_not_to_be_used_have_a_code(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["fit", table, "y ~ base", "--max-steps", "1", "--family", "poisson", "--method", "gva"]
    with monkeypatch.context() as patch:
        patch.setattr(natvi.Result, "trust", property(lambda _: "do not use"))
        assert CliRunner().invoke(app, arguments).exit_code == 3


def test_narrow_lines(table: str) -> None:
    fit = natvi.glm("y ~ base", load_epilepsy(), family="poisson").fit(method="gva")
    text = text_summary(fit, width=40)
    assert max(map(len, text.splitlines())) <= 40


def test_show_of_what_is_no_fit(table: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    assert "not a natvi file" in fail(monkeypatch, capsys, "show", table)
    assert "does not exist" in fail(monkeypatch, capsys, "show", tmp_path / "nothing.natvi")


def test_missing_arguments(monkeypatch: Any, capsys: Any) -> None:
    assert "formula" in fail(monkeypatch, capsys, "fit", "data.csv").lower()


# --- demo, cache, processes --------------------------------------------------------------------------------


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("demo")
    assert [path.name for path in tmp_path.iterdir()] == ["natvi-demo.html"]
    assert "-691.166" in result.stdout and "progabide" in result.stderr and "natvi-demo.html" in result.stderr
    assert run("demo", "--report", tmp_path / "other.html").exit_code == 0
    assert (tmp_path / "other.html").exists()


def test_the_command_is_installed() -> None:
    (entry,) = metadata.entry_points(group="console_scripts", name="natvi")
    assert entry.value == "natvi.cli:main"


def test_module_shows_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["natvi", "--help"])
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "unused")
    with pytest.raises(SystemExit) as exit:
        runpy.run_module("natvi", run_name="__main__")
    out = capsys.readouterr().out
    assert exit.value.code == 0 and all(word in out for word in ("fit", "show", "demo"))


def test_mistake_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "natvi", "fit", "nothing.csv", FORMULA]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert failed.returncode == 2 and failed.stdout == ""
    assert failed.stderr == "natvi: There is no file nothing.csv. Give the path of a CSV or Parquet file.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y;x\n1;1.234,5\n2;2.345,75\n3;1.234,5\n", r"holds numbers written like '1.234,5'. Write them without"),
        ("<!DOCTYPE html><html><body>404</body></html>", "it is a web page"),
        ("PK\x03\x04....", "it is a workbook: save the sheet as CSV"),
    ],
)
def test_what_is_no_table_of_numbers_is_said(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=words):
        check_mixed(read_table(path), "y ~ x")


def test_codes_of_groups_may_look_like_anything() -> None:
    check_mixed(pd.DataFrame({"y": [1, 2], "ward": ["1.234.567", "1,5"]}), "y ~ 1 + (1 | ward)")


def test_predictions_are_written_as_the_file_was(tmp_path: Path) -> None:
    path = tmp_path / "semi.csv"
    path.write_bytes("Größe;dosis\n1,5;klein\n2,25;groß\n".encode("cp1252"))
    frame = read_table(path).assign(mean=[0.5, 1.25])
    assert write_like(frame, path, Reading()).decode("cp1252") == "Größe;dosis;mean\n1,5;klein;0,5\n2,25;groß;1,25\n"
    odd = frame.assign(dosis="Ω")  # which that encoding does not have
    assert "Ω" in write_like(odd, path, Reading()).decode("utf-8")
    assert write_like(frame, tmp_path / "rows.parquet", Reading()).startswith("Größe,dosis".encode())
