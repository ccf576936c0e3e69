"""The calculator gives Python's numbers in a real browser, explains them, and warns."""

import html
import json
import re
import shutil
import subprocess
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from tests.support.amount import ALL
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.export.calculator.content import MOST_NUMBERS, calculator_content, range_words, shortest
from wardround.export.calculator.page import asset, calculator_page
from wardround.export.network import evaluate, plain_model
from wardround.export.trial_rows import UNSEEN, largest_difference, trial_table
from wardround.predict.explanation import explain
from wardround.predict.table import outcome_columns

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
MODELS = {
    "logistic": ("logistic", "two", "fed_avg", {}),
    "linear": ("linear", "value", "fine_tune", {}),
    "network, three classes": ("mlp", "three", "layer_split", {"hidden": (16, 8)}),
    "mixture": ("mlp", "two", "model_interpolation", {"hidden": (8,)}),
    "adapted": ("logistic", "two", "fed_avg", {}),
    "adapted, value": ("linear", "value", "fed_avg", {}),
}
if ALL:
    MODELS |= {
        "logistic, three classes": ("logistic", "three", "fed_avg", {}),
        "network": ("mlp", "two", "fed_avg", {"hidden": (32,)}),
        "network, value": ("mlp", "value", "fed_avg", {"hidden": (8,)}),
        "mixture, three classes": ("logistic", "three", "model_interpolation", {}),
        "context": ("logistic", "two", "context_features", {}),
    }
ROWS = 40

# Types a row into every page, as a hand would, and keeps what the page then says of itself.
TYPIST = """
var frames = document.querySelectorAll("iframe"), told = {};
function type(page, columns, row) {
  columns.forEach(function (column, place) {
    var value = row[column.name], fields = page.getElementsByName("column-" + place), code = "";
    if (column.kind === "number") { fields[0].value = value === null ? "" : String(value); return; }
    if (value !== null) { code = column.categories.indexOf(value); code = code < 0 ? "other" : String(code); }
    if (fields[0].tagName === "SELECT") { fields[0].value = code; return; }
    for (var one = 0; one < fields.length; one += 1) { fields[one].checked = fields[one].value === code; }
  });
  page.getElementById("patient").dispatchEvent(new Event("input"));
}
window.onload = function () {
  Array.prototype.forEach.call(frames, function (frame) {
    var page = frame.contentDocument, columns = JSON.parse(page.getElementById("model").textContent).columns;
    told[frame.title] = rows.map(function (row) {
      type(page, columns, row);
      return JSON.parse(page.documentElement.getAttribute("data-result"));
    });
  });
  document.getElementById("told").textContent = JSON.stringify(told);
};
"""


def browse(path, fragment=""):
    words = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={path.parent / 'profile'}",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]
    done = subprocess.run([*words, path.as_uri() + fragment], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def visible(dom, mark):
    """The text of an element."""
    found = re.search(rf'<(\w+)[^>]*id="{mark}"[^>]*>(.*?)</\1>', dom, re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found.group(2))).split())


@pytest.fixture(scope="module")
def predictors(make_saved, make_adapted):
    found = {
        title: make_saved(model, outcome, algorithm, **settings)
        for title, (model, outcome, algorithm, settings) in MODELS.items()
    }
    return {title: make_adapted(one) if title.startswith("adapted") else one for title, one in found.items()}


def rows_to_type(preparation):
    """Rows of which each says something; a category nobody saw can be chosen only where there is a list."""
    table = trial_table(preparation, ROWS, seed=11)
    table["sex"] = table["sex"].replace(UNSEEN, "M")
    table.loc[3, [column.name for column in preparation.columns if column.name != "age"]] = None
    table.loc[3, "age"] = 61.5
    return table


