"""A model from a user's PyTorch module and loss: PyTorch computes, the compiled round asks it through callbacks.

Needs the extra `wardround[torch]` and a module that keeps nothing but parameters (no batch norm). Parameters carry
PyTorch's names with "/" for "."; frozen ones (`requires_grad=False`) stay as they are and do not travel. Training
starts at the module's own values, so a pretrained one starts warm and `torch.manual_seed` decides a fresh one.
Images come as the data hold them: (rows, height, width[, channels]). Dropout is on while learning, drawn from the
key, and off in predictions.

Costs one callback a step (measured only on a busy machine: 1.2 to 1.6 times plain PyTorch with four million parameters,
two to three times with a few thousand); sites batched together are computed one after the other. Small modules on a
busy machine were far quicker with `torch.set_num_threads(1)`. There are no second derivatives and none by the rows.
"""

import copy
import inspect
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from wardround.core import trees
from wardround.core.contracts import Array, Batch, Key, Model, Params, Task, intensities
from wardround.core.errors import Refusal
from wardround.models.from_flax import refuse_masks

TorchLoss = Callable[[Any, Any], Any]
Host = np.ndarray[Any, Any]


def from_torch(module: Any, loss: TorchLoss, task: Task) -> Model:
    """A model from a PyTorch module and a PyTorch loss (told reduction="none"; the mean is over rows)."""
    if task.survival:
        raise Refusal(
            "a PyTorch module brings a loss of its own, which knows nothing of patients lost from sight",
            where="[data] horizons",
            remedy="take a network of ours, such as mlp, or a Flax module",
        )
    refuse_masks(task)
    host = _Host(module, loss, task)
    shapes = {name: _floats(*value.shape) for name, value in host.start.items()}
    scalar = _floats()

    ask_loss = _ask(host.loss, scalar)
    ask_both = _ask(host.loss_and_gradient, (scalar, shapes))
    ask_outputs = cache(lambda rows: _ask(host.outputs, _floats(rows, task.outputs)))

    def seed_of(key: Key) -> Array:
        return jax.random.bits(key, dtype=jnp.uint32) if host.random else jnp.zeros((), jnp.uint32)

    def ready(batch: Batch) -> Batch:
        return Batch(jnp.asarray(intensities(batch.x)), jnp.asarray(batch.y), jnp.asarray(batch.mask))

    @jax.custom_vjp
    def mean_loss(params: Params, batch: Batch, seed: Array) -> Array:
        value: Array = ask_loss(params, *batch, seed)
        return value

    def forward(params: Params, batch: Batch, seed: Array) -> tuple[Array, Params]:
        if any(leaf.perturbed for leaf in jax.tree.leaves(batch)):
            raise Refusal(
                "a PyTorch model gives no derivatives with respect to its input rows",
                where=f"PyTorch module {host.name}",
                remedy="bring the model as a Flax module (from_flax)",
            )
        values = jax.tree.map(lambda leaf: leaf.value, (params, batch, seed))
        both: tuple[Array, Params] = ask_both(values[0], *values[1], values[2])
        return both

    def backward(slope: Params, cotangent: Array) -> tuple[Params, None, None]:
        return trees.scale(slope, cotangent), None, None

    mean_loss.defvjp(forward, backward, symbolic_zeros=True)

    def gradient(params: Params, batch: Batch, key: Key) -> Params:
        slope: Params = ask_both(params, *ready(batch), seed_of(key))[1]
        return slope

    def predict(params: Params, x: Array) -> Array:
        outputs = ask_outputs(x.shape[0])(params, jnp.asarray(intensities(x)))
        return outputs[:, 0] if task.regression else jax.nn.softmax(outputs)

    return Model(
        init=lambda key: {name: jnp.array(value) for name, value in host.start.items()},
        loss=lambda params, batch, key: mean_loss(params, ready(batch), seed_of(key)),
        predict=predict,
        gradient=gradient,
    )


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _ask(question: Callable[..., Any], shape: Any) -> Callable[..., Any]:
    """A function of JAX arrays that asks a function of NumPy arrays.

    `pure_callback` would put the arguments into JAX arrays first, for which it needs a thread of the very pool whose
    threads wait in callbacks: with two host devices and four million parameters it hung. Here buffers come as is.
    """

    def fill(context: Any, out: Any, *given: Any) -> None:
        answer = question(*jax.tree.map(np.asarray, given))
        jax.tree.map(lambda slot, value: np.copyto(np.asarray(slot), value), out, answer)

    ask: Callable[..., Any] = buffer_callback(fill, shape, vmap_method="sequential")
    return ask


