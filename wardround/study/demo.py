"""The study behind `wardround demo`: four hospitals of the triage generator, three ways to train."""

from importlib.resources import files
from tomllib import loads

from wardround.study.file import Study, parse_study


def demo_study() -> Study:
    text = files("wardround.study").joinpath("demo.toml").read_text(encoding="utf-8")
    return parse_study(loads(text), where="demo.toml")
