package llm

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"understudy/internal/serverurl"
	"understudy/internal/sockerr"
)

// Source says where a model is configured, for errors: a reader has to know what to change.
type Source struct {
	Name  string // provider:model; "": unknown, and errors of the model are returned as they are
	Place string // of its settings, such as graphs.chat.agent.model; "": unknown
	Key   string // the variable that has the key, or should have it; "": the setting api_key
	NoKey bool   // requests have no key
	Base  string // the variable that has the address; "": the setting base_url, or the provider's own
	// Summarizes means that the call condenses a conversation for the middleware summarization.
	Summarizes bool
}

// CallError is the error of a call of a model: which model, what went wrong, and what to do about it, in one line. Unwrap returns the error of
// the model itself.
type CallError struct {
	Source Source
	Err    error
}

func (e *CallError) Error() string {
	cause, next := Diagnose(e)
	text := "model " + e.Source.Name + ": " + cause
	if next == "" {
		return text
	}
	first, size := utf8.DecodeRuneInString(next)
	return strings.TrimRight(text, ". ") + ". " + string(unicode.ToUpper(first)) + next[size:] + "."
}

func (e *CallError) Unwrap() error { return e.Err }

// ErrUnreached: the server did not answer at all.
var ErrUnreached = errors.New("no answer from the model")

// ErrTooLarge: an answer, or a part of it, is larger than what is read.
var ErrTooLarge = errors.New("too large")

// Foreign is an error of a server that does not speak the API of a chat model.
type Foreign struct{ Err error }

func (e *Foreign) Error() string { return e.Err.Error() }
func (e *Foreign) Unwrap() error { return e.Err }

// Diagnose returns the cause of an error of a model in one line, and the next step of the person who configured it: a clause that names a setting, without
// a full stop; "" for an error that no model has.
func Diagnose(err error) (cause, next string) {
	var call *CallError
	s := Source{}
	if errors.As(err, &call) {
		s, err = call.Source, call.Err
	}
	cause = strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "model: ")), " ")
	var said *Error
	if errors.As(err, &said) {
		return cause, said.next(s)
	}
	return cause, s.unanswered(err)
}

// of names settings of the model.
func (s Source) of(settings string) string {
	switch {
	case s.Place != "":
		return settings + " of " + s.Place
	case s.Name != "":
		return settings + " of the model " + s.Name
	}
	return settings + " of the model"
}

// address names what has the address of the model.
func (s Source) address() string {
	if s.Base != "" {
		return s.Base + ", the variable that has the address, or " + s.of("base_url")
	}
	return s.of("base_url")
}

const capacity = "check that the server has capacity, or raise "

// unanswered returns the next step after an error that the provider did not write.
func (s Source) unanswered(err error) string {
	var foreign *Foreign
	var syntax *json.SyntaxError
	var dns *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	var unsendable *Unsendable
	address := s.address()
	switch {
	case errors.As(err, &unsendable) && unsendable.Kind == "":
		return "send a message with text again: the next one on the thread is answered"
	case errors.As(err, &unsendable):
		return "send it in a form that the model takes, such as text, or choose another model: change " + s.of("the name") + "; the next message on the thread is answered without it"
	case errors.As(err, &foreign), errors.As(err, &syntax):
		return "check " + address + ": what answers there is no chat API; most addresses end in /v1"
	case errors.Is(err, ErrTooLarge):
		return "check what the server sends, or raise " + s.of("max_event_size")
	case errors.Is(err, ErrSlow):
		return capacity + s.of("timeout")
	case errors.Is(err, ErrIdle):
		return capacity + s.of("idle_timeout")
	case errors.Is(err, ErrNone):
		return "try again; if it happens often, look into the log of the server, and check " + address + " and the name: what it sent is not an answer of a chat API"
	case errors.Is(err, ErrCut):
		return "try again; if it happens often, look into the log of the server and of proxies on the way, which may limit how long an answer takes"
	case errors.As(err, &certificate):
		return "check " + address + "; if its certificate is your own, add the authority to those of the system or set SSL_CERT_FILE"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "write http:// in place of https:// in " + address
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return "check the proxy in HTTPS_PROXY and HTTP_PROXY, or exclude the host with NO_PROXY"
	case errors.As(err, &dns):
		return "check the host in " + address + ", and the name servers of this machine"
	case errors.Is(err, sockerr.Refused):
		if strings.HasPrefix(s.Name, "ollama:") {
			return "start Ollama with `ollama serve`, or check " + address
		}
		return "check that the server runs, and host and port in " + address
	case errors.As(err, &timeout) && timeout.Timeout():
		return "check " + address + ", and that firewalls on the way let requests through"
	case errors.Is(err, ErrUnreached), errors.As(err, &op):
		return "check " + address + ", and the network"
	}
	return "try again; if it happens often, choose another model: change " + s.of("the name")
}

