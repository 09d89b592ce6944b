"""Classes filled in by instructor from a running server, in each of its modes that speak OpenAI's chat.

    instructor_forms.py BASE_URL MODEL
"""

from typing import Literal

import instructor
import openai
import pydantic

from steps import main, step


class Person(pydantic.BaseModel):
    # Without it more fields are allowed, and a small model never comes to an end of them.
    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)
    mood: Literal["calm", "merry"]


class Talk:
    def __init__(self, base_url, model):
        self.model = model
        self.client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)

    def fill(self, mode, create="create", of=Person, **fields):
        client = instructor.from_openai(self.client, mode=mode)
        fields = {"temperature": 0, "max_tokens": 160, "max_retries": 0, **fields}
        messages = [{"role": "user", "content": "Anna is 30 years old and merry."}]
        return getattr(client.chat.completions, create)(
            model=self.model, response_model=of, messages=messages, **fields
        )


@step
def a_class_is_filled_in_by_a_tool(talk):
    assert isinstance(talk.fill(instructor.Mode.TOOLS), Person)


@step
def a_class_is_filled_in_by_a_strict_tool(talk):
    assert isinstance(talk.fill(instructor.Mode.TOOLS_STRICT), Person)


@step
def a_class_is_filled_in_by_a_schema(talk):
    assert isinstance(talk.fill(instructor.Mode.JSON_SCHEMA), Person)


@step
def a_class_is_filled_in_by_json_that_the_schema_is_told_to(talk):
    # JSON mode only says in words what the object has: a model of this size does not heed that, so the form is asked for too.
    schema = {"extra_body": {"response_format": {"type": "json_object", "schema": Person.model_json_schema()}}}
    assert isinstance(talk.fill(instructor.Mode.JSON, **schema), Person)


@step
def a_class_grows_while_it_streams(talk):
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        parts = list(talk.fill(mode, "create_partial"))
        assert len(parts) > 2, f"{mode}: {len(parts)} parts"
        Person.model_validate(parts[-1].model_dump())


class Two(pydantic.BaseModel):
    """What instructor asks for, and that there be two: its own schema lets a list be missing, and other fields be there."""

    model_config = pydantic.ConfigDict(extra="forbid")
    tasks: list[Person] = pydantic.Field(min_length=2, max_length=2)


@step
def several_of_a_class_come_one_after_the_other(talk):
    schema = Two.model_json_schema()
    tool = {"type": "function", "function": {"name": "IterablePerson", "parameters": schema}}
    form = {"type": "json_schema", "json_schema": {"name": "IterablePerson", "schema": schema}}
    for mode, body in (
        (instructor.Mode.TOOLS, {"tools": [tool]}),
        (instructor.Mode.JSON_SCHEMA, {"response_format": form}),
    ):
        people = list(talk.fill(mode, "create_iterable", extra_body=body))
        assert [type(person) for person in people] == [Person, Person], (mode, people)


@step
def the_answer_behind_a_class_is_there_too(talk):
    person, answer = talk.fill(instructor.Mode.TOOLS, "create_with_completion")
    assert isinstance(person, Person) and answer.usage.completion_tokens > 0


if __name__ == "__main__":
    main(Talk, "instructor")
