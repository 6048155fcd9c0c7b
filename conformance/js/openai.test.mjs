// OpenAI's API at /v1, by the unchanged `openai` SDK. LangGraph Server has no such API.
import { test } from "node:test";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import OpenAI from "openai";
import { BASE_URL, words, collect } from "./helpers.mjs";

const ai = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "none" });
const said = (content, role = "user") => ({ role, content });

test("openai: models", async () => {
  const ids = (await collect(await ai.models.list())).map((m) => m.id);
  assert.ok(ids.includes("agent"));
  assert.equal((await ai.models.retrieve("agent")).owned_by, "understudy");
});

test("openai: a chat completion, whole and streamed", async () => {
  const request = { model: "agent", messages: [said("say 4")] };
  const whole = await ai.chat.completions.create(request);
  assert.equal(whole.choices[0].message.content, words(4));
  assert.equal(whole.usage.completion_tokens, 4);
  const chunks = await collect(await ai.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } }));
  assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? "").join(""), words(4));
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  // The SDK's own reader adds the chunks up.
  const final = await ai.chat.completions.stream(request).finalChatCompletion();
  assert.equal(final.choices[0].message.content, words(4));
  assert.equal(final.choices[0].finish_reason, "stop");
});

test("openai: a thread has the memory, and its questions are answered", async () => {
  const options = { headers: { "X-Thread-Id": randomUUID() } };
  const first = await ai.chat.completions.create({ model: "hitl", messages: [said('call search {"q": "x"}')] }, options);
  assert.equal(first.interrupt.thread_id, options.headers["X-Thread-Id"]);
  const second = await ai.chat.completions.create({ model: "hitl", messages: [said("approve")] }, options);
  assert.equal(second.choices[0].message.content, "tool said: Found 10 results for x");
});

test("openai: errors", async () => {
  await assert.rejects(ai.chat.completions.create({ model: "nope", messages: [said("x")] }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
  await assert.rejects(ai.chat.completions.create({ model: "agent", messages: [said("x")], n: 2 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "n");
  await assert.rejects(ai.chat.completions.create({ model: "failing", messages: [said("x")] }), (e) => e.status === 500 && e.message.includes("boom"));
  const failing = await ai.chat.completions.create({ model: "failing", messages: [said("x")], stream: true });
  await assert.rejects(collect(failing), /boom/);
});

test("openai: responses continue", async () => {
  const first = await ai.responses.create({ model: "agent", input: "say 2" });
  assert.equal(first.output_text, words(2));
  const stream = ai.responses.stream({ model: "agent", input: "say 3", previous_response_id: first.id });
  const deltas = (await collect(stream)).filter((e) => e.type === "response.output_text.delta").map((e) => e.delta);
  assert.equal(deltas.join(""), words(3));
  const final = await stream.finalResponse();
  assert.equal(final.usage.input_tokens, 3);
  assert.equal((await ai.responses.retrieve(final.id)).output_text, words(3));
});
