"""The score of a model on parts of its training data, after training without them."""

from canet.data.raw_graph import GraphLike
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier
from canet.estimator.inputs import class_weights, graph_to_fit, planner, training_data
from canet.models import Auto, Options, get_learner
from canet.models.parts import VALID, Parts
from canet.settings import override


def held_out_score(model: NodeClassifier, data: GraphLike | None) -> float | None:
    """Train a model again, without held-out parts, and score it on them; None for `auto`."""
    if model.compares_models:
        return None
    if data is None:
        raise InputError("held_out needs the training graph: pass data (--training)")
    seed = model.data_["seed"]
    columns = {"batch": None, "without": model.left_out_}
    decide = planner(vars(model), model._settings())
    opened, _ = graph_to_fit(model.open_graph(data, in_memory=False), {}, {"edges": None}, decide)
    user, _ = training_data(model, opened, columns, seed)
    task = user.task
    if task.digest.short != model.data_["digest"]:
        raise InputError(
            "held_out needs the training graph, but data has other nodes, columns or splits: pass "
            "the graph that was passed to fit; if fit had arguments such as train or environment, "
            "set them on the graph, as data.train_mask or data.environment"
        )
    weights = class_weights(model.class_weight, user.classes, task.y[task.train])
    options = Options(model.device, class_weight=weights)
    settings = decide(task.data).settings_for(task.train.numel())
    settings = override(settings, model.fitted_.chosen_settings())
    learner = get_learner(model.method, model.backbone, settings, options)
    parts = Parts(task, weights, sampled=settings.in_batches)
    next(Auto(options=options).try_all(parts, seed))  # keeps the parts that are hard for it
    logits = {
        part: parts.predict(
            part, model.fitted_ if part == VALID else learner.run(own, {seed: None})[0]
        )
        for part, own in parts.tasks.items()
    }
    return parts.candidate(learner.name, logits).held_out