@pytest.fixture(scope="module")
def told(predictors, tmp_path_factory):
    """What every page says of the same patients: all pages in one browser, each with its own policy."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    table = rows_to_type(next(iter(predictors.values())).preparation)
    frames = "".join(
        f'<iframe title="{title}" srcdoc="{html.escape(calculator_page(one))}"></iframe>'
        for title, one in predictors.items()
    )
    rows = json.dumps(json.loads(table.to_json(orient="records", double_precision=15)))
    table = pd.DataFrame(json.loads(rows))  # the very numbers that are typed
    page = f'<meta charset="utf-8">{frames}<pre id="told"></pre><script>var rows = {rows};{TYPIST}</script>'
    path = tmp_path_factory.mktemp("pages") / "all.html"
    path.write_text(page, encoding="utf-8")
    return table, json.loads(visible(browse(path), "told"))


@pytest.mark.parametrize("title", MODELS)
def test_a_browser_gives_pythons_numbers(told, predictors, title):
    table, found = told
    predictor = predictors[title]
    prepared = predictor.preparation.apply(table)
    said = np.array([one["predicted"] for one in found[title]])
    said = said[:, 0] if predictor.facts.task.kind == "regression" else said
    predicted = predictor.predict(table)
    assert largest_difference(said, predicted) <= 1e-6
    double = evaluate(plain_model(predictor), prepared)
    if predictor.adaptation is not None:
        double = predictor.adaptation.apply(double, predictor.positive)
    assert largest_difference(said, double) <= 1e-12
    assert np.ptp(said) > 0.3
    if predictor.facts.task.kind != "regression":
        assert [one["outcome"] for one in found[title]] == outcome_columns(predictor, predicted)["outcome"].tolist()


@pytest.mark.parametrize("title", MODELS)
def test_contributions_are_those_of_predict_explain(told, predictors, title):
    table, found = told
    predictor = predictors[title]
    explained = explain(predictor, table)
    for number, one in enumerate(found[title]):
        output = predictor.facts.task.classes.index(one["outcome"]) if explained.scores.shape[1] > 1 else 0
        np.testing.assert_allclose(one["contributions"], explained.contributions[number, :, output], atol=1e-9)


def test_contributions_of_a_linear_model_by_hand(told, predictors):
    # Age 61.5 alone is known: (61.5 - 54) / 17.25 times the difference of the weights. The rest is filled in,
    # so that only the indicators of missing values differ from the typical patient.
    _, found = told
    predictor = predictors["logistic"]
    weights = np.float64(predictor.params["dense_0/kernel"])
    weights = weights[:, 1] - weights[:, 0]
    names = predictor.preparation.features
    pushes = dict(
        zip([c.name for c in predictor.preparation.columns], found["logistic"][3]["contributions"], strict=True)
    )
    assert abs(pushes["age"] - weights[0] * 7.5 / 17.25) < 1e-6
    for column in ("lactate", "ward", "triage"):
        assert abs(pushes[column] - weights[names.index(f"{column} missing")]) < 1e-6
    assert pushes["heart rate"] == pushes["sex"] == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_one_patient_from_the_address(predictors, tmp_path):
    predictor = predictors["logistic"]
    path = tmp_path / "calculator.html"
    path.write_text(calculator_page(predictor), encoding="utf-8")
    words = {"age": "103", "heart rate": "9000", "sex": "D", "ward": "naïve <b>", "triage": "9", "height": "180"}
    dom = browse(path, "#" + "&".join(f"{quote(key)}={quote(value)}" for key, value in words.items()))
    patient = {column.name: [None] for column in predictor.preparation.columns}
    patient |= {"age": [103.0], "heart rate": [9000.0], "ward": ["naïve <b>"], "triage": ["9"]}
    expected = float(predictor.predict(pd.DataFrame(patient))[0, 1])
    result = json.loads(html.unescape(re.search(r'data-result="([^"]*)"', dom).group(1)))
    assert abs(result["predicted"][1] - expected) <= 1e-6
    assert visible(dom, "figure").replace("\u00a0", " ") in (f"{100 * expected:.0f} %", f"{100 * expected:.1f} %")
    flagged = expected >= 0.35
    assert f"counts as “{'yes' if flagged else 'no'}”" in visible(dom, "verdict")
    assert "operating point 35 %" in html.unescape(dom).replace("\u00a0", " ")
    warnings = visible(dom, "warnings")
    assert "Age: Outside the training range, 18 to 97" in warnings
    assert "Heart rate: Outside the range of the model, 20 to 250: far outside, check the unit" in warnings
    assert "Triage: Training never saw such a value" in warnings
    assert "“height”, which the model does not know" in warnings
    assert "“D” for Sex, which is not among its values: it counts as unknown" in warnings
    assert "4 of 8 values are unknown" in warnings
    assert "naïve <b>" in visible(dom, "pushes")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_large_network_explains_after_a_moment(make_saved, tmp_path):
    predictor = make_saved("mlp", "two", hidden=(400,))
    path = tmp_path / "calculator.html"
    path.write_text(calculator_page(predictor), encoding="utf-8")
    dom = browse(path, "#age=70")
    result = json.loads(html.unescape(re.search(r'data-result="([^"]*)"', dom).group(1)))
    patient = pd.DataFrame({c.name: [70 if c.name == "age" else None] for c in predictor.preparation.columns})
    expected = explain(predictor, patient).contributions[0, :, 0]
    np.testing.assert_allclose(result["contributions"], expected, atol=1e-6)


def test_the_page_loads_nothing_and_names_stay_text(make_saved):
    columns = Preparation((TextColumn('<img src=x onerror="fired()">', ("</script><script>fired()</script>", "b")),))
    text = calculator_page(make_saved(columns=columns))
    assert "<img" not in text
    assert text.count("</script>") == 2  # the data and the program
    assert re.findall(r'<[^>]* (?:src|href)="?([^"\s>]*)', text) == ["data:,"]  # the icon
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text


def test_every_field_has_a_label_range_and_unit(make_saved):
    predictor = make_saved()
    facts = predictor.facts.model_copy(update={"units": {"age": "years"}})
    object.__setattr__(predictor, "facts", facts)
    text = calculator_page(predictor)
    assert "18 to 97 years in training" in text
    for place, column in enumerate(predictor.preparation.columns):
        assert re.search(rf'<label for="input-{place}">|<fieldset class="field" id="field-{place}"><legend>', text), (
            column
        )
    assert re.search(r'id="input-1"[^>]* step="0.1"', text)


def test_the_program_is_es5():
    """What browsers of 2011 cannot read would leave the page dead there."""
    code = re.sub(r"//[^\n]*|\"[^\"\n]*\"", "", asset("program.js"))
    assert not re.search(r"=>|`|\.\.\.|\b(let|const|class|of|async|await|import|yield)\b", code)


@pytest.mark.parametrize("theme", [0, 1])
def test_contrast(theme):
    """Text against what it stands on, by WCAG's formula: at least 4.5 in both themes."""
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root \{(.*?)\}", asset("style.css"), re.S)[theme]))

    def light(name):
        parts = [int(colours[name][at : at + 2], 16) / 255 for at in (1, 3, 5)]
        return np.dot(
            [0.2126, 0.7152, 0.0722], [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        )

    pairs = [(ink, paper) for ink in ("ink", "quiet") for paper in ("page", "paper", "field", "track")]
    pairs += [(ink, "paper") for ink in ("up", "down", "warn", "bad")]
    pairs += [("ink", tint) for tint in ("tint", "warn-tint", "bad-tint")] + [("accent-ink", "accent")]
    ratios = {pair: (max(map(light, pair)) + 0.05) / (min(map(light, pair)) + 0.05) for pair in pairs}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


def test_ranges_as_people_write_them():
    # Noised ranges end at powers of two, or just below 0.
    assert range_words(NumberColumn("age", low=-9.5367431640625e-07, high=128.0), "years") == "0 to 128 years"
    assert range_words(NumberColumn("t", seen=(36.55, 41.2)), "°C") == "36.55 to 41.2 °C"
    assert range_words(NumberColumn("at", seen=(1.69e9, 1.71e9)), "") == "1.69e+09 to 1.71e+09"
    assert range_words(NumberColumn("flag", seen=(0.0, 0.0)), "") == "0 to 0"


def test_parameters_survive_as_text():
    values = (np.random.default_rng(0).normal(size=20_000) * 10.0 ** (np.arange(20_000) % 40 - 20)).astype(np.float32)
    assert np.array_equal(np.asarray(json.loads(json.dumps(shortest(values))), np.float32), values)


def test_what_cannot_be_a_page_is_refused(make_saved, make_adapted):
    with pytest.raises(Refusal, match="isotonic map"):
        calculator_page(make_adapted(make_saved(), kind="isotonic", knots=((0.1, 0.2), (0.5, 0.9))))
    with pytest.raises(Refusal, match="takes arrays, such as images"):
        calculator_page(make_saved("cnn", "three", shape=(8, 8), channels=(2,), dense=4))
    wide = make_saved("mlp", hidden=(MOST_NUMBERS // 10,), columns=Preparation((NumberColumn("age"),) * 1))
    object.__setattr__(wide, "params", wide.params | {"dense_0/kernel": np.zeros((1, MOST_NUMBERS), np.float32)})
    with pytest.raises(Refusal, match="too many for a page"):
        calculator_content(wide)
