"""Tables, tests, meta-analysis, components and ComBat over sites against the same on pooled rows, on real data.

`python -m benchmarks.pooled_answers` prints docs/results/pooled_answers.md. Needs WARDROUND_DATA, and the libraries
that pooled answers come from: scikit-learn, SciPy, statsmodels, neuroCombat, PyMARE (the extra `dev`).
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from wardround.analyses.combat import combat
from wardround.analyses.correlations import correlations
from wardround.analyses.cross_table import cross_table
from wardround.analyses.distribution import distribution
from wardround.analyses.group_means import group_means
from wardround.analyses.meta_analysis import meta_analysis
from wardround.analyses.principal_components import principal_components
from wardround.analyses.propensity import propensity
from wardround.analyses.rank_test import rank_test
from wardround.core.analysis import Agreed, Analysis
from wardround.core.contracts import Message, Query, Report, Site
from wardround.core.errors import Refusal
from wardround.data.column_agreement import agree_on_columns, columns_of_analysis, rows_of_analysis
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_file
from wardround.data.query import ask_all
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.predict.analysis_columns import analysis_columns

CELL = 10


class Answer(NamedTuple):
    """What was found, in how many exchanges of how many numbers from each site."""

    report: Report
    exchanges: int
    numbers: int


def answer_of(analysis: Analysis, tables: dict[str, pd.DataFrame]) -> Answer:
    """As `wardround run` finds it, without a folder."""
    sites = [Site(name, columns_of_analysis(frame, analysis.columns, name)) for name, frame in tables.items()]

    def ask(query: Query, message: Message) -> Report:
        return ask_all(query, message, sites)

    columns = agree_on_columns(ask, list(tables), analysis.columns, declared={}, smallest_cell=1)
    agreed = Agreed(tuple(tables), columns)
    rows = [rows_of_analysis(site, agreed) for site in sites]
    inner = exchange_in_process(analysis, agreed, rows)
    sent: list[int] = []

    def exchange(number: int, asked: Message) -> Message:
        told = inner(number, asked)
        wide = len(rows) if not analysis.sums else 1
        sent.append(sum(np.size(one) for one in leaves(told.arrays)) // wide)
        return told

    return Answer(analyse(analysis, agreed, exchange), len(sent), sum(sent))


def leaves(tree: Any) -> Iterator[Any]:
    for one in tree.values() if isinstance(tree, dict) else (tree,):
        yield from leaves(one) if isinstance(one, dict) else (one,)


def cnsim() -> dict[str, pd.DataFrame]:
    """The three made-up studies by which DataSHIELD tests itself."""
    frame = pd.read_csv(data_file("datashield_cnsim", "cnsim.csv"))
    words = {"GENDER": {0: "male", 1: "female"}, "DIS_DIAB": {0: "no", 1: "yes"}, "MEDI_LPD": {0: "no", 1: "yes"}}
    for column, meaning in words.items():
        frame[column] = frame[column].map(meaning)
    frame["BMI"] = frame.PM_BMI_CATEGORICAL.map({1: "normal", 2: "overweight", 3: "obese"})
    return {f"study {name}": part.reset_index(drop=True) for name, part in frame.groupby("study")}


def opt() -> dict[str, pd.DataFrame]:
    """Treatment of gum disease in pregnancy and birth before 37 weeks, four clinics."""
    frame = pd.read_csv(data_file("multicentre_small", "opt.csv.gz"), low_memory=False)
    names = {"Preg.ended...37.wk": "early", "Group": "group", "Birthweight": "weight", "Age": "age", "BMI": "bmi"}
    kept = frame.rename(columns={**names, "Prev.preg": "earlier"})[["Clinic", *names.values(), "earlier"]]
    for column in ("early", "earlier"):
        kept[column] = kept[column].str.strip().str.lower()
    return {str(name): part.reset_index(drop=True) for name, part in kept.groupby("Clinic")}


def rhdnase() -> dict[str, pd.DataFrame]:
    """A drug for cystic fibrosis at 51 institutions: who needed antibiotics."""
    frame = pd.read_csv(data_file("multicentre_small", "rhDNase.csv"))
    ill = frame.assign(ill=frame.ivstart > 0).groupby("id").agg({"inst": "first", "trt": "first", "ill": "max"})
    ill = ill.assign(ill=np.where(ill.ill, "yes", "no"), drug=np.where(ill.trt == 1, "yes", "no"))
    return {f"institution {name}": part[["ill", "drug"]].reset_index(drop=True) for name, part in ill.groupby("inst")}


class Line(NamedTuple):
    """A line of the page."""

    question: str
    words: str
    oracle: str
    difference: float | str
    answer: Answer


def complete(tables: dict[str, pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return (
        pd.concat([one.assign(site=name) for name, one in tables.items()]).dropna(subset=columns).reset_index(drop=True)
    )


def gap(found: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(found, float) - np.asarray(expected, float)).max())


def lines() -> Iterator[Line]:
    tables = cnsim()
    labs = ["LAB_TSC", "LAB_TRIG", "LAB_HDL", "LAB_GLUC_ADJUSTED"]
    rows = complete(tables, labs)

    def told(question: str, analysis: Analysis, oracle: str, compare: Callable[[Any], float | str], on: Any) -> Line:
        found = answer_of(analysis, on)
        return Line(question, found.report["words"][0], oracle, compare(found.report["numbers"]), found)

    yield told(
        "CNSIM: correlations of four blood values",
        correlations(columns=tuple(labs)),
        "pandas",
        lambda n: gap(n["r"], rows[labs].corr()),
        tables,
    )
    sex = complete(tables, ["LAB_TSC", "GENDER"])
    groups = [sex.LAB_TSC[level == sex.GENDER] for level in ("male", "female")]
    yield told(
        "CNSIM: cholesterol of women and men (t, Welch)",
        group_means(column="LAB_TSC", group="GENDER"),
        "SciPy",
        lambda n: gap(
            [abs(n["welch"]["statistic"]), n["welch"]["p"], abs(n["student"]["statistic"])],
            [
                abs(stats.ttest_ind(*groups, equal_var=False).statistic),
                stats.ttest_ind(*groups, equal_var=False).pvalue,
                abs(stats.ttest_ind(*groups).statistic),
            ],
        ),
        tables,
    )
    yield told(
        "CNSIM: the same by ranks (Mann-Whitney)",
        rank_test(column="LAB_TSC", group="GENDER", bins=4096),
        "SciPy",
        lambda n: gap(n["p"], stats.mannwhitneyu(*groups, use_continuity=False, method="asymptotic").pvalue),
        tables,
    )
    weight = complete(tables, ["PM_BMI_CONTINUOUS", "BMI"])
    yield told(
        "CNSIM: BMI in three classes (analysis of variance)",
        group_means(column="PM_BMI_CONTINUOUS", group="BMI"),
        "SciPy",
        lambda n: (
            gap(
                n["anova"]["statistic"],
                stats.f_oneway(*(p.PM_BMI_CONTINUOUS for _, p in weight.groupby("BMI"))).statistic,
            )
            / n["anova"]["statistic"]
        ),
        tables,
    )
    both = complete(tables, ["DIS_DIAB", "GENDER"])
    table = pd.crosstab(both.GENDER, both.DIS_DIAB)
    yield told(
        "CNSIM: diabetes by sex (chi-squared, Fisher)",
        cross_table(rows="GENDER", columns="DIS_DIAB"),
        "SciPy",
        lambda n: gap(
            [n["chi2"], n["fisher_p"]],
            [stats.chi2_contingency(table, correction=False).statistic, stats.fisher_exact(table).pvalue],
        ),
        tables,
    )
    yield told(
        "CNSIM: quartiles of triglycerides",
        distribution(columns=("LAB_TRIG",), precision=1e-9),
        "NumPy",
        lambda n: gap(
            list(n["LAB_TRIG"]["quantiles"].values()),
            np.quantile(complete(tables, ["LAB_TRIG"]).LAB_TRIG, [0.25, 0.5, 0.75], method="inverted_cdf"),
        ),
        tables,
    )
    for how in ("closed", "admm"):
        yield told(
            f"CNSIM: components of four blood values, corrected for BMI and sex ({how})",
            principal_components(columns=tuple(labs), covariates=("PM_BMI_CONTINUOUS", "GENDER"), correction=how),
            "scikit-learn",
            lambda n: gap(n["loadings"], components_of(tables, labs)),
            tables,
        )
    yield told(
        "CNSIM: four blood values harmonised, BMI and sex preserved (ComBat)",
        combat(columns=tuple(labs), covariates=("PM_BMI_CONTINUOUS", "GENDER")),
        "neuroCombat",
        lambda n: harmonised_gap(n, tables, labs, ["PM_BMI_CONTINUOUS"], ["GENDER"]),
        tables,
    )
    yield told(
        "CNSIM: cholesterol per unit of triglycerides, study by study, put together",
        meta_analysis(measure="adjusted_difference", outcome="LAB_TSC", exposure="LAB_TRIG"),
        "PyMARE (REML)",
        pooled_gap,
        tables,
    )
    yield told(
        "Pregnancy trial, 4 clinics: birth before 37 weeks by treatment of the gums",
        meta_analysis(measure="odds_ratio", outcome="early", exposure="group", exposed="T"),
        "PyMARE (REML)",
        pooled_gap,
        opt(),
    )
    yield told(
        "Pregnancy trial: birthweight by treatment, age, BMI and earlier pregnancies allowed for by inverse weights",
        propensity(treatment="group", treated="T", outcome="weight", covariates=("age", "bmi", "earlier")),
        "statsmodels",
        weights_gap,
        opt(),
    )
    yield told(
        "Cystic fibrosis, 51 institutions: antibiotics with the drug",
        meta_analysis(measure="risk_ratio", outcome="ill", exposure="drug"),
        "PyMARE (REML)",
        pooled_gap,
        rhdnase(),
    )
    heart = dict(heart_disease().sites)
    yield told(
        "Heart disease, 4 hospitals: three measurements harmonised, age, sex and disease preserved",
        combat(columns=("trestbps", "thalach", "oldpeak"), covariates=("age", "sex", "disease")),
        "neuroCombat",
        lambda n: harmonised_gap(n, heart, ["trestbps", "thalach", "oldpeak"], ["age"], ["sex", "disease"]),
        heart,
    )


def components_of(tables: dict[str, pd.DataFrame], labs: list[str]) -> Any:
    from sklearn.decomposition import PCA

    rows = complete(tables, [*labs, "PM_BMI_CONTINUOUS", "GENDER"])
    y = rows[labs].to_numpy()
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    z = np.column_stack([np.ones(len(y)), rows.PM_BMI_CONTINUOUS, rows.GENDER == "male"]).astype(float)
    return PCA().fit(y - z @ np.linalg.lstsq(z, y, rcond=None)[0]).components_


def harmonised_gap(
    numbers: Any, tables: dict[str, pd.DataFrame], columns: list[str], continuous: list[str], words: list[str]
) -> float:
    from neuroCombat import neuroCombat

    rows = complete(tables, [*columns, *continuous, *words])
    # neuroCombat keeps covariates in 32 bits: both are given what these hold.
    rows[continuous] = rows[continuous].astype("float32").astype("float64")
    own = {str(name): part for name, part in rows.groupby("site", sort=False)}
    again = answer_of(combat(columns=tuple(columns), covariates=(*continuous, *words)), own).report["numbers"]
    ours = np.concatenate([analysis_columns("combat", again, part.reset_index(drop=True))[0] for part in own.values()])
    with contextlib.redirect_stdout(io.StringIO()):
        oracle = neuroCombat(
            dat=rows[columns].to_numpy().T,
            covars=rows[["site", *continuous, *words]],
            batch_col="site",
            categorical_cols=words,
            continuous_cols=continuous,
        )["data"].T
    ordered = np.concatenate([oracle[rows.site.to_numpy() == name] for name in own])
    return gap(ours, ordered)


def pooled_gap(numbers: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves a file open when it is imported
        from pymare import Dataset
        from pymare.estimators import VarianceBasedLikelihoodEstimator
    used = [one for one in numbers["estimates"] if one["effect"] is not None]
    y, v = (np.array([one[key] for one in used])[:, None] for key in ("effect", "variance"))
    summary = VarianceBasedLikelihoodEstimator(method="REML").fit_dataset(Dataset(y=y, v=v)).summary()
    fixed = {key: float(np.squeeze(value)) for key, value in summary.get_fe_stats().items()}
    found = [numbers["heterogeneity"]["tau2"], *(numbers["random"][key] for key in ("effect", "error", "low", "high"))]
    return gap(found, [float(np.squeeze(summary.tau2)), *(fixed[key] for key in ("est", "se", "ci_l", "ci_u"))])


def weights_gap(numbers: Any) -> float:
    """statsmodels cuts propensities at 0.01 and 0.99; here all lie well within."""
    import statsmodels.api as sm
    from statsmodels.treatment.treatment_effects import TreatmentEffect

    rows = complete(opt(), ["group", "weight", "age", "bmi", "earlier"])
    x = np.column_stack([np.ones(len(rows)), rows.age, rows.bmi, rows.earlier == "yes"]).astype(float)
    t, y = (rows.group == "T").to_numpy(float), rows.weight.to_numpy(float)
    scores = sm.Logit(t, x).fit(disp=0, tol=1e-12, method="newton")
    oracle = TreatmentEffect(sm.OLS(y, x), t, results_select=scores).ipw().summary_frame()
    # In grams: told as a share of the effect and of its standard error.
    return max(abs(numbers["effect"] / oracle.coef.iloc[0] - 1), abs(numbers["error"] / oracle["std err"].iloc[0] - 1))


def protected() -> Iterator[tuple[str, str, str]]:
    """The same questions with cells of ten: what is told then."""
    asked: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("CNSIM: diabetes by sex", cnsim(), cross_table, {"rows": "GENDER", "columns": "DIS_DIAB"}),
        ("CNSIM: cholesterol by sex, means", cnsim(), group_means, {"column": "LAB_TSC", "group": "GENDER"}),
        ("CNSIM: cholesterol by sex, ranks", cnsim(), rank_test, {"column": "LAB_TSC", "group": "GENDER"}),
        ("CNSIM: quartiles of triglycerides", cnsim(), distribution, {"columns": ("LAB_TRIG",)}),
        (
            "Pregnancy trial: birth before 37 weeks",
            opt(),
            meta_analysis,
            {"measure": "odds_ratio", "outcome": "early", "exposure": "group", "exposed": "T"},
        ),
        (
            "Cystic fibrosis: antibiotics with the drug",
            rhdnase(),
            meta_analysis,
            {"measure": "risk_ratio", "outcome": "ill", "exposure": "drug"},
        ),
    ]
    for question, tables, method, settings in asked:
        told = []
        for cell in (1, CELL):
            try:
                told.append(answer_of(method(**settings, smallest_cell=cell), tables).report["words"][0])
            except Refusal as refusal:
                told.append(f"refused: {refusal}")
        yield question, told[0], told[1]


def page() -> str:
    rows = []
    for one in lines():
        gap_text = one.difference if isinstance(one.difference, str) else f"{one.difference:.1e}"
        rows.append(
            f"| {one.question} | {one.words} | {one.oracle} | {gap_text} |"
            f" {one.answer.exchanges} | {one.answer.numbers:,} |"
        )
    cells = [f"| {question} | {exact} | {kept} |" for question, exact, kept in protected()]
    return "\n".join(
        [
            "# Answers over sites, and on pooled rows",
            "",
            "`python -m benchmarks.pooled_answers` asks the sites of real tables and compares with what an independent",
            "library finds on all rows in one place. The difference is the largest among all figures named, in the",
            "units of the figure. Numbers are those that each site sent, over all exchanges.",
            "",
            "| question | answer | beside | largest difference | exchanges | numbers |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "Of F and of the effect by inverse weights the difference is a share. neuroCombat keeps covariates in 32",
            "bits: both were given what these hold. Quartiles were asked for to one billionth of the column's range,",
            "and 4,096 bins leave some values tied.",
            "",
            f"## With cells of {CELL}",
            "",
            "The same questions where no site tells of fewer than ten patients. Sites with small cells are left out,",
            "or tell less; what is left out is said.",
            "",
            "| question | exact | protected |",
            "|---|---|---|",
            *cells,
            "",
        ]
    )


if __name__ == "__main__":
    print(page(), end="")
