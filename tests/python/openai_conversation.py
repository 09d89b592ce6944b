"""A conversation of the official `openai` client with a running server: every step is a claim that must hold.

    openai_conversation.py BASE_URL MODEL [API_KEY]

BASE_URL ends in /v1. With API_KEY the server must require it. Works with any model that has a chat template.
"""

import asyncio

import openai
import pydantic

from steps import main, raised, step


class Conversation:
    """The server under test and the question that most steps ask."""

    def __init__(self, base_url, model, key=None):
        self.base_url, self.model, self.key = base_url, model, key
        self.client = self.connect(key or "unused")

    def connect(self, key):
        return openai.OpenAI(base_url=self.base_url, api_key=key, max_retries=0, timeout=120)

    def chat(self, question="Name three colors.", **fields):
        fields = {"temperature": 0, "max_tokens": 24, **fields}
        messages = [
            {"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": [{"type": "text", "text": question}]},
        ]
        return self.client.chat.completions.create(model=self.model, messages=messages, **fields)

    def complete(self, prompt="Once upon a time", **fields):
        fields = {"temperature": 0, "max_tokens": 24, **fields}
        return self.client.completions.create(model=self.model, prompt=prompt, **fields)


def joined(chunks, index=0):
    """The text of one choice of a chat stream."""
    deltas = [c.delta.content for chunk in chunks for c in chunk.choices if c.index == index]
    return "".join(delta or "" for delta in deltas)


