"""Every document and every chunk of the server against the types of the official `openai` client: nothing missing, nothing of
another type, and no field that the types do not know but those that the server is known to add.

    openai_shapes.py BASE_URL MODEL
"""

import json

import openai
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from steps import main, step

# What other servers of open models answer too, and OpenAI does not.
ADDED = {"ChatCompletionMessage.reasoning_content", "ChoiceDelta.reasoning_content"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Talk:
    def __init__(self, base_url, model):
        self.model = model
        self.client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)

    def whole(self, path, body):
        """The document as it came."""
        body = {"model": self.model, **body}
        return self.client.post(path, cast_to=object, body=body)

    def chunks(self, path, body):
        """The chunks as they came."""
        api = self.client.completions if path == "/completions" else self.client.chat.completions
        with api.with_streaming_response.create(model=self.model, stream=True, **body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
        assert data[-1] == "[DONE]", data[-1]
        return [json.loads(line) for line in data[:-1]]


def unknown(value, path):
    """Fields that the types do not know."""
    if isinstance(value, list):
        return [name for item in value for name in unknown(item, path)]
    if not hasattr(value, "model_fields_set"):
        return []
    kind = type(value).__name__
    names = [f"{kind}.{name}" for name in value.model_extra or {}]
    for name in type(value).model_fields:
        names += unknown(getattr(value, name), f"{path}.{name}")
    return names


def exact(kind, document):
    """The document as an object of the official type, checked."""
    made = kind.model_validate(document, strict=True)
    extra = set(unknown(made, kind.__name__)) - ADDED
    assert not extra, f"{extra} in {document}"
    # A field that the official API always sends is here too.
    required = {"id", "object", "created", "model", "choices", "system_fingerprint"}
    assert required <= document.keys(), document.keys()
    return made


def chat(**fields):
    question = [{"role": "user", "content": "Name three colors."}]
    return {"messages": question, "temperature": 0, "max_tokens": 16, **fields}


CHATS = {
    "plain": {},
    "two choices": {"n": 2, "seed": 1, "temperature": 1},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "a schema": {
        "max_tokens": 60,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "x",
                "strict": True,
                "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
            },
        },
    },
    "a call": {"max_tokens": 60, "tools": [WEATHER], "tool_choice": "required"},
    "a tier": {"service_tier": "auto"},
}


@step
def whole_chats_are_of_the_official_type(talk):
    for name, fields in CHATS.items():
        made = exact(ChatCompletion, talk.whole("/chat/completions", chat(**fields)))
        assert made.id.startswith("chatcmpl-") and made.usage.prompt_tokens > 0, name
        assert made.usage.prompt_tokens_details.cached_tokens >= 0, name
        assert made.usage.completion_tokens_details.reasoning_tokens == 0, name
        assert made.service_tier == fields.get("service_tier"), name
        if name == "a call":
            assert made.choices[0].finish_reason == "tool_calls" and made.choices[0].message.content is None


@step
def chunks_of_chats_are_of_the_official_type(talk):
    for name, fields in CHATS.items():
        options = {"include_usage": True, "include_obfuscation": name == "plain"}
        chunks = talk.chunks("/chat/completions", chat(stream_options=options, **fields))
        made = [exact(ChatCompletionChunk, chunk) for chunk in chunks]
        assert all("usage" in chunk for chunk in chunks), name
        assert made[-1].usage.total_tokens > 0 and made[-1].choices == [], name
        assert [chunk.usage for chunk in made[:-1]] == [None] * (len(made) - 1), name
        choices = range(fields.get("n", 1))
        reasons = sorted(c.index for chunk in made for c in chunk.choices if c.finish_reason)
        assert reasons == list(choices), name


@step
def completions_are_of_the_official_type(talk):
    for fields in ({}, {"logprobs": 2}, {"n": 2, "echo": True}, {"prompt": ["a", "b"]}, {"max_tokens": 0}):
        body = {"prompt": "Once upon a time", "max_tokens": 8, **fields}
        made = exact(Completion, talk.whole("/completions", body))
        assert made.id.startswith("cmpl-") and made.usage.prompt_tokens > 0
        chunks = talk.chunks("/completions", {**body, "stream_options": {"include_usage": True}})
        for chunk in chunks:
            for choice in chunk["choices"]:
                # The type does not say that a chunk which is not the last has none; the official API sends null.
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            exact(Completion, chunk)


@step
def models_are_of_the_official_type_and_say_a_little_more(talk):
    listed = talk.client.get("/models", cast_to=object)
    assert listed["object"] == "list" and listed["data"]
    for card in listed["data"]:
        Model.model_validate(card, strict=True)


@step
def errors_have_the_official_fields(talk):
    for body in ({"messages": []}, chat(temperature=9), chat(model="absent")):
        try:
            talk.whole("/chat/completions", body)
        except openai.APIStatusError as refusal:
            error = refusal.response.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}, error
            assert refusal.message and refusal.type == error["type"] and refusal.code == error["code"]
        else:
            raise AssertionError(f"{body} was not refused")


if __name__ == "__main__":
    main(Talk, "openai")
