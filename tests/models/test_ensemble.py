"""An ensemble averages probabilities."""

from __future__ import annotations

import torch

from canet.data.graph import read_user_graph
from canet.methods import METHODS
from canet.models.ensemble import Ensemble, EnsembleReader
from canet.training.inference import GraphReader
from canet.training.prepared import PreparedGraph
from tests.support.user_graphs import small_user_graph


def test_probabilities_are_the_mean_of_the_members() -> None:
    random = torch.Generator().manual_seed(0)
    logits = [20 * torch.randn(7, 4, generator=random) for _ in range(3)]
    weights = [0.5, 0.3, 0.2]
    found = Ensemble([], weights).combine(logits)
    plain = sum(w * f.double().softmax(dim=1) for w, f in zip(weights, logits, strict=True))
    assert torch.allclose(found.double().exp(), plain, atol=1e-7)


def test_an_ensemble_reader_combines_all_members() -> None:
    torch.manual_seed(0)
    settings = METHODS["erm"].settings_type(hidden=4)
    backbones = ("gcn", "mlp", "sage")
    members = [METHODS["erm"](settings, backbone, 5, 3).eval() for backbone in backbones]
    ensemble = Ensemble(members, [0.5, 0.25, 0.25]).eval()
    prepared = PreparedGraph(read_user_graph(small_user_graph()))
    alone = [GraphReader(member, prepared).read() for member in members]
    found = EnsembleReader(ensemble, prepared).read()
    assert found.logits.equal(ensemble.combine([one.logits for one in alone]))
    assert found.embedding.shape == (60, 12)
    for i, one in enumerate(alone):
        unit = torch.nn.functional.normalize(one.embedding, dim=1)
        assert found.embedding[:, 4 * i : 4 * i + 4].equal(unit)
    some = torch.tensor([7, 3])
    few = EnsembleReader(ensemble, prepared).read(some)
    assert torch.allclose(few.logits, found.logits[some], atol=1e-6)