// What providers call their reasons, in lower case.
var (
	noKey     = []string{"invalid_api_key", "invalid api key", "incorrect api key", "api key not valid", "api_key_invalid", "invalid x-api-key", "authentication_error", "unauthenticated"}
	noCredit  = []string{"insufficient_quota", "insufficient balance", "insufficient_balance", "insufficient credit", "credit balance", "exceeded your current quota", "billing_hard_limit", "spending limit"}
	limited   = []string{"rate_limit", "ratelimit", "rate limit", "too many requests", "too_many_requests", "resource_exhausted"}
	noTools   = []string{"does not support tools", "tool-call-parser", "enable-auto-tool-choice", "not support function", "support tool use", "tools are not supported", "tool use is not supported", "function calling is not", "requires --jinja"}
	noImages  = []string{"image input", "image_url", "images are not", "not support image", "support image", "multimodal", "vision"}
	noModel   = []string{"model_not_found", "model not found", "no such model", "unknown model", "invalid model", "unsupported model", "not a valid model", "model_not_supported", "model does not exist", "model not exist", "unknown_model"}
	noMember  = []string{"unsupported parameter", "unsupported_parameter", "unsupported value", "unsupported_value", "unrecognized request argument", "unknown parameter", "extra inputs are not permitted", "extra_forbidden", "unknown field", "unrecognized field", "unknown name"}
	filtered  = []string{"content_filter", "content_policy", "content management policy", "moderation", "data_inspection_failed"}
	responses = []string{"/responses", "responses api", "not supported in the v1/chat/completions", "not a chat model"}
	crashed   = []string{"runner process", "process has terminated", "engine is dead", "enginedead"}
)

