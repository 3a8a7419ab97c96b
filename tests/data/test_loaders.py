"""Every loader gives the counts of the paper, the promised columns and no missing values."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from formulae import design_matrices

from natvi import data
from natvi.data import diabetes, embedded, external

needs_data = pytest.mark.needs_data

# loader, rows, columns, grouping column, groups
CASES = [
    (data.load_epilepsy, 236, ["y", "base", "trt", "age", "visit", "subject"], "subject", 59),
    pytest.param(data.load_toenail, 1908, ["infect", "trt", "time", "visit", "idnr"], "idnr", 294, marks=needs_data),
    pytest.param(
        data.load_hers, 9172, ["y", "age", "bmi", "htnmeds", "visit", "pptid"], "pptid", 2031, marks=needs_data
    ),
    (data.load_sleepstudy, 180, ["Reaction", "Days", "Subject"], "Subject", 18),
    (data.load_crabs, 173, ["crab", "sat", "y", "weight", "width", "color", "spine"], "crab", 173),
    (
        data.load_contraception,
        1934,
        ["woman", "district", "use", "livch", "age", "urban"],
        "district",
        60,
    ),
    pytest.param(
        data.load_diabetes,
        45_694,
        ["y", "hba1c", "diagnosis", "patient_nbr"],
        "patient_nbr",
        16_341,
        marks=needs_data,
    ),
]


@pytest.mark.parametrize(("load", "rows", "columns", "group", "groups"), CASES)
def test_shape(load: Callable[[], pd.DataFrame], rows: int, columns: list[str], group: str, groups: int) -> None:
    frame = load()
    assert list(frame.columns) == columns
    assert len(frame) == rows
    assert len(set(frame[group])) == groups
    assert not frame.isna().to_numpy().any()
    assert frame.index.tolist() == list(range(rows))


@pytest.mark.parametrize(
    ("load", "formula", "columns"),
    [
        (data.load_epilepsy, "y ~ base*trt + age + visit", 6),
        pytest.param(data.load_toenail, "infect ~ trt*time", 4, marks=needs_data),
        pytest.param(data.load_hers, "y ~ age + bmi + htnmeds + visit", 5, marks=needs_data),
        (data.load_sleepstudy, "Reaction ~ Days", 2),
        pytest.param(data.load_diabetes, "y ~ hba1c*diagnosis", 36, marks=needs_data),
    ],
)
def test_fixed_part_of_the_formula(load: Callable[[], pd.DataFrame], formula: str, columns: int) -> None:
    design = np.asarray(design_matrices(formula, load()).common)
    assert design.shape[1] == columns
    assert np.linalg.matrix_rank(design) == columns


def test_all_loaders_are_tested() -> None:
    loaders = {getattr(case, "values", case)[0] for case in CASES}
    elsewhere = {"GlmData", "load_a4a", "load_german", "load_german_frame"}  # test_glm_data.py
    elsewhere |= {
        "Images",
        "load_a9a",
        "load_cifar10",
        "load_fashion_mnist",
        "load_mnist",
        "load_protein",
    }  # test_deep_data.py
    assert loaders == {getattr(data, name) for name in set(data.__all__) - elsewhere}


def test_epilepsy_values() -> None:
    frame, raw = data.load_epilepsy(), embedded._read("epilepsy.csv")
    assert frame["y"].tolist()[:4] == [5, 3, 3, 3]
    assert frame["visit"].tolist()[:4] == [-0.3, -0.1, 0.1, 0.3]
    assert frame["base"].iloc[0] == pytest.approx(np.log(11 / 4))
    assert frame.groupby("trt")["subject"].nunique().to_dict() == {0: 28, 1: 31}
    assert frame["age"].iloc[0] == pytest.approx(0.1142036952992651) and frame["age"].mean() == pytest.approx(0.0)
    assert raw.groupby("subject")["base"].nunique().max() == 1
    # the cell that MASS corrected in 2025 is as in the paper's time
    assert frame.loc[(frame["subject"] == 8) & (frame["visit"] == 0.1), "y"].tolist() == [21]


@needs_data
def test_toenail_values() -> None:
    frame = data.load_toenail()
    assert set(frame["infect"]) == set(frame["trt"]) == {0, 1}
    assert frame["time"].iloc[2] == pytest.approx(3.5357142857)
    patients = frame.groupby("idnr").agg(visits=("visit", "size"), arms=("trt", "nunique"))
    assert np.sum(patients["visits"].to_numpy() == 7) == 224
    assert set(patients["arms"]) == {1}


@needs_data
def test_hers_values() -> None:
    frame = data.load_hers()
    assert np.mean(frame["y"].to_numpy()) == pytest.approx(0.3338, abs=5e-5)
    for name in ("age", "bmi"):
        assert np.mean(frame[name].to_numpy()) == pytest.approx(0.0, abs=1e-12)
        assert np.std(frame[name].to_numpy(), ddof=1) == pytest.approx(1.0, abs=1e-12)
    assert sorted(set(frame["visit"])) == pytest.approx([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0])


def test_sleepstudy_values() -> None:
    frame = data.load_sleepstudy()
    assert frame["Subject"].iloc[0] == "308"
    slope, intercept = np.polyfit(frame["Days"], frame["Reaction"], 1)
    # balanced data: least squares equals the fixed effects that lme4 documents
    assert (intercept, slope) == pytest.approx((251.405, 10.467), abs=1e-3)


def test_crabs_and_contraception_values() -> None:
    crabs, contraception = data.load_crabs(), data.load_contraception()
    assert np.sum(crabs["sat"].to_numpy()) == 505
    assert ((crabs["sat"].to_numpy() > 0) == crabs["y"].to_numpy()).all()
    assert set(contraception["use"]) == set(contraception["urban"]) == {"N", "Y"}
    assert sorted(set(contraception["livch"])) == ["0", "1", "2", "3+"]


def test_loaders_give_fresh_frames() -> None:
    frame = data.load_crabs()
    frame["sat"] = 0
    assert data.load_crabs()["sat"].iloc[0] == 8


@needs_data
def test_diabetes_values() -> None:
    frame = data.load_diabetes()
    cells = Counter(zip(frame["hba1c"], frame["diagnosis"], strict=True))
    assert len(cells) == 36 and min(cells.values()) == 9
    assert np.sum(frame["y"].to_numpy()) == 9027
    assert min(Counter(frame["patient_nbr"]).values()) == 2
    for name in ("hba1c", "diagnosis"):  # the reference level is the first and the largest
        assert min(frame[name]) == Counter(frame[name]).most_common(1)[0][0]


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("390", "circulatory"),
        ("459.9", "circulatory"),
        ("785.5", "circulatory"),
        ("460", "respiratory"),
        ("786.1", "respiratory"),
        ("579.9", "digestive"),
        ("787", "digestive"),
        ("250.83", "diabetes"),
        ("251", "other"),
        ("999.9", "injury"),
        ("739", "musculoskeletal"),
        ("629", "genitourinary"),
        ("788", "genitourinary"),
        ("140", "neoplasms"),
        ("239.9", "neoplasms"),
        ("240", "other"),
        ("V57", "other"),
        ("E909", "other"),
        ("?", "other"),
    ],
)
def test_diagnosis_groups(code: str, group: str) -> None:
    assert diabetes.diagnosis_group(np.array([code])).tolist() == [group]


def test_hba1c_levels() -> None:
    result = np.array(["None", "Norm", ">7", ">8", ">8"])
    change = np.array(["Ch", "Ch", "No", "Ch", "No"])
    expected = ["absent", "below_8", "below_8", "over_8_changed", "over_8_unchanged"]
    assert diabetes.hba1c_level(result, change).tolist() == expected


def test_missing_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATVI_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"NATVI_DATA is not set.*export NATVI_DATA="):
        data.load_diabetes()
    monkeypatch.setenv("NATVI_DATA", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match=r"not a folder\. Set NATVI_DATA"):
        external.data_folder()
    monkeypatch.setenv("NATVI_DATA", str(tmp_path))
    assert external.data_folder() == tmp_path
    with pytest.raises(FileNotFoundError, match=r"diabetic_data\.csv\.gz does not exist\. Download"):
        data.load_diabetes()
