"""A site's one privacy ledger, for all its studies: where it lies, what its policy allows, what is spent and left.

Patients and whole sites are two ledgers in one file (`privacy.jsonl`): each level has the policy's cap for itself. What
studies promise, of either level, is added up when they are approved.
"""

from pathlib import Path

from wardround.deploy.home import SiteHome
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.policy_file import read_policy
from wardround.privacy.accountant import epsilon
from wardround.privacy.budget import Budget, Charge


def ledger_path(home: SiteHome) -> Path:
    return home.path / "privacy.jsonl"


def budget_of(home: SiteHome) -> Budget:
    """The ledger, to be debited, under what the policy says now."""
    policy = read_policy(home.policy_path)
    return Budget(ledger_path(home), policy.epsilon, delta=policy.delta, site=home.settings.name)


def charged_epsilon(home: SiteHome, policy: Policy, study: str | None = None) -> float:
    """The epsilon of everything that the ledger holds, of one study or of all: that of the level that spent more."""
    charges = Budget(ledger_path(home), delta=policy.delta).charges()
    return max(epsilon_at(charges, level, policy.delta, study) for level in ("sample", "site"))


def spending_sentence(promised: float | None, paid: float) -> str:
    """What a study has spent of what it promised; nothing for one without noise that was never charged."""
    if promised is None:
        return f"epsilon {paid:.3g} spent" if paid else ""
    return f"epsilon {paid:.3g} of {promised:g} spent"


def total_sentences(policy: Policy, promised: float, paid: float) -> list[str]:
    """How the site stands with all its studies; nothing where neither policy nor ledger know of an epsilon."""
    if policy.epsilon is not None:
        return [
            f"The policy allows an epsilon of {policy.epsilon:g}: {promised:g} is promised to approved studies, "
            f"{paid:.3g} is spent, and {max(0.0, policy.epsilon - promised):g} is still available."
        ]
    return [f"All studies together have spent an epsilon of {paid:.3g}; the policy sets no limit."] if paid else []


def epsilon_at(charges: list[Charge], level: str, delta: float, study: str | None) -> float:
    meant = [charge for charge in charges if charge.level == level and study in (None, charge.study)]
    return epsilon([step for charge in meant for step in charge.steps], delta)
