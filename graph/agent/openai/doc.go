// Package openai speaks the chat wire of OpenAI and of the many servers that copy it: vLLM, Ollama, llama.cpp, LiteLLM, DeepSeek,
// Azure, Gemini's compatible endpoint.
//
// It is a langchaingo llms.Model, and exact: every answer is streamed and told in chunks as llm.ChunkStreamer has them. Pieces of
// parallel tool calls are kept apart by index, also where a server repeats an index, an id or a name; reasoning, refusal and usage come
// through; an error in the middle of a stream is an error, and so is a connection that ends before the answer does. Requests that were
// refused for a moment (408, 409, 429, 5xx, no connection) are tried again, as long as nothing of an answer has come, after the time
// that the server asks for. What is read is bounded.
package openai
