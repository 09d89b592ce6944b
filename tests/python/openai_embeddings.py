"""How the official `openai` client embeds texts: in both encodings, as texts and as tokens, and what it is told.

    openai_embeddings.py BASE_URL MODEL

MODEL is an encoder whose vectors have a length of one.
"""

import math

import openai

from steps import main, raised, step

TEXTS = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]


class Talk:
    def __init__(self, base_url, model):
        self.base_url, self.model = base_url, model
        self.client = openai.OpenAI(base_url=base_url, api_key="any", max_retries=0, timeout=120)

    def embed(self, given, **fields):
        return self.client.embeddings.create(model=self.model, input=given, **fields)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


@step
def vectors_come_in_the_order_of_the_texts_with_their_usage(talk):
    answer = talk.embed(TEXTS)
    assert answer.object == "list" and answer.model == talk.model
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert all(item.object == "embedding" for item in answer.data)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)
    for item in answer.data:
        assert abs(math.sqrt(cosine(item.embedding, item.embedding)) - 1) < 1e-5


@step
def the_clients_own_base64_is_what_numbers_are_bit_for_bit(talk):
    # Nothing said: the client asks for base64 and decodes it.
    packed = talk.embed(TEXTS).data
    plain = talk.embed(TEXTS, encoding_format="float").data
    import struct

    narrow = lambda vector: [struct.unpack("<f", struct.pack("<f", value))[0] for value in vector]
    for a, b in zip(packed, plain, strict=True):
        assert list(a.embedding) == narrow(b.embedding)


@step
def one_text_is_what_it_is_among_others(talk):
    together = talk.embed(TEXTS).data
    for text, among in zip(TEXTS, together, strict=True):
        alone = talk.embed(text).data
        assert len(alone) == 1 and alone[0].embedding == among.embedding


@step
def tokens_stand_for_their_text(talk):
    tokens = talk.client.post("/tokenize", body={"prompt": TEXTS[0]}, cast_to=object)["tokens"]
    text = talk.embed(TEXTS[0])
    for given in (tokens, [tokens]):
        answer = talk.embed(given)
        assert answer.data[0].embedding == text.data[0].embedding
        assert answer.usage.prompt_tokens == len(tokens)


@step
def what_means_alike_is_closer(talk):
    food, bread, baby = (item.embedding for item in talk.embed(TEXTS).data)
    assert cosine(food, bread) > 0.6 > 0.3 > cosine(food, baby), (cosine(food, bread), cosine(food, baby))


@step
def dimensions_are_the_models_or_refused(talk):
    dims = len(talk.embed("x").data[0].embedding)
    assert len(talk.embed("x", dimensions=dims).data[0].embedding) == dims
    error = raised(openai.BadRequestError, lambda: talk.embed("x", dimensions=dims // 2))
    assert (error.code, error.param) == ("dimensions_unsupported", "dimensions"), error.body


@step
def what_is_wrong_is_named(talk):
    for given, code, param in (
        ([], "invalid_value", "input"),
        (["fine", ""], "invalid_value", "input[1]"),
        (["fine", "word " * 2000], "context_length_exceeded", "input[1]"),
        ("word " * 2000, "context_length_exceeded", "input"),
        ([[1, 2], [10_000_000]], "token_out_of_range", "input[1]"),
        (["x"] * 2049, "too_many", "input"),
    ):
        error = raised(openai.BadRequestError, lambda given=given: talk.embed(given))
        assert (error.code, error.param) == (code, param), error.body


@step
def a_field_that_nobody_reads_is_named_and_a_chat_is_refused_with_the_way_out(talk):
    raw = talk.client.embeddings.with_raw_response.create(
        model=talk.model, input="x", extra_body={"input_type": "query"}
    )
    assert "input_type" in raw.headers["x-superfluid-warnings"]
    message = [{"role": "user", "content": "hi"}]
    chat = lambda: talk.client.chat.completions.create(model=talk.model, messages=message)
    text = lambda: talk.client.completions.create(model=talk.model, prompt="hi")
    for call in (chat, text):
        error = raised(openai.BadRequestError, call)
        assert error.code == "not_a_text_model" and "/v1/embeddings" in error.message, error.body


@step
def many_texts_at_once_and_many_at_the_same_time_are_all_answered(talk):
    from concurrent.futures import ThreadPoolExecutor

    many = [f"sentence number {number}" for number in range(300)]
    answer = talk.embed(many)
    assert [item.index for item in answer.data] == list(range(300))
    with ThreadPoolExecutor(16) as pool:
        alone = list(pool.map(lambda text: talk.embed(text).data[0].embedding, many[:48]))
    assert alone == [item.embedding for item in answer.data[:48]]


if __name__ == "__main__":
    main(Talk, "openai")