def counts(usage):
    """What was fed and drawn; how much of it was computed anew depends on who asked before."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def refused(error, call, code=None, param=None):
    """`call` raises `error` with this code and field."""
    refusal = raised(error, call)
    assert code is None or refusal.code == code, f"code {refusal.code}, expected {code}"
    assert param is None or refusal.param == param, f"param {refusal.param}, expected {param}"
    assert refusal.request_id, "no request id"


@step
def the_model_is_listed_and_can_be_asked_for(talk):
    assert talk.model in [model.id for model in talk.client.models.list()]
    assert talk.client.models.retrieve(talk.model).id == talk.model
    refused(openai.NotFoundError, lambda: talk.client.models.retrieve("no/such/model"), "model_not_found")


@step
def a_chat_is_answered(talk):
    answer = talk.chat()
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.model == talk.model and answer.created > 1_600_000_000
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@step
def a_streamed_chat_says_the_same(talk):
    whole = talk.chat()
    chunks = list(talk.chat(stream=True))
    assert joined(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.object == "chat.completion.chunk" and chunk.usage is None for chunk in chunks)
    reasons = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert reasons == [whole.choices[0].finish_reason]


@step
def an_answer_has_the_form_of_a_class(talk):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)

    messages = [{"role": "user", "content": "Describe Anna, who is 30."}]
    fields = {"model": talk.model, "messages": messages, "temperature": 0, "max_tokens": 120}
    answer = talk.client.chat.completions.parse(response_format=Person, **fields)
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person), answer
    with talk.client.chat.completions.stream(response_format=Person, **fields) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message.parsed
    assert streamed == person, (streamed, person)
    refused(
        openai.BadRequestError,
        lambda: talk.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}),
        code="invalid_grammar",
        param="response_format",
    )


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str = pydantic.Field(max_length=12)


@step
def a_class_is_a_tool_whose_call_is_parsed(talk):
    fields = {"model": talk.model, "messages": [{"role": "user", "content": "Weather in Oslo?"}], "temperature": 0}
    fields |= {"tools": [openai.pydantic_function_tool(Weather)], "tool_choice": "required", "max_tokens": 80}
    fields |= {"parallel_tool_calls": False}
    whole = talk.client.chat.completions.parse(**fields).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather), call
    pieces, names = [], []
    with talk.client.chat.completions.stream(**fields) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                pieces.append(event.arguments_delta)
            if event.type == "tool_calls.function.arguments.done":
                names.append(event.name)
        (again,) = stream.get_final_completion().choices[0].message.tool_calls
    assert "".join(pieces) == again.function.arguments == call.function.arguments
    assert names == ["Weather"]
    messages = [*fields["messages"], whole.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    said = talk.client.chat.completions.create(model=talk.model, messages=messages, max_tokens=8)
    assert said.choices[0].message.content


@step
def the_helpers_events_tell_the_answer_as_it_grows(talk):
    messages = [{"role": "user", "content": "Name three colors."}]
    # The helper takes an answer that was cut for an error.
    fields = {"model": talk.model, "messages": messages, "temperature": 0, "max_tokens": 400, "logprobs": True}
    fields |= {"stop": ["\n", ".", ","]}
    seen = {}
    with talk.client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        for event in stream:
            seen.setdefault(event.type, []).append(event)
        final = stream.get_final_completion()
    text = final.choices[0].message.content
    assert "".join(event.delta for event in seen["content.delta"]) == text
    assert seen["content.done"][0].content == text
    assert len(seen["logprobs.content.done"][0].content) == len(final.choices[0].logprobs.content) > 0
    assert final.usage.completion_tokens > 0


@step
def headers_come_with_answers_and_streams(talk):
    messages = [{"role": "user", "content": "x"}]
    chats, fields = talk.client.chat.completions, {"model": talk.model, "messages": messages, "max_tokens": 4}
    raw = chats.with_raw_response.create(**fields)
    assert raw.headers["content-type"] == "application/json" and raw.headers["x-request-id"]
    assert raw.parse().id.startswith("chatcmpl-") and raw.http_response.json()["object"] == "chat.completion"
    warned = chats.with_raw_response.create(**fields, extra_body={"frobnicate": 1})
    assert warned.headers["x-superfluid-warnings"].startswith("frobnicate")
    with chats.with_streaming_response.create(**fields, stream=True) as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    named = chats.with_raw_response.create(**fields, extra_headers={"X-Request-Id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"


def near(scores, others):
    """The same, but for what the shape of a batch changes in a number; the first has none."""
    pairs = zip(scores[1:], others[1:])
    return len(scores) == len(others) and scores[0] is others[0] is None and all(abs(a - b) < 0.5 for a, b in pairs)


@step
def a_prompt_is_scored_token_by_token(talk):
    prompt = "The capital of France is Paris, and the sea is blue."
    asked = {"echo": True, "logprobs": 2}
    scored = talk.complete(prompt=prompt, max_tokens=0, **asked)
    choice, count = scored.choices[0], scored.usage.prompt_tokens
    assert choice.text == prompt and scored.usage.completion_tokens == 0 and choice.finish_reason == "length"
    logprobs = choice.logprobs
    lists = (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset)
    assert [len(entries) for entries in lists] == [count] * 4
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    offsets = [*logprobs.text_offset, len(prompt)]
    pieces = [prompt[start:end] for start, end in zip(offsets, offsets[1:])]
    assert pieces == logprobs.tokens, (pieces, logprobs.tokens)
    for token, value, top in zip(logprobs.tokens[1:], logprobs.token_logprobs[1:], logprobs.top_logprobs[1:]):
        assert top[token] == value and len(top) in (2, 3), (token, top)

    # What harnesses ask: one token behind what is scored, and the prompt as tokens.
    tokens = talk.client.post("/tokenize", cast_to=object, body={"prompt": prompt})["tokens"]
    one = talk.complete(prompt=tokens, max_tokens=1, **asked).choices[0]
    assert near(one.logprobs.token_logprobs[:-1], logprobs.token_logprobs)
    assert one.text.startswith(prompt) and one.logprobs.text_offset[-1] == len(prompt)
    # The likeliest continuation, drawn token by token, scores as it was drawn.
    drawn = talk.complete(prompt=prompt, max_tokens=6, logprobs=0).choices[0]
    again = talk.complete(prompt=prompt + drawn.text, max_tokens=0, echo=True, logprobs=0).choices[0].logprobs
    if again.tokens[-6:] == drawn.logprobs.tokens:
        for mine, theirs in zip(again.token_logprobs[-6:], drawn.logprobs.token_logprobs):
            assert abs(mine - theirs) < 0.05, (again.token_logprobs[-6:], drawn.logprobs.token_logprobs)

    chunks = list(talk.complete(prompt=prompt, max_tokens=1, n=2, stream=True, **asked))
    for index in (0, 1):
        parts = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert "".join(part.text for part in parts).startswith(prompt)
        joined = [value for part in parts if part.logprobs for value in part.logprobs.token_logprobs]
        assert near(joined[:-1], one.logprobs.token_logprobs[:-1])
    longer = talk.complete(prompt=prompt * 30, max_tokens=0, **asked)
    assert len(longer.choices[0].logprobs.tokens) == longer.usage.prompt_tokens > 256
    again = longer.choices[0].logprobs.token_logprobs[:count]
    assert near(again, logprobs.token_logprobs), (again, logprobs.token_logprobs)


@step
def a_stream_counts_its_tokens_when_asked(talk):
    whole = talk.chat()
    *chunks, last = talk.chat(stream=True, stream_options={"include_usage": True})
    assert last.choices == [] and counts(last.usage) == counts(whole.usage)
    assert all(chunk.usage is None for chunk in chunks)


@step
def two_choices_are_two_answers(talk):
    answer = talk.chat(n=2, temperature=1, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.message.content for choice in answer.choices)
    chunks = list(talk.chat(n=2, temperature=1, seed=3, stream=True))
    assert joined(chunks, 0) and joined(chunks, 1)
    ends = [c.index for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert sorted(ends) == [0, 1]


@step
def log_probabilities_belong_to_the_text(talk):
    choice = talk.chat(logprobs=True, top_logprobs=3, max_tokens=8).choices[0]
    entries = choice.logprobs.content
    assert entries and all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
    for entry in entries:
        ranked = [top.logprob for top in entry.top_logprobs]
        assert ranked == sorted(ranked, reverse=True)
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the likeliest"
    text = b"".join(bytes(entry.bytes) for entry in entries).decode("utf-8", "replace")
    assert choice.message.content.strip() in text
    legacy = talk.complete(logprobs=2, max_tokens=8).choices[0].logprobs
    assert len(legacy.tokens) == len(legacy.token_logprobs) == len(legacy.top_logprobs) == len(legacy.text_offset)
    assert legacy.text_offset[0] == 0 and legacy.text_offset == sorted(legacy.text_offset)


@step
def a_stop_string_ends_the_answer_and_is_not_part_of_it(talk):
    for ask, text_of in [
        (talk.chat, lambda answer: answer.choices[0].message.content),
        (talk.complete, lambda answer: answer.choices[0].text),
    ]:
        full = text_of(ask())
        middle = len(full) // 2
        stop = full[middle : middle + 3]
        cut = ask(stop=[stop, "never said, surely"])
        assert text_of(cut) == full[: full.index(stop)], (full, stop, text_of(cut))
        assert cut.choices[0].finish_reason == "stop"


@step
def a_streamed_stop_string_is_never_shown(talk):
    full = talk.chat().choices[0].message.content
    middle = len(full) // 2
    stop = full[middle : middle + 3]
    assert joined(talk.chat(stop=stop, stream=True)) == full[: full.index(stop)]


@step
def a_seed_repeats_an_answer(talk):
    def text(seed):
        # A prompt that is computed anew is computed in the same way each time.
        apart = {"cache_prompt": False}
        return talk.chat(temperature=1, seed=seed, extra_body=apart).choices[0].message.content

    for seed in (0, 7, -1):
        assert text(seed) == text(seed), f"seed {seed}"
    assert len({text(seed) for seed in range(8)}) > 1, "seeds make no difference"


@step
def a_length_limit_is_kept(talk):
    for limit in (1, 5):
        answer = talk.chat(max_tokens=None, max_completion_tokens=limit)
        assert answer.usage.completion_tokens <= limit
        if answer.usage.completion_tokens == limit:
            assert answer.choices[0].finish_reason in ("length", "stop")


@step
def a_completion_is_answered_streamed_or_not(talk):
    whole = talk.complete()
    assert whole.object == "text_completion" and whole.choices[0].text
    chunks = list(talk.complete(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == whole.choices[0].text
    assert counts(chunks[-1].usage) == counts(whole.usage)
    echoed = talk.complete(echo=True).choices[0].text
    assert echoed == "Once upon a time" + whole.choices[0].text


@step
def several_prompts_are_several_answers(talk):
    answer = talk.complete(prompt=["Once upon a time", "The sea is"], max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text for choice in answer.choices)


@step
def a_prompt_of_tokens_is_the_prompt(talk):
    tokens = talk.client.post("/tokenize", cast_to=object, body={"model": talk.model, "prompt": "Once upon a time"})
    assert tokens["count"] == len(tokens["tokens"]) > 0
    by_tokens = talk.complete(prompt=tokens["tokens"])
    by_text = talk.complete()
    assert counts(by_tokens.usage) == counts(by_text.usage)
    assert by_tokens.choices[0].text == by_text.choices[0].text


@step
def a_prompt_that_was_seen_is_not_computed_again(talk):
    question = "Which rivers, seas, lakes and oceans does a drop of rain pass on its way around the world?"

    def cached(**fields):
        usage = talk.chat(question, max_tokens=4, **fields).usage
        return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    cached()
    prompt, again = cached()
    assert 16 <= again < prompt, f"{again} of {prompt}"
    assert cached(extra_body={"cache_prompt": False}) == (prompt, 0)
    *_, last = talk.chat(question, max_tokens=4, stream=True, stream_options={"include_usage": True})
    assert 16 <= last.usage.prompt_tokens_details.cached_tokens < prompt


@step
def a_request_says_how_it_is_to_be_served(talk):
    for name in ("interactive", "completion", "agent", "background", "0", "code-completion"):
        headers = {"X-Superfluid-QoS": name, "X-Superfluid-Deadline-Ms": "60000", "X-Superfluid-Pin": "1"}
        assert talk.chat(max_tokens=2, extra_headers=headers).choices[0].finish_reason
    for name, value in [
        ("X-Superfluid-QoS", "urgent"),
        ("X-Superfluid-Deadline-Ms", "0"),
        ("X-Superfluid-Pin", "86401"),
    ]:
        code = "invalid_value" if value == "urgent" else "out_of_range"
        wrong = {"extra_headers": {name: value}}
        refused(openai.BadRequestError, lambda: talk.chat(**wrong), code, name.lower())


@step
def an_answer_ends_at_its_deadline_with_what_it_has(talk):
    fields = {"max_tokens": 900, "extra_body": {"ignore_eos": True}}
    fields["extra_headers"] = {"X-Superfluid-Deadline-Ms": "1500"}
    whole = talk.chat(**fields)
    choice = whole.choices[0]
    assert choice.finish_reason == "length" and choice.model_extra["ended_by"] == "deadline"
    assert choice.message.content and whole.usage.completion_tokens < 900
    ends = [c for chunk in talk.chat(stream=True, **fields) for c in chunk.choices if c.finish_reason]
    assert [end.model_extra.get("ended_by") for end in ends] == ["deadline"]
    assert (talk.chat(max_tokens=1).choices[0].model_extra or {}).get("ended_by") is None


@step
def the_schedulers_can_be_asked_and_told(talk):
    def put(n):
        return talk.client.put("/scheduling", cast_to=object, body={"background_every": n})

    before = talk.client.get("/scheduling", cast_to=object)
    assert before["background_every"] >= 1
    assert put(9) == talk.client.get("/scheduling", cast_to=object) == {"background_every": 9}
    refused(openai.BadRequestError, lambda: put(0), "out_of_range", "background_every")
    assert put(before["background_every"]) == before


@step
def wrong_requests_raise_the_clients_own_errors(talk):
    bad, missing = openai.BadRequestError, openai.NotFoundError
    refused(bad, lambda: talk.chat(temperature=9), "out_of_range", "temperature")
    refused(bad, lambda: talk.chat(max_tokens=0), "out_of_range", "max_tokens")
    refused(bad, lambda: talk.chat(stream=True, top_p=5), "out_of_range", "top_p")
    refused(bad, lambda: talk.chat(logprobs=True, top_logprobs=50), "out_of_range", "top_logprobs")
    refused(bad, lambda: talk.complete(suffix="the end"), "fim_unsupported", "suffix")
    asked = {"model": "no/such/model", "messages": [{"role": "user", "content": "x"}]}
    refused(missing, lambda: talk.client.chat.completions.create(**asked), "model_not_found", "model")
    if talk.key:
        stranger = talk.connect("not the key")
        refused(openai.AuthenticationError, lambda: stranger.models.list(), "invalid_api_key")


@step
def a_stream_can_be_left_early(talk):
    stream = talk.chat(stream=True, max_tokens=512)
    next(iter(stream))
    stream.close()
    assert talk.chat().choices[0].message.content


@step
def eight_streams_at_once_are_all_answered(talk):
    async def one(client, question):
        messages = [{"role": "user", "content": question}]
        fields = {"temperature": 0, "max_tokens": 24, "stream": True}
        stream = await client.chat.completions.create(model=talk.model, messages=messages, **fields)
        return [chunk async for chunk in stream]

    async def all_of_them():
        async with openai.AsyncOpenAI(
            base_url=talk.base_url, api_key=talk.key or "unused", max_retries=0, timeout=120
        ) as client:
            return await asyncio.gather(*(one(client, f"What is {n} plus {n}?") for n in range(8)))

    for chunks in asyncio.run(all_of_them()):
        assert joined(chunks), "an empty answer"
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")


if __name__ == "__main__":
    main(Conversation, "openai")
