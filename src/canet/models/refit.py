"""Continue the training of an ensemble that `auto` chose, on newer labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from canet.models.auto import AutoTrainer
from canet.models.ensemble import Ensemble
from canet.settings import override
from canet.store.result import Candidate, RunResult
from canet.training import Run, Trainer
from canet.training.loop import Progress
from canet.training.trainer import peak_memory_mb, versions
from canet.util.devices import device_name


def refit(
    auto: AutoTrainer,
    ensemble: Ensemble,
    candidates: Sequence[Candidate],
    seed: int,
    on_progress: Progress | None = None,
) -> Run:
    """Train each member again, from its weights, and keep the choice of models.

    Args:
        auto: The trainer of the new task.
        ensemble: The earlier ensemble.
        candidates: The models that were tried for it; those with a weight are its members.
        seed: Seed of the trainings.
        on_progress: Called with (finished trainings, all trainings, last validation score).
    """
    begin, members, trained = time.monotonic(), [], []
    chosen = [candidate for candidate in candidates if candidate.weight]
    epochs = 0
    for member, candidate in zip(ensemble.members, chosen, strict=True):
        known = override(member.settings, candidate.settings)
        trainer = Trainer(
            auto.task,
            candidate.method,
            candidate.backbone,
            replace(known, epochs=auto.settings.epochs, patience=auto.settings.patience),
            auto.device,
            class_weight=auto.class_weight,
            threads=auto.threads,
            initial=member.state_dict(),
        )
        run = trainer.run(seed)
        members.append(run.method.cpu())
        validation, seconds = run.result.scores["valid"], time.monotonic() - begin
        trained.append(replace(candidate, validation=validation, shifts={}, seconds=seconds))
        epochs += run.result.epochs
        if on_progress:
            on_progress(len(members), len(chosen), validation)
    again = Ensemble(members, [candidate.weight for candidate in chosen])
    result = RunResult(
        scores=auto.scores(again.to(auto.device)),
        selection="best rating",
        selected_epoch=0,
        environments_seen=None,
        epochs=epochs,
        seconds_per_epoch=(time.monotonic() - begin) / max(1, epochs),
        peak_memory_mb=peak_memory_mb(auto.device),
        device=device_name(auto.device, auto.threads),
        versions=versions(),
        candidates=trained,
    )
    return Run(auto.config(seed), result, {}, again.to(auto.device).eval())
