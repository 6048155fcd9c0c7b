package llm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Errors of a connection to a model's server.
var (
	ErrCut  = fmt.Errorf("the connection ended before the answer did: %w", io.ErrUnexpectedEOF)
	ErrIdle = errors.New("the model was silent for too long")
	ErrNone = errors.New("the provider sent no answer") // its answer ended without a part of one
	ErrSlow = errors.New("the model did not begin to answer in time")
)

// Error is what a model's server said went wrong, before an answer or in the middle of it.
type Error struct {
	Status     int    // 200 when it came in an answer
	Type, Code string // "" when the server did not say
	Message    string
	Param      string
	RequestID  string
	RetryAfter time.Duration // 0: not said
	Page       bool          // it sent a web page
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model: ")
	if e.Status != http.StatusOK {
		b.WriteString(strings.TrimSpace(strconv.Itoa(e.Status) + " " + statusText(e.Status)))
		if e.Message != "" {
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Message)
	if code := e.Code; code != "" {
		fmt.Fprintf(&b, " (%s)", code)
	} else if e.Type != "" {
		fmt.Fprintf(&b, " (%s)", e.Type)
	}
	if e.RequestID != "" { // what the provider's support asks for
		fmt.Fprintf(&b, " [request ID %s]", e.RequestID)
	}
	return b.String()
}

func statusText(status int) string {
	if status == 529 { // Anthropic's
		return "Overloaded"
	}
	return http.StatusText(status)
}

// temporary are the names of errors that pass, as providers write them.
var temporary = []string{
	"rate_limit", "ratelimit", "too_many_requests", "resource_exhausted", "overloaded", "unavailable", "server_error", "api_error", "internal_error",
	"timeout", "try again later", "server is busy",
}

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	if e.Code == "insufficient_quota" || e.Type == "insufficient_quota" {
		return false
	}
	status := e.Status
	if n, err := strconv.Atoi(e.Code); err == nil && status == http.StatusOK {
		status = n
	}
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return true
	case status >= 500:
		return status != http.StatusNotImplemented
	case status != http.StatusOK:
		return false
	}
	name := strings.ToLower(e.Type + " " + e.Code + " " + strings.ReplaceAll(e.Message, " ", "_"))
	for _, word := range temporary {
		if strings.Contains(name, strings.ReplaceAll(word, " ", "_")) {
			return true
		}
	}
	return false
}

// overflow are phrases of errors of conversations that are too long.
var overflow = []string{
	"maximum context length",            // OpenAI, vLLM, Mistral, OpenRouter, DeepSeek
	"context length exceeded",           // Together
	"context_length_exceeded",           // OpenAI
	"context window",                    // Ollama, llama.cpp, LM Studio, OpenAI's later models
	"exceed_context_size",               // llama.cpp
	"available context size",            // llama.cpp
	"prompt is too long",                // Anthropic
	"exceed context limit",              // Anthropic: input length and max_tokens exceed context limit
	"request_too_large",                 // Anthropic
	"input token count",                 // Gemini: exceeds the maximum number of tokens allowed
	"exceeds the maximum number of tok", // Gemini, Vertex
	"longer than the maximum model len", // vLLM
	"maximum model length",              // vLLM
	"reduce the length of the messages", // Groq
	"please reduce the length",          // Groq, OpenAI
	"maximum prompt length",             // xAI
	"too many tokens",                   // Cohere, Bedrock
	"input is too long",                 // Bedrock
	"max_prompt_tokens",                 // gateways
	"token limit exceeded",              // Moonshot
	"exceeded model token limit",        // Moonshot
	"prompt too long",                   // Ollama
	"string_above_max_length",           // OpenAI
	"range of input length should be",   // Qwen
	"tokens_limit_reached",              // GitHub Models
	"context_window_exceeded",           // LiteLLM
	"contextwindowexceedederror",        // LiteLLM
}

// ContextOverflow reports that the conversation was too long for the model.
func (e *Error) ContextOverflow() bool {
	if e.Status == http.StatusRequestEntityTooLarge {
		return true
	}
	text := strings.ToLower(e.Code + " " + e.Type + " " + e.Message)
	for _, phrase := range overflow {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
