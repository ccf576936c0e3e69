"""Which peers there are, what each needs installed, and where its own environment lies.

Every peer has an environment of its own (`benchmarks/.peers/<name>`, not under version control), since their
requirements contradict each other and ours.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_DIRECTORY = ROOT / "benchmarks" / ".peers"

# PyTorch comes first in every list that has it: a peer's own wish for "torch" would pull the build with CUDA.
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the packages in it."""

    name: str
    packages: tuple[str, ...]

    @property
    def directory(self) -> Path:
        return PEERS_DIRECTORY / self.name

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def receipt(self) -> Path:
        """Written when the installation is complete, so that a broken-off one is not taken for whole."""
        return self.directory / "installed.txt"

    @property
    def ready(self) -> bool:
        return self.receipt.is_file() and self.receipt.read_text() == self.wanted

    @property
    def wanted(self) -> str:
        return "\n".join(self.packages) + "\n"


@dataclass(frozen=True)
class Peer:
    """A peer: the module that runs it, the environment it runs in, and the cases it can do."""

    module: str
    environment: Environment
    cases: tuple[str, ...]


FEDJAX = Environment(
    "fedjax", ("fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "numpy<2", "scipy<1.13")
)
PFL = Environment("pfl", (TORCH, "pfl[pytorch]==0.6.0"))
FLOWER = Environment("flower", (TORCH, "flwr[simulation]==1.41.0"))

ENVIRONMENTS = {environment.name: environment for environment in (FEDJAX, PFL, FLOWER)}

PEERS = {
    "fedjax": Peer("benchmarks.peers.with_fedjax", FEDJAX, ("tabular", "images")),
    "pfl": Peer("benchmarks.peers.with_pfl", PFL, ("tabular", "images")),
    "flower": Peer("benchmarks.peers.with_flower", FLOWER, ("tabular", "images")),
    # Plain PyTorch needs nothing that pfl's environment does not have.
    "torch": Peer("benchmarks.peers.with_torch", PFL, ("tabular", "images", "hospitals")),
}
