// A conversation of the official `openai` client for Node with a running server.
//
//     node openai_client.mjs BASE_URL MODEL

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { main, rejected } from "./steps.mjs";

const Person = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(150) });
const Weather = z.object({ city: z.string().max(12) });
const LOOKS_MAX = 20_000;

function prepare(baseURL, model) {
  const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 120_000 });
  const ask = (content, more = {}) => ({
    model,
    messages: [{ role: "user", content }],
    temperature: 0,
    max_tokens: 24,
    ...more,
  });
  return { client, model, ask, origin: new URL(baseURL).origin };
}

/** What `/metrics` says of a name, added up. */
async function metric(origin, name) {
  const text = await (await fetch(`${origin}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

await main(prepare, {
  "models are listed and can be asked for": async ({ client, model }) => {
    const listed = [];
    for await (const card of client.models.list()) listed.push(card.id);
    assert.ok(listed.includes(model), listed.join());
    assert.equal((await client.models.retrieve(model)).id, model);
    await rejected(OpenAI.NotFoundError, () => client.models.retrieve("no-such-model"));
  },

  "a stream says what a whole answer says": async ({ client, ask }) => {
    const whole = await client.chat.completions.create(ask("Name three colors."));
    let said = "";
    const options = { stream: true, stream_options: { include_usage: true } };
    let usage = null;
    for await (const chunk of await client.chat.completions.create(ask("Name three colors.", options))) {
      said += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(said, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  },

  "the helper's events tell the answer as it grows": async ({ client, ask }) => {
    const events = [];
    const stream = client.chat.completions
      .stream(ask("Name three colors.", { logprobs: true }))
      .on("content", (delta, snapshot) => events.push({ delta, snapshot }))
      .on("logprobs.content.delta", () => (events.logprobs = true))
      .on("finalChatCompletion", (completion) => (events.final = completion));
    const final = await stream.finalChatCompletion();
    const text = final.choices[0].message.content;
    assert.equal(events.map(({ delta }) => delta).join(""), text);
    assert.equal(events.at(-1).snapshot, text);
    assert.ok(events.logprobs, "no log-probabilities");
    assert.equal(events.final, final);
    assert.equal(await stream.finalContent(), text);
  },

  "an answer is parsed by a zod schema, streamed or not": async ({ client, ask }) => {
    const fields = { response_format: zodResponseFormat(Person, "person"), max_tokens: 120 };
    const whole = await client.chat.completions.parse(ask("Describe Anna, who is 30.", fields));
    Person.parse(whole.choices[0].message.parsed);
    const stream = client.chat.completions.stream(ask("Describe Anna, who is 30.", fields));
    const streamed = await stream.finalChatCompletion();
    assert.deepEqual(streamed.choices[0].message.parsed, whole.choices[0].message.parsed);
  },

  "a call's arguments come in pieces that add up": async ({ client, ask }) => {
    const tool = zodFunction({ name: "get_weather", parameters: Weather });
    const pieces = [];
    let done = null;
    const stream = client.chat.completions
      .stream(ask("Weather in Oslo?", { tools: [tool], tool_choice: "required", parallel_tool_calls: false, max_tokens: 80 }))
      .on("tool_calls.function.arguments.delta", ({ arguments_delta }) => pieces.push(arguments_delta))
      .on("tool_calls.function.arguments.done", (event) => (done = event));
    const final = await stream.finalChatCompletion();
    const [call] = final.choices[0].message.tool_calls;
    assert.equal(final.choices[0].finish_reason, "tool_calls");
    assert.equal(pieces.join(""), call.function.arguments);
    assert.equal(done.name, "get_weather");
    Weather.parse(call.function.parsed_arguments);
  },

  "a runner calls the function and sends its result back": async ({ client, ask }) => {
    const called = [];
    const tool = zodFunction({
      name: "get_weather",
      parameters: Weather,
      function: ({ city }) => {
        called.push(city);
        return "rain";
      },
    });
    const fields = { tools: [tool], tool_choice: "required", parallel_tool_calls: false, max_tokens: 80 };
    const counted = { stream_options: { include_usage: true } };
    for (const stream of [false, true]) {
      called.length = 0;
      const runner = client.chat.completions.runTools(ask("Weather in Oslo?", { ...fields, stream, ...(stream && counted) }), { maxChatCompletions: 2 });
      await runner.done();
      assert.equal(called.length, 2, "each of two answers is a call");
      const roles = runner.messages.map(({ role }) => role);
      assert.deepEqual(roles, ["user", "assistant", "tool", "assistant", "tool"]);
      assert.ok((await runner.totalUsage()).completion_tokens > 0);
    }
  },

  "a stream that is given up frees its lane": async ({ client, ask, origin }) => {
    for (const give_up of [(stream) => stream.controller.abort(), null]) {
      const stream = await client.chat.completions.create(ask("Tell a long story.", { stream: true, max_tokens: 900, ignore_eos: true }));
      for await (const chunk of stream) {
        if (chunk.choices[0].delta.content) {
          give_up?.(stream);
          break;
        }
      }
      let looks = 0;
      while ((await metric(origin, "superfluid_lanes_active")) > 0) {
        assert.ok(++looks < LOOKS_MAX, "the lane was never free");
      }
    }
    const signal = AbortSignal.abort();
    await rejected(OpenAI.APIUserAbortError, () => client.chat.completions.create(ask("x"), { signal }));
  },

  "refusals are the client's own errors": async ({ client, ask }) => {
    const error = await rejected(OpenAI.BadRequestError, () => client.chat.completions.create(ask("x", { top_p: 5 })));
    assert.equal(error.code, "out_of_range");
    assert.equal(error.param, "top_p");
    assert.ok(error.requestID);
    await rejected(OpenAI.NotFoundError, () => client.chat.completions.create({ ...ask("x"), model: "no-such-model" }));
  },

  "headers come with the answer": async ({ client, ask }) => {
    const { data, response, request_id } = await client.chat.completions.create(ask("x", { max_tokens: 2 })).withResponse();
    assert.ok(data.id.startsWith("chatcmpl-"));
    assert.ok(request_id);
    assert.equal(response.headers.get("content-type"), "application/json");
  },
});
