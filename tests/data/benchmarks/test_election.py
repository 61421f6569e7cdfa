from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from canet.data import load_task
from canet.data.benchmarks.election import COLUMNS, REGIONS, YEARS
from canet.data.task import ShiftTask
from tests.support.raw_files import without_checksums

STATES = {"northeast": 9, "midwest": 17, "south": 1, "west": 4}
COUNTIES = [1000 * state + 1 + 2 * i for state in sorted(STATES.values()) for i in range(8)]
RENAMED = 46113


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Path:
    """Eight counties in a state of each region, which form a chain; even ones vote Democrat.

    In 2016 the first county of each state changes its vote. The features of county k are k + 1 to
    k + 6 in 2012, and twice these numbers in 2016. A neighbour of the first county has no features
    for 2016.
    """
    without_checksums(monkeypatch)
    folder = tmp_path / "raw" / "election"
    folder.mkdir(parents=True)
    counties = [*COUNTIES, RENAMED]
    votes = ["fips_code,dem_2012,gop_2012,dem_2016,gop_2016"]
    for k, county in reversed(list(enumerate(counties))):
        in_2012, in_2016 = k % 2 == 0, (k % 2 == 0) != (k % 8 == 0)
        votes.append(f"{county:05},{60 * in_2012},40,{60 * in_2016},40")
    (folder / "election.csv").write_text("\n".join(votes))
    first = 1
    for kind, columns in COLUMNS.items():
        rows = [["FIPS", *(column.format(year) for year in YEARS for column in columns)]]
        for k, county in enumerate(counties):
            numbers = [str(k + first + j) for j in range(len(columns))]
            doubled = ["" if county == RENAMED else str(2 * int(text)) for text in numbers]
            rows.append([f"{county:05}", *(f'"0,{text}"' for text in numbers), *doubled])
        (folder / f"{kind}.csv").write_text("\n".join(map(",".join, rows)))
        first += len(columns)
    (folder / "adjacency.txt").write_text(borders(), encoding="latin-1")
    return tmp_path / "raw"


def borders() -> str:
    """A block for each county: first the county, then its neighbours; names contain an ñ."""
    lines = []
    for k, county in enumerate(COUNTIES):
        near = [county, *COUNTIES[max(0, k - 1) : k], *COUNTIES[k + 1 : k + 2]]
        near += [RENAMED] if k == 0 else []
        for j, neighbour in enumerate(near):
            own = f'"Doña {k}"\t{county:05}' if j == 0 else "\t"
            lines.append(f'{own}\t"County"\t{neighbour:05}\n')
    return "".join(lines)


def test_2012_is_for_training_and_2016_for_testing(root: Path) -> None:
    task = load_task("election", root)
    democrat = torch.tensor([1, 0]).repeat(16)
    changed = torch.where(torch.arange(32) % 8 == 0, 1 - democrat, democrat)
    assert task.data.y.equal(torch.cat([democrat, changed]))
    assert list(task.test_ood) == ["2016"]
    assert task.test_ood["2016"].equal(torch.arange(32, 64))
    assert task.data.edge_index.shape == (2, 2 * 2 * 31)


def test_features_are_standardised_by_the_year_of_training(root: Path) -> None:
    x = load_task("election", root).data.x
    numbers = torch.arange(32, dtype=torch.double)[:, None] + torch.arange(1, 7)
    mean, deviation = numbers.mean(dim=0), numbers.std(dim=0)
    torch.testing.assert_close(x[:32], ((numbers - mean) / deviation).float())
    torch.testing.assert_close(x[32:], ((2 * numbers - mean) / deviation).float())


@pytest.mark.parametrize("region", STATES)
def test_regions_are_separate_graphs_of_2016(region: str, root: Path) -> None:
    task = load_task("election", root, protocol=region)
    assert list(task.test_ood) == [name for name in STATES if name != region]
    assert task.data.edge_index.shape == (2, 4 * 2 * 7)
    assert task.data.y.equal(torch.tensor([0, 0, 1, 0, 1, 0, 1, 0]).repeat(4))
    own = task.data.x[task.in_distribution]
    torch.testing.assert_close(own.mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(own.std(dim=0), torch.ones(6))


def test_regions_are_the_fifty_states_and_the_capital() -> None:
    states = [state for codes in REGIONS.values() for state in codes]
    assert len(states) == len(set(states)) == 51
    assert set(range(1, 57)) - set(states) == {3, 7, 14, 43, 52}  # unused codes


def test_real_counties_and_winners(real_task: Callable[..., ShiftTask]) -> None:
    task = real_task("election")
    assert task.num_nodes == 2 * 3111
    won = [int(task.data.y[task.data.batch == year].sum()) for year in (0, 1)]
    assert won == [686 - 1, 487 - 1]  # without Shannon County
    regions = real_task("election", protocol="south")
    sizes = torch.bincount(regions.data.batch).tolist()
    assert sizes == [217, 1054, 1422, 418]
    assert int(regions.data.y.sum()) == won[1]
