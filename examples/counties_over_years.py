"""Counties over years: learn from the election of 2012, predict the one of 2016.

A node is a US county, an edge a common border, the label the party with more votes. The script
writes a folder with `nodes.csv` and `edges.csv` for each year, fits a model on 2012, scores it on
2016, and writes a page that shows what the model relies on and what shifted. The cells of the raw
files are copied as they are, with empty cells and numbers such as "51,371".

    CANET_DATA_ROOT=FOLDER python examples/counties_over_years.py --out counties

`canet datasets` shows where the raw files come from.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import canet

COLUMNS = {
    # name in nodes.csv: file, column of a year
    "income": ("income.csv", "MedianIncome{}"),
    "bachelor": ("education.csv", "BachelorRate{}"),
    "unemployment": ("unemployment.csv", "Unemployment_rate_{}"),
    "migration": ("population.csv", "R_NET_MIG_{}"),
    "births": ("population.csv", "R_birth_{}"),
    "deaths": ("population.csv", "R_death_{}"),
}


def read_table(path: Path) -> dict[int, dict[str, str]]:
    """Rows of a CSV file by the code of the county, which is in the first column."""
    with path.open(newline="", encoding="latin-1") as file:
        rows = csv.DictReader(file)
        first = rows.fieldnames[0]
        return {int(row[first]): row for row in rows}


def read_borders(path: Path) -> set[tuple[int, int]]:
    """Pairs of counties with a common border. Only the first line of a county names it."""
    borders, county = set(), 0
    for line in path.read_text(encoding="latin-1").splitlines():
        _, code, _, neighbour = line.split("\t")
        county = int(code or county)
        borders.add((min(county, int(neighbour)), max(county, int(neighbour))))
    return {(a, b) for a, b in borders if a != b}


def write_year(raw: Path, folder: Path, year: int) -> None:
    """Write the counties of a year that have votes."""
    tables = {name: read_table(raw / name) for name in {file for file, _ in COLUMNS.values()}}
    counties = {}
    for code, votes in read_table(raw / "election.csv").items():
        cells = [
            tables[file].get(code, {}).get(column.format(year), "")
            for file, column in COLUMNS.values()
        ]
        democrats = int(votes[f"dem_{year}"]) > int(votes[f"gop_{year}"])
        counties[code] = [*cells, "Democrats" if democrats else "Republicans"]
    borders = [pair for pair in read_borders(raw / "adjacency.txt") if counties.keys() >= set(pair)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "nodes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", *COLUMNS, "winner"])
        table.writerows([code, *row] for code, row in sorted(counties.items()))
    with (folder / "edges.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["source", "target"])
        table.writerows(sorted(borders))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("counties"), help="folder to write to")
    parser.add_argument("--preset", default="fast", help="fast, or robust: also compare networks")
    options = parser.parse_args()

    raw = Path(os.environ["CANET_DATA_ROOT"], "election")
    old, new = options.out / "2012", options.out / "2016"
    write_year(raw, old, 2012)
    write_year(raw, new, 2016)

    data = canet.read_graph(old, label="winner")
    for note in data.encoding.notes():
        print(f"note: {note}")
    model = canet.NodeClassifier(
        preset=options.preset,
        metric="roc_auc",
        class_weight="balanced",
        undirected=True,
    ).fit(data)
    print(f"2012: {data.num_nodes:,} counties, {data.num_edges:,} borders")
    print(f"ROC-AUC, validation nodes of 2012: {model.scores_['valid']:.3f}")
    print(f"ROC-AUC, all counties of 2016: {model.score(new):.3f}")

    diagnosis = canet.diagnose(model, data, new)
    print(diagnosis)
    diagnosis.save(options.out / "diagnosis.html")
    print(f"page: {options.out / 'diagnosis.html'}")


if __name__ == "__main__":
    main()
