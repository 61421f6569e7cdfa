"""Wrong uses end in one sentence that names the problem: never in silence, never in a bug."""

import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import NotFittedError

from canet.errors import CanetError, InputWarning
from tests.support.commands import call
from tests.support.wrong_commands import COMMANDS
from tests.support.wrong_uses import Place, Use, wrong_uses

USES = [pytest.param(use, word, id=name) for name, use, word in wrong_uses()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Place(tmp_path_factory.mktemp("uses"))


@pytest.mark.parametrize(("use", "word"), USES)
def test_a_wrong_use_is_one_error_or_warning_that_names_it(
    use: Use, word: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            use(place)
        except (CanetError, NotFittedError) as error:
            messages = [str(error)]
        else:
            given = [str(one.message) for one in caught if one.category is InputWarning]
            messages = [message for message in given if word in message]
    (message,) = messages
    assert word in message
    assert "\n" not in message


@pytest.mark.parametrize(("line", "word"), COMMANDS.items(), ids=list(COMMANDS))
def test_a_wrong_command_is_one_line_that_names_it_and_leaves_nothing(
    line: str, word: str, place: Place, fresh_cache: Path
) -> None:
    before = sorted(place.folder.rglob("*"))
    assert word.lower() in call(place.folder, *line.split()).complaint.lower()
    assert sorted(place.folder.rglob("*")) == before
