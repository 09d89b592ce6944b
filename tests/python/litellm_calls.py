"""What litellm makes of a running server, as `openai/MODEL` with an address of its own.

    litellm_calls.py BASE_URL MODEL
"""

import asyncio
import os

# What a model costs is not asked on the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import pydantic

from steps import main, raised, step

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)


class Talk:
    def __init__(self, base_url, model):
        self.fields = {"model": f"openai/{model}", "api_base": base_url, "api_key": "unused", "num_retries": 0}

    def fields_of(self, question="Name three colors.", **more):
        messages = [{"role": "user", "content": question}]
        return {**self.fields, "messages": messages, "temperature": 0, "max_tokens": 24, **more}

    def ask(self, question="Name three colors.", **more):
        return litellm.completion(**self.fields_of(question, **more))


def text(chunks):
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices)


@step
def a_completion_streamed_or_awaited_says_the_same(talk):
    whole = talk.ask()
    said = whole.choices[0].message.content
    assert said and whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(talk.ask(stream=True))
    assert text(chunks) == said

    async def later():
        answer = await litellm.acompletion(**talk.fields_of())
        stream = await litellm.acompletion(**talk.fields_of(stream=True))
        return answer.choices[0].message.content, text([chunk async for chunk in stream])

    assert asyncio.run(later()) == (said, said)


@step
def a_stream_is_put_together_with_its_usage(talk):
    whole = talk.ask()
    chunks = list(talk.ask(stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.content == whole.choices[0].message.content
    assert built.choices[0].finish_reason == whole.choices[0].finish_reason
    assert built.usage.prompt_tokens == whole.usage.prompt_tokens
    assert built.usage.completion_tokens == whole.usage.completion_tokens


@step
def a_call_that_must_be_made_is_made(talk):
    import json

    fields = {"tools": [TOOL], "max_tokens": 60}
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        message = talk.ask("Weather in Oslo?", tool_choice=choice, **fields).choices[0].message
        (call,) = message.tool_calls[:1]
        assert call.function.name == "get_weather" and set(json.loads(call.function.arguments)) == {"city"}
    chunks = list(talk.ask("Weather in Oslo?", tool_choice=choice, stream=True, **fields))
    built = litellm.stream_chunk_builder(chunks).choices[0]
    assert built.finish_reason == "tool_calls"
    assert built.message.tool_calls[0].function.arguments == call.function.arguments
    messages = [
        {"role": "user", "content": "Weather in Oslo?"},
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    assert talk.ask(messages=messages, tools=[TOOL]).choices[0].message.content


@step
def an_answer_has_the_form_of_a_class(talk):
    answer = talk.ask("Describe Anna, who is 30.", response_format=Person, max_tokens=120)
    Person.model_validate_json(answer.choices[0].message.content)


@step
def log_probabilities_come_through(talk):
    entries = talk.ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert entries and all(len(entry.top_logprobs) == 2 for entry in entries)


@step
def a_text_completion_is_answered(talk):
    fields = {**talk.fields, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}
    # litellm's own name for servers that take a text as it is.
    fields["model"] = fields["model"].replace("openai/", "text-completion-openai/", 1)
    assert litellm.text_completion(**fields).choices[0].text


@step
def refusals_are_litellms_own_errors(talk):
    raised(litellm.BadRequestError, lambda: talk.ask(top_p=5))
    raised(litellm.NotFoundError, lambda: talk.ask(model="openai/no-such-model"))
    # The check of the window: litellm tells it by the words.
    error = raised(litellm.BadRequestError, lambda: talk.ask("word " * 3000))
    assert isinstance(error, litellm.ContextWindowExceededError), type(error)


if __name__ == "__main__":
    main(Talk, "litellm")
