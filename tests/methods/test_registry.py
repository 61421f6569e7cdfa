import pytest

from canet.errors import CanetError
from canet.methods import BACKBONES, METHODS, Settings, get_backbone, get_method


def test_each_method_has_its_name_a_summary_and_a_paper() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert get_method(name) is method
        assert method.summary
        assert method.paper
        assert issubclass(method.settings_type, Settings)


def test_an_unknown_name_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(CanetError, match="'canet'"):
        get_method("cannet")
    with pytest.raises(CanetError, match="'gcn'"):
        get_backbone("gcnn")


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", METHODS)
def test_each_parameter_of_each_method_learns_exactly_once(name: str, backbone: str) -> None:
    get_backbone(backbone)
    kind = get_method(name)
    method = kind(kind.settings_type(hidden=4), backbone, 5, 3, 2)  # type: ignore[arg-type]
    groups = method.parameter_groups()
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in method.parameters())
    assert all(group["lr"] == 0.01 for group in groups)
