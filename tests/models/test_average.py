"""An average of models averages their probabilities."""

import torch

from canet.data.graph import check_graph
from canet.methods import METHODS
from canet.models import Average, FittedNetwork
from canet.reading.prepared import PreparedGraph
from tests.support.user_graphs import small_user_graph


def test_probabilities_are_the_mean_of_the_members() -> None:
    random = torch.Generator().manual_seed(0)
    logits = [20 * torch.randn(7, 4, generator=random) for _ in range(3)]
    weights = [0.5, 0.3, 0.2]
    found = Average([], weights).mean(logits)
    plain = sum(w * f.double().softmax(dim=1) for w, f in zip(weights, logits, strict=True))
    assert torch.allclose(found.double().exp(), plain, atol=1e-7)


def test_an_average_combines_all_members() -> None:
    torch.manual_seed(0)
    settings = METHODS["erm"].settings_type(hidden=4)
    backbones = ("gcn", "mlp", "sage")
    members = [FittedNetwork(METHODS["erm"](settings, name, 5, 3), name) for name in backbones]
    average = Average(members, [0.5, 0.25, 0.25])
    prepared = PreparedGraph(check_graph(small_user_graph()))
    alone = [member.read(prepared) for member in members]
    found = average.read(prepared)
    assert found.logits.equal(average.mean([one.logits for one in alone]))
    assert found.embedding.shape == (60, 12)
    for i, one in enumerate(alone):
        unit = torch.nn.functional.normalize(one.embedding, dim=1)
        assert found.embedding[:, 4 * i : 4 * i + 4].equal(unit)
    some = torch.tensor([7, 3])
    few = average.read(prepared, some)
    assert torch.allclose(few.logits, found.logits[some], atol=1e-6)
