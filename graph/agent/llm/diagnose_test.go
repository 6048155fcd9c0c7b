package llm_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/llm"
)

var source = llm.Source{Name: "openai:m", Place: "graphs.a.agent.model"}

// Each error of a provider, in its own words, and of the way to it has a next step that names what to look at.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	syntax := json.Unmarshal([]byte("OK"), new(any))
	op := func(name string, err error) error {
		return fmt.Errorf("no answer: %w", &net.OpError{Op: name, Net: "tcp", Err: err})
	}
	for _, tt := range []struct {
		name string
		err  error
		want string // of the next step
	}{
		{"openai key", &llm.Error{Status: 401, Code: "invalid_api_key", Message: "Incorrect API key provided: sk-…"}, "check api_key of graphs.a"},
		{"gemini key", &llm.Error{Status: 400, Message: "API key not valid. Please pass a valid API key."}, "check api_key of"},
		{"anthropic key", &llm.Error{Status: 401, Type: "authentication_error", Message: "invalid x-api-key"}, "check api_key of"},
		{"key in an answer", &llm.Error{Status: 200, Type: "authentication_error", Message: "no"}, "check api_key of"},
		{"openai quota", &llm.Error{Status: 429, Code: "insufficient_quota", Message: "You exceeded your current quota"}, "check plan, credit"},
		{"anthropic credit", &llm.Error{Status: 400, Type: "invalid_request_error", Message: "Your credit balance is too low to access the Anthropic API."}, "check plan, credit"},
		{"deepseek credit", &llm.Error{Status: 402, Message: "Insufficient Balance"}, "check plan, credit"},
		{"openai rate", &llm.Error{Status: 429, Code: "rate_limit_exceeded", Message: "Rate limit reached for gpt-4o"}, "wait, have fewer runs at a time"},
		{"a long wait", &llm.Error{Status: 429, Message: "slow down", RetryAfter: 90 * time.Second}, "wait for 1m30s as the provider asks"},
		{"rate in an answer", &llm.Error{Status: 200, Type: "rate_limit_error", Message: "slow down"}, "raise retries of graphs.a"},
		{"code of a status in an answer", &llm.Error{Status: 200, Code: "429", Message: "upstream"}, "raise retries of"},
		{"bedrock rate", &llm.Error{Status: 429, Message: "Too many tokens, please wait before trying again."}, "wait, have fewer runs"},
		{"groq too large", &llm.Error{Status: 413, Code: "rate_limit_exceeded", Message: "Request too large for model"}, "summarization"},
		{"too long", &llm.Error{Status: 400, Message: "This model's maximum context length is 8192 tokens."}, "summarization"},
		{"openai model", &llm.Error{Status: 404, Code: "model_not_found", Message: "The model `gpt-9` does not exist or you do not have access to it."}, "check the name of"},
		{"anthropic model", &llm.Error{Status: 404, Type: "not_found_error", Message: "model: claude-9"}, "check the name of"},
		{"gemini model", &llm.Error{Status: 404, Message: "models/gemini-9 is not found for API version v1main"}, "check the name of"},
		{"ollama model", &llm.Error{Status: 404, Message: `model "x" not found, try pulling it first`}, "ollama pull"},
		{"deepseek model", &llm.Error{Status: 400, Message: "Model Not Exist", Code: "invalid_request_error"}, "check the name of"},
		{"wrong path", &llm.Error{Status: 404, Message: "404 page not found"}, "check name and base_url of"},
		{"wrong method", &llm.Error{Status: 405, Message: "Method Not Allowed"}, "check name and base_url of"},
		{"forbidden", &llm.Error{Status: 403, Message: "Project does not have access"}, "check that the key may use this model"},
		{"a web page", &llm.Error{Status: 200, Page: true, Message: "the server sent an HTML page (Welcome) in place of an answer"}, "check base_url of graphs.a.agent.model: it points to a web page"},
		{"a page that is not there", &llm.Error{Status: 404, Page: true, Message: "the server sent an HTML page (Not found)"}, "it points to a web page"},
		{"a firewall", &llm.Error{Status: 403, Page: true, Message: "the server sent an HTML page (Attention)"}, "proxy or firewall"},
		{"nginx has no upstream", &llm.Error{Status: 502, Page: true, Message: "the server sent an HTML page (502 Bad Gateway)"}, "try again later"},
		{"nginx timeout", &llm.Error{Status: 504, Page: true, Message: "the server sent an HTML page (504)"}, "capacity"},
		{"redirect", &llm.Error{Status: 308, Message: "the server redirects to https://x.test"}, "set base_url of graphs.a.agent.model to the address"},
		{"http to https", &llm.Error{Status: 400, Message: "Client sent an HTTP request to an HTTPS server."}, "write https:// in place of http://"},
		{"https to http", fmt.Errorf("no answer: %w", http.ErrSchemeMismatch), "write http:// in place of https://"},
		{"overloaded", &llm.Error{Status: 529, Type: "overloaded_error", Message: "Overloaded"}, "try again later"},
		{"overloaded in an answer", &llm.Error{Status: 200, Type: "overloaded_error", Message: "Overloaded"}, "try again later"},
		{"broken", &llm.Error{Status: 500, Message: "oops"}, "try again later"},
		{"ollama has no tools", &llm.Error{Status: 400, Message: "registry.ollama.ai/library/x does not support tools"}, "choose a model that can call tools"},
		{"vllm has no tools", &llm.Error{Status: 400, Message: `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`}, "choose a model that can call tools"},
		{"openrouter has no tools", &llm.Error{Status: 404, Message: "No endpoints found that support tool use."}, "choose a model that can call tools"},
		{"no images", &llm.Error{Status: 404, Message: "No endpoints found that support image input"}, "set images of graphs.a"},
		{"no images, vllm", &llm.Error{Status: 400, Message: "m is not a multimodal model"}, "set images of graphs.a.agent.model to false"},
		{"old name of max_tokens", &llm.Error{Status: 400, Code: "unsupported_parameter", Param: "max_tokens", Message: "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}, "set max_completion_tokens of"},
		{"no temperature", &llm.Error{Status: 400, Code: "unsupported_value", Param: "temperature", Message: "Unsupported value: 'temperature' does not support 0"}, "extra_body"},
		{"mistral refuses a member", &llm.Error{Status: 422, Message: "Extra inputs are not permitted"}, "extra_body"},
		{"filter", &llm.Error{Status: 400, Code: "content_filter", Message: "The response was filtered"}, "filter"},
		{"long wait", &llm.Error{Status: 429, RetryAfter: 2 * time.Hour, Message: "no"}, "wait for 2h as the provider asks, have fewer runs at a time, or ask the provider for a higher limit; requests are not repeated after more than 1m"},
		{"long wait of a server", &llm.Error{Status: 503, RetryAfter: 90 * time.Second, Message: "no"}, "wait for 1m30s as the provider asks; requests are not repeated"},
		{"only responses", &llm.Error{Status: 404, Message: "This model is only supported in v1/responses and not in v1/chat/completions."}, "choose another model: change the name of graphs.a.agent.model; the Responses API"},
		{"no chat model", &llm.Error{Status: 404, Message: "This is not a chat model and thus not supported in the v1/chat/completions endpoint."}, "choose another model"},
		{"ollama died", &llm.Error{Status: 200, Message: "llama runner process has terminated"}, "the provider failed: try again"},
		{"ollama died before an answer", &llm.Error{Status: 500, Message: "llama runner process has terminated: exit status 2"}, "the provider failed: try again"},
		{"error in a stream", &llm.Error{Status: 200, Message: "oops"}, "the provider failed: try again"},
		{"any other", &llm.Error{Status: 400, Message: "no"}, "check the settings of graphs.a.agent.model"},
		{"compressed", &llm.Error{Status: 200, Message: "the server compressed its answer with br, which the request did not ask for"}, "turn compression off"},

		{"slow", fmt.Errorf("%w (timeout is 1s)", llm.ErrSlow), "raise timeout of graphs.a"},
		{"silent", llm.ErrIdle, "raise idle_timeout of graphs.a"},
		{"cut", fmt.Errorf("%w (%w)", llm.ErrCut, syscall.ECONNRESET), "try again"},
		{"nothing", fmt.Errorf("the server sent %q: %w", "hi", llm.ErrNone), "check base_url of graphs.a.agent.model and the name: what it sent is not an answer"},
		{"too large", fmt.Errorf("read answer: %w", llm.ErrTooLarge), "max_event_size of graphs.a"},
		{"text in place of an answer", &llm.Foreign{Err: fmt.Errorf("the server sent %q: %w", "OK", llm.ErrCut)}, "check base_url of graphs.a.agent.model: what answers there is no chat API"},
		{"not JSON", fmt.Errorf("read answer: %w", syntax), "no chat API"},
		{"nothing listens", op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "check that the server runs"},
		{"no such host", op("dial", &net.DNSError{Err: "no such host", Name: "x.test", IsNotFound: true}), "check the host in base_url"},
		{"name server is slow", op("dial", &net.DNSError{Err: "timeout", IsTimeout: true}), "check the host in base_url"},
		{"firewall drops", op("dial", os.ErrDeadlineExceeded), "firewalls"},
		{"proxy", op("proxyconnect", syscall.ECONNREFUSED), "HTTPS_PROXY"},
		{"certificate", fmt.Errorf("no answer: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}), "SSL_CERT_FILE"},
		{"connection lost", op("read", syscall.ECONNRESET), "check base_url of graphs.a.agent.model, and the network"},
		{"no answer", fmt.Errorf("%w: %w", llm.ErrUnreached, io.ErrClosedPipe), "check base_url of graphs.a.agent.model, and the network"},
		{"too many tool calls", errors.New("read answer: more than 1024 tool calls"), "try again; if it happens often, choose another model: change the name of graphs.a.agent.model"},
		{"content", &llm.Unsendable{Message: "m1", Kind: "audio", Name: "a.wav", Reason: "no"}, "send it in a form that the model takes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("node: %w", &llm.CallError{Source: source, Err: tt.err})
			cause, next := llm.Diagnose(err)
			require.Contains(t, next, tt.want)
			require.Equal(t, strings.TrimPrefix(tt.err.Error(), "model: "), cause)
			require.ErrorIs(t, err, tt.err)
			text := errors.Unwrap(err).Error()
			require.True(t, strings.HasPrefix(text, "model openai:m: "+strings.TrimRight(cause, ". ")+". "), text)
			require.True(t, strings.HasSuffix(text, next[1:]+"."), text)
			for _, s := range []llm.Source{{Name: "openai:m"}, {}} { // of a program, which has no langgraph.json
				_, next := llm.Diagnose(&llm.CallError{Source: s, Err: tt.err})
				require.NotContains(t, next, "of .")
				require.NotContains(t, next, "  ")
			}
		})
	}
}

// The advice about a key names what has it.
func TestDiagnoseKeys(t *testing.T) {
	t.Parallel()
	refused := &llm.Error{Status: http.StatusUnauthorized, Message: "no"}
	for want, s := range map[string]llm.Source{
		"check OPENAI_API_KEY, the variable that has the key, or set api_key of p": {Name: "openai:m", Place: "p", Key: "OPENAI_API_KEY"},
		"set api_key of p: requests have none":                                     {Name: "openai:m", Place: "p", NoKey: true},
		"set NOPE, the variable that api_key of p names: it is empty":              {Name: "openai:m", Place: "p", NoKey: true, Key: "NOPE"},
		"check api_key of the model openai:m":                                      {Name: "openai:m"},
		"check api_key of the model":                                               {},
	} {
		_, next := llm.Diagnose(&llm.CallError{Source: s, Err: refused})
		require.Equal(t, want, next)
	}
	_, next := llm.Diagnose(&llm.CallError{Source: llm.Source{Name: "ollama:m", Place: "p"}, Err: syscall.ECONNREFUSED})
	require.Equal(t, "start Ollama with `ollama serve`, or check base_url of p", next)
}

// The advice about a summary is not to add summaries, and that about an address names the variable that has it.
func TestDiagnoseSource(t *testing.T) {
	t.Parallel()
	for _, tooLong := range []error{&llm.Error{Status: 400, Message: "prompt is too long"}, &llm.Error{Status: 413, Message: "large"}} {
		_, next := llm.Diagnose(&llm.CallError{Source: llm.Source{Name: "openai:m", Place: "p", Summarizes: true}, Err: tooLong})
		require.Equal(t, "what the middleware summarization reads is too long for its model: lower its max_tokens, or set its model to one that reads more", next)
	}
	_, next := llm.Diagnose(&llm.CallError{Source: llm.Source{Name: "openai:m", Place: "p", Base: "OPENAI_BASE_URL"}, Err: llm.ErrUnreached})
	require.Equal(t, "check OPENAI_BASE_URL, the variable that has the address, or base_url of p, and the network", next)
}

// The text of an error is one line, whatever the provider wrote.
func TestCallErrorIsOneLine(t *testing.T) {
	t.Parallel()
	err := &llm.CallError{Source: source, Err: &llm.Error{Status: 500, Message: "a\n\n  Traceback:\r\n\tb."}}
	require.Equal(t, "model openai:m: 500 Internal Server Error: a Traceback: b. Try again later; look into the provider's status page or, for a server of your own, into its log.", err.Error())
}
