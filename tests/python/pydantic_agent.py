"""Agents of pydantic-ai on a running server: output by tool and by schema, tools that are called, streams.

    pydantic_agent.py BASE_URL MODEL
"""

import asyncio
from typing import Annotated

import pydantic
import pydantic_ai
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from steps import main, raised, step


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    people: int = pydantic.Field(ge=0, le=99_999_999)


class Talk:
    def __init__(self, base_url, model):
        provider = OpenAIProvider(base_url=base_url, api_key="unused")
        self.model = OpenAIChatModel(model, provider=provider)
        self.absent = OpenAIChatModel("no-such-model", provider=provider)

    def agent(self, output=str, **fields):
        settings = {"temperature": 0, "max_tokens": 160}
        return pydantic_ai.Agent(self.model, output_type=output, model_settings=settings, retries=0, **fields)


@step
def an_agent_answers_in_words_streamed_or_not(talk):
    agent = talk.agent()
    whole = agent.run_sync("Name three colors.")
    assert whole.output and whole.usage.output_tokens > 0

    async def stream():
        async with agent.run_stream("Name three colors.") as result:
            return [text async for text in result.stream_text(delta=True, debounce_by=None)]

    pieces = asyncio.run(stream())
    assert len(pieces) > 1 and "".join(pieces) == whole.output


@step
def output_comes_by_a_tool_and_by_a_schema(talk):
    for output in (pydantic_ai.ToolOutput(City), pydantic_ai.NativeOutput(City)):
        result = talk.agent(output).run_sync("The capital of Norway.")
        assert isinstance(result.output, City), result


@step
def output_that_streams_grows_to_the_whole(talk):
    async def stream(output):
        async with talk.agent(output).run_stream("The capital of Norway.") as result:
            async for _ in result.stream_output(debounce_by=None):
                pass
            return await result.get_output()

    for output in (pydantic_ai.ToolOutput(City), pydantic_ai.NativeOutput(City)):
        whole = talk.agent(output).run_sync("The capital of Norway.").output
        assert asyncio.run(stream(output)) == whole


@step
def a_function_is_called_and_its_result_goes_back(talk):
    called = []
    agent = talk.agent()

    @agent.tool_plain
    def weather(city: Annotated[str, pydantic.Field(max_length=12)]) -> str:
        """The weather of a city."""
        called.append(city)
        return "rain"

    required = {"temperature": 0, "max_tokens": 100, "parallel_tool_calls": False}
    required["extra_body"] = {"tool_choice": "required"}

    async def first_call():
        async with agent.iter("Weather in Oslo?", model_settings=required) as run:
            async for node in run:
                if called or pydantic_ai.Agent.is_end_node(node):
                    return

    asyncio.run(first_call())
    assert called, "the function was not called"


@step
def a_refusal_is_an_error_of_the_model(talk):
    agent = pydantic_ai.Agent(talk.absent)
    error = raised(pydantic_ai.exceptions.ModelHTTPError, lambda: agent.run_sync("x"))
    assert error.status_code == 404


if __name__ == "__main__":
    main(Talk, "pydantic-ai-slim")
