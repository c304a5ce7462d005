"""The types of fields: what depends on a type is in one table, and other tables have the same types."""

from __future__ import annotations

import pytest
from tests.support.project_files import ROOT

from keylane.model.records import ENVELOPES, KEY_FORMATS, KEY_KINDS, VALUE_FORMATS
from keylane.routing import PARTITIONERS
from keylane.state.field_types import FIELD_TYPES
from keylane.state.ordered import NotOrdered
from keylane_client.testing.finding import FIELD_TYPES as TYPES_OF_THE_FAKE
from keylane_spark.config.topics import TopicConfig
from keylane_spark.rows.ordered_forms import _FORMS


def test_the_client_s_fake_has_the_same_types_which_are_texts_and_have_several_values_alike():
    both = FIELD_TYPES, TYPES_OF_THE_FAKE
    of_service, of_fake = ({name: (each.is_text, each.is_many) for name, each in own.items()} for own in both)
    assert of_service == of_fake


def test_a_form_of_whole_columns_is_of_a_type_that_there_is():
    assert _FORMS.keys() <= FIELD_TYPES.keys()


def test_the_documents_name_each_type():
    page = (ROOT / "docs" / "use" / "find.md").read_text(encoding="utf-8")
    assert [name for name in FIELD_TYPES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", FIELD_TYPES)
def test_what_is_not_of_a_type_is_refused(name: str):
    with pytest.raises(NotOrdered):
        FIELD_TYPES[name].values({"an": "object"})


@pytest.mark.parametrize("name", FIELD_TYPES)
def test_only_a_type_with_several_values_has_those_of_an_array(name: str):
    value = True if name == "boolean" else "7"
    assert len(FIELD_TYPES[name].values(value)) == 1
    if FIELD_TYPES[name].is_many:
        assert len(FIELD_TYPES[name].values(["7", "8"])) == 2
    else:
        with pytest.raises(NotOrdered):
            FIELD_TYPES[name].values(["7", "8"])


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("partitioner", PARTITIONERS),
        ("value_format", VALUE_FORMATS),
        ("envelope", ENVELOPES),
        ("key_format", KEY_FORMATS),
    ],
)
def test_an_option_takes_each_of_its_choices_and_says_which_there_are(option: str, choices: list[str]):
    for choice in choices:
        assert getattr(TopicConfig.model_validate({option: choice}), option) == choice
    *first, last = map(repr, choices)
    with pytest.raises(ValueError, match=f"Input should be {', '.join(first)} or {last}"):
        TopicConfig.model_validate({option: "another"})


def test_a_field_of_a_key_is_of_one_of_the_kinds_that_there_are():
    for kind in KEY_KINDS:
        assert TopicConfig.model_validate({"key_fields": {"id": kind}}).key_fields == {"id": kind}
    with pytest.raises(ValueError, match="Input should be 'integer', 'string' or 'boolean'"):
        TopicConfig.model_validate({"key_fields": {"id": "uuid"}})
