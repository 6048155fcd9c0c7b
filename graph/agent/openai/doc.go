// Package openai speaks the chat wire of OpenAI and of the many servers that copy it: vLLM, Ollama, llama.cpp, LiteLLM, DeepSeek,
// Azure, Gemini's compatible endpoint.
//
// It is a langchaingo llms.Model that loses nothing: every answer is streamed in chunks of llm.ChunkStreamer. Pieces of parallel tool
// calls are kept apart by index, also where a server repeats an index, an id or a name; reasoning, refusal and usage come through; an
// error in the middle of a stream is an error, and so is a connection that ends before the answer does. Temporary failures (408, 409,
// 429, 5xx, no connection) are retried until a part of an answer has arrived, after the time that the server requests. The size of
// answers is limited.
//
// With Options.Responses it speaks OpenAI's Responses API instead, with the same promises; what goes back to the server of an earlier
// answer are its items, with their ids.
package openai