class _Host:
    """The PyTorch side of the callbacks, in NumPy arrays only: JAX called from a callback may hang."""

    def __init__(self, module: Any, loss: TorchLoss, task: Task) -> None:
        try:
            import torch
        except ImportError as error:
            raise Refusal(
                "PyTorch is not installed", where="model from_torch", remedy="pip install wardround[torch]"
            ) from error
        self.torch = torch
        self.task = task
        self.name = type(module).__name__
        self._refuse_running_statistics(module)
        self.module = copy.deepcopy(module).cpu().float()
        self.losses = _unreduced(loss)
        # One at a time: a call puts its parameters into the one module, and XLA calls from several threads.
        self.turn = threading.Lock()
        self.random = self._try()
        learned = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        if not learned:
            raise self._refusal("has no parameters to learn", "leave requires_grad on for some of them")
        self.names = {name.replace(".", "/"): name for name in learned}
        self.start = {flat: learned[name].detach().numpy().copy() for flat, name in self.names.items()}

    def outputs(self, params: dict[str, Any], x: Any) -> Host:
        torch = self.torch
        with self.turn, torch.no_grad():
            self.module.eval()
            result: Host = self._call(self._tensors(params), self._tensor(x)).reshape(len(x), -1).numpy()
            return result

    def loss(self, params: dict[str, Any], x: Any, y: Any, mask: Any, seed: Any) -> Host:
        rows = _real_rows(x, y, mask)
        if rows is None:
            return np.zeros((), np.float32)
        with self.turn, self.torch.no_grad():
            value: Host = self._mean(self._tensors(params), rows, seed).numpy()
            return value

    def loss_and_gradient(
        self, params: dict[str, Any], x: Any, y: Any, mask: Any, seed: Any
    ) -> tuple[Host, dict[str, Host]]:
        rows = _real_rows(x, y, mask)
        if rows is None:
            return np.zeros((), np.float32), {name: np.zeros_like(value) for name, value in self.start.items()}
        torch = self.torch
        # A thread of XLA has its own switch for gradients, and the caller's may be off.
        with self.turn, torch.enable_grad():
            tensors = {name: value.requires_grad_() for name, value in self._tensors(params).items()}
            mean = self._mean(tensors, rows, seed)
            slopes = torch.autograd.grad(mean, list(tensors.values()), allow_unused=True, materialize_grads=True)
        return mean.detach().numpy(), {flat: slope.numpy() for flat, slope in zip(self.names, slopes, strict=True)}

    def _mean(self, tensors: dict[str, Any], rows: tuple[Host, Host, Host], seed: Any) -> Any:
        torch = self.torch
        self.module.train()
        x, y, shares = (self._tensor(part) for part in rows)
        with torch.random.fork_rng(devices=[], enabled=self.random):
            if self.random:
                torch.manual_seed(int(seed))
            losses = self._row_losses(self._call(tensors, x), y)
        return (losses * shares).sum()

    def _row_losses(self, outputs: Any, y: Any) -> Any:
        if self.task.regression:
            # Without this a column of outputs and a row of targets would broadcast to a square.
            return self.losses(outputs.reshape(len(y)), y.float())
        return self.losses(outputs, y.long())

    def _call(self, tensors: dict[str, Any], x: Any) -> Any:
        return self.torch.func.functional_call(self.module, tensors, (x,))

    def _tensors(self, params: dict[str, Any]) -> dict[str, Any]:
        return {name: self._tensor(params[flat]) for flat, name in self.names.items()}

    def _tensor(self, array: Any) -> Any:
        return self.torch.from_numpy(np.array(array))

    def _try(self) -> bool:
        """Runs two rows of zeros once; whether the module drew random numbers."""
        torch = self.torch
        x = torch.zeros((2, *self.task.shape))
        y = torch.zeros(2, dtype=torch.float32 if self.task.regression else torch.int64)
        before = {name: value.clone() for name, value in self.module.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            state = torch.get_rng_state()
            try:
                self.module.train()
                outputs = self.module(x)
            except Exception as error:
                raise self._refusal(
                    f"does not take rows of shape {self.task.shape}: {(str(error) or repr(error)).splitlines()[0]}",
                    "let it map (rows, *shape) to (rows, outputs)",
                ) from error
            random = not torch.equal(state, torch.get_rng_state())
        shape = tuple(outputs.shape)
        if shape != (2, self.task.outputs) and not (self.task.regression and shape == (2,)):
            raise self._refusal(
                f"gives {shape} for two rows, not (2, {self.task.outputs})",
                f"end it with torch.nn.Linear(..., {self.task.outputs}), without softmax",
            )
        for name, value in self.module.named_buffers():
            if name in before and not torch.equal(before[name], value):
                raise self._refusal(
                    f"changes its buffer {name!r} while it learns", "use layers that keep only parameters"
                )
        self._try_loss(outputs, y)
        return random

    def _try_loss(self, outputs: Any, y: Any) -> None:
        usual = "torch.nn.MSELoss()" if self.task.regression else "torch.nn.CrossEntropyLoss()"
        remedy = f"give a loss of (outputs, y) that can be told reduction='none', such as {usual}"
        where = f"PyTorch module {self.name}"
        try:
            shape = tuple(self._row_losses(outputs, y).shape)
        except Exception as error:
            told = (str(error) or repr(error)).splitlines()[0]
            raise Refusal(f"the loss cannot be computed: {told}", where=where, remedy=remedy) from error
        if shape != (2,):
            raise Refusal(f"the loss gives {shape} for two rows, not one number per row", where=where, remedy=remedy)

    def _refuse_running_statistics(self, module: Any) -> None:
        nn = self.torch.nn
        batch_norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
        for name, layer in module.named_modules():
            if isinstance(layer, batch_norms) or getattr(layer, "running_mean", None) is not None:
                raise self._refusal(
                    f"normalizes by statistics of the batch in its layer {name!r} ({type(layer).__name__}); they "
                    "differ from site to site and cannot be averaged like parameters",
                    "use torch.nn.GroupNorm or torch.nn.LayerNorm there",
                )

    def _refusal(self, what: str, remedy: str) -> Refusal:
        return Refusal(f"the PyTorch module {what}", where=f"PyTorch module {self.name}", remedy=remedy)


def _unreduced(loss: TorchLoss) -> TorchLoss:
    """The loss with one number a row, where it can be told so."""
    if hasattr(loss, "reduction"):
        own: Any = copy.deepcopy(loss)
        own.reduction = "none"
        return own
    try:
        tellable = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return loss
    unreduced: Any = loss
    return partial(unreduced, reduction="none") if tellable else loss


def _real_rows(x: Any, y: Any, mask: Any) -> tuple[Host, Host, Host] | None:
    """x, y and share in the mean of the rows that count; none if there are none.

    Padded rows are left out before the module sees them, so nothing in them can matter.
    """
    mask = np.asarray(mask)
    real = mask > 0
    if not real.any():
        return None
    return np.asarray(x)[real], np.asarray(y)[real], (mask[real] / mask.sum()).astype(np.float32)