// next returns the next step after an error that the provider wrote.
func (e *Error) next(s Source) string {
	text := strings.ToLower(e.Code + " " + e.Type + " " + e.Message)
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	address := s.address()
	status := e.Status
	if n, err := strconv.Atoi(e.Code); err == nil && status == http.StatusOK && n >= 300 && n < 600 {
		status = n
	}
	switch {
	case e.Page && (status/100 == 2 || status == http.StatusNotFound || status == http.StatusMethodNotAllowed):
		return "check " + address + ": it points to a web page, not to a chat API; most addresses end in /v1"
	case e.Page && status/100 == 4 && status != http.StatusTooManyRequests:
		return "check " + address + ": a web page answers, perhaps of a proxy or firewall on the way"
	case status/100 == 3:
		return "set " + address + " to the address that answers"
	case serverurl.MismatchOf(e.Status, []byte(text)) != "":
		return "write https:// in place of http:// in " + address
	case has(noCredit), status == http.StatusPaymentRequired:
		return "check plan, credit and spending limit of the account at the provider, or use another key"
	case status == http.StatusRequestEntityTooLarge:
		return s.tooLong()
	case e.RetryAfter > MaxWait && (status == http.StatusTooManyRequests || has(limited)):
		return e.wait() + ", have fewer runs at a time, or ask the provider for a higher limit; requests are not repeated after more than " + span(MaxWait)
	case e.RetryAfter > MaxWait && status >= 500:
		return e.wait() + "; requests are not repeated after more than " + span(MaxWait)
	case status == http.StatusTooManyRequests, has(limited):
		return e.wait() + ", have fewer runs at a time, ask the provider for a higher limit, or raise " + s.of("retries")
	case e.ContextOverflow():
		return s.tooLong()
	case status/100 == 4 && has(responses):
		return "choose another model: change " + s.of("the name") + "; the Responses API, which this one needs, is not supported"
	case has(crashed):
		return failed
	case status == http.StatusUnauthorized, has(noKey):
		return s.key()
	case has(noTools):
		return "choose a model that can call tools" + callsTools
	case status == http.StatusForbidden:
		return "check that the key may use this model: " + s.of("api_key, organization and project") + "; some providers refuse regions and addresses"
	case strings.Contains(text, "try pulling"):
		return "run `ollama pull` with the name of the model on its server, or check " + s.of("the name")
	case has(noModel), status == http.StatusNotFound && strings.Contains(text, "model"):
		return "check " + s.of("the name") + ": the provider has no such model, or the key may not use it"
	case has(noImages):
		return "set " + s.of("images") + " to false, or choose a model that reads images"
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return "check " + s.of("name and base_url") + ": there is no chat API at this address; most end in /v1"
	case has(filtered):
		return "the provider's filter refused the conversation: change what it says, or the filter"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout, status == 524:
		return "check that the server has capacity, and how long it and proxies on the way let an answer take"
	case status >= 500, status == http.StatusConflict, status == http.StatusTooEarly, status == http.StatusOK && e.Temporary():
		return "try again later; look into the provider's status page or, for a server of your own, into its log"
	case strings.Contains(text, "compressed its answer"):
		return "turn compression off at the server, or check " + s.of("headers")
	case strings.Contains(text, "max_completion_tokens"):
		return "set " + s.of("max_completion_tokens") + " to true, or to false if it is"
	case has(noMember), e.Param != "" && status/100 == 4:
		return "change what the provider refuses in " + s.of("the settings") + `; null in extra_body removes a member of the request`
	case status == http.StatusOK:
		return failed
	}
	return "check " + s.of("the settings")
}

// tooLong returns what to do when the input of a call is too long.
func (s Source) tooLong() string {
	if s.Summarizes {
		return "what the middleware summarization reads is too long for its model: lower its max_tokens, or set its model to one that reads more"
	}
	return "the conversation is too long for the model: add the middleware summarization or lower its trigger, lower max_tokens, or begin a new thread"
}

const (
	failed     = "the provider failed: try again, and look into its status page or, for a server of your own, into its log"
	callsTools = ", or turn tools on at its server (vLLM: --enable-auto-tool-choice and --tool-call-parser; llama.cpp: --jinja)"
)

// ToolAdvice is the next step for a model that answers and does not call tools.
func ToolAdvice(s Source) string {
	return "the agent's tools are of no use with this model: check " + s.of("the name") + ", choose one that can call tools" + callsTools
}

// MaxWait is the longest wait that a server may request before a retry.
const MaxWait = time.Minute

func (e *Error) wait() string {
	if e.RetryAfter < time.Second {
		return "wait"
	}
	return "wait for " + span(e.RetryAfter) + " as the provider asks"
}

// span returns a time in hours, minutes and seconds, without those that are zero at its end.
func span(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// key returns what to do when the provider refuses the key.
func (s Source) key() string {
	switch {
	case s.NoKey && s.Key != "":
		return "set " + s.Key + ", the variable that " + s.of("api_key") + " names: it is empty"
	case s.NoKey:
		return "set " + s.of("api_key") + ": requests have none"
	case s.Key != "":
		return "check " + s.Key + ", the variable that has the key, or set " + s.of("api_key")
	}
	return "check " + s.of("api_key")
}
