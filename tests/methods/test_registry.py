import pytest

from canet.errors import CanetError
from canet.methods import BACKBONES, METHODS, Settings, check_backbone, get_method


def test_each_method_stands_under_its_own_name_and_tells_what_it_is() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert get_method(name) is method
        assert method.summary
        assert method.paper
        assert issubclass(method.settings_type, Settings)


def test_unknown_method_is_refused_with_the_nearest_and_all_valid_names() -> None:
    with pytest.raises(CanetError) as caught:
        get_method("cannet")
    names = ", ".join(METHODS)
    assert str(caught.value) == (
        f"unknown method 'cannet': did you mean 'canet'? valid are {names}"
    )


def test_unknown_backbone_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(CanetError) as caught:
        check_backbone("gcnn")
    assert str(caught.value) == (
        f"unknown backbone 'gcnn': did you mean 'gcn'? valid are {', '.join(BACKBONES)}"
    )


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", METHODS)
def test_each_parameter_of_each_method_learns_exactly_once(name: str, backbone: str) -> None:
    check_backbone(backbone)
    kind = get_method(name)
    method = kind(kind.settings_type(hidden=4), backbone, 5, 3, 2)  # type: ignore[arg-type]
    groups = method.parameter_groups()
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in method.parameters())
    assert all(group["lr"] == 0.01 for group in groups)
