"""Run by test_hosts.py in processes of its own: one host of a simulation over several, or all of it on one."""

import sys
from pathlib import Path

import jax
import numpy as np

if __name__ == "__main__":
    count, number, coordinator, algorithm_name, aggregator, target = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", 1)
    from wardround.engine.machine.hosts import Hosts, join

    if int(count) > 1:
        join(Hosts(int(count), int(number), coordinator))
    from wardround.core.contracts import Task
    from wardround.core.federation import assemble
    from wardround.engine import layout, registry
    from wardround.engine.simulate import Simulation
    from wardround.models.logistic import logistic

    layout.WORTH_A_DEVICE = 0
    generator = np.random.default_rng(7)
    task = Task((3,), ("no", "yes"))

    def rows(n):
        x = generator.normal(size=(n, 3)).astype(np.float32)
        return x, (x.sum(axis=1) > 0).astype(np.int32)

    federation = assemble([(f"site-{i}", (rows(n), rows(2), rows(2))) for i, n in enumerate([33, 12, 50, 7, 21])], task)
    model = logistic(task)
    algorithm = registry.find("algorithm", algorithm_name).build(model, registry.find("aggregator", aggregator).build())
    with Simulation(federation, seed=5) as engine:
        progress = engine.begin(algorithm, model.init(jax.random.key(0)))
        assert engine.shape(algorithm, algorithm.params(progress.server)).devices == int(count)
        progress, _ = engine.train(algorithm, progress, [(n, np.arange(5)) for n in (1, 2, 3)])
        scores = engine.predict(algorithm, progress, "test")
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(progress)]
    np.savez(Path(target), *leaves, predicted=scores.predicted)
