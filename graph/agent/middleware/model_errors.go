package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/agent/llm"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// Tries of a call of the model, and the waits between them unless the provider names one.
const (
	modelTries = 3
	firstWait  = time.Second
	maxWait    = 8 * time.Second
)

// Answers in place of an error of the model.
const (
	quotaText   = "The configured LLM provider rejected the request because the account is out of quota or billing is unavailable. Please fix the provider account and try again."
	authText    = "The configured LLM provider rejected the request because authentication or access is invalid. Please check the API key and the permissions, and try again."
	busyText    = "The configured LLM provider is temporarily unavailable after several tries. Please wait a moment and continue the conversation."
	circuitText = "The configured LLM provider is currently unavailable because of repeated failures. Please wait a minute and try again."
)

// ModelErrorOptions control ModelErrors.
type ModelErrorOptions struct {
	Failures int           // of the provider in a row that open the circuit breaker; 0: it never opens
	Recovery time.Duration // how long calls are refused then, before one of them is tried; 0: 60 s

	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

// ModelErrors calls the model again after errors that pass, and answers in place of an error: a conversation never ends without a word. IsFallback recognizes such an
// answer. Each retry is a custom event {"type": "llm_retry", "attempt", "max_attempts", "wait_ms", "reason", "message"}. While a provider fails again and again, calls
// are refused for a while, in all runs of the agent. Set the model's own retries to 0.
func ModelErrors(o ModelErrorOptions) agent.Middleware {
	if o.now == nil {
		o.now = time.Now
	}
	if o.after == nil {
		o.after = time.After
	}
	if o.Recovery <= 0 {
		o.Recovery = time.Minute
	}
	b := newBreaker(o)
	return agent.Middleware{
		Name: "LLMErrorHandlingMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if !b.enter() {
				return note(ctx, instead(circuitText)), nil
			}
			passed := false
			defer func() { b.leave(passed) }()
			for try := 1; ; try++ {
				response, err := next(ctx, r)
				if err == nil {
					passed = true
					return note(ctx, response), nil
				}
				if ctx.Err() != nil || !ofModel(err) { // cancelled, an interrupt, or a mistake of ours
					passed = true // which says nothing of the provider
					return response, err
				}
				reason, again := judge(err)
				if !again {
					passed = reason != "transient"
					pregel.LogOf(ctx).Warn("the model failed; the run ends with an explanation", "error", err)
					return note(ctx, instead(explanation(reason, err))), nil
				}
				if try == modelTries {
					pregel.LogOf(ctx).Warn("the model failed; no tries left", "tries", try, "error", err)
					return note(ctx, instead(explanation(reason, err))), nil
				}
				wait := waitAfter(try, err)
				pregel.LogOf(ctx).Warn("the model failed; trying again", "try", try, "of", modelTries, "wait", wait, "error", err)
				_ = pregel.Emit(ctx, map[string]any{ // a run without custom events loses nothing
					"type": "llm_retry", "attempt": try, "max_attempts": modelTries, "wait_ms": wait.Milliseconds(), "reason": reason,
					"message": fmt.Sprintf("LLM request retry %d/%d: provider %s, trying again in %d s.", try, modelTries, reason, max(1, int(wait.Round(time.Second)/time.Second))),
				})
				select {
				case <-o.after(wait):
				case <-ctx.Done():
					return agent.ModelResponse{}, ctx.Err()
				}
			}
		},
	}
}

// IsFallback reports whether a message is an answer in place of an error of the model.
func IsFallback(m message.Message) bool {
	return m.Type == message.TypeAI && gjson.GetBytes(m.AdditionalKwargs, fallbackKey).Bool()
}

const fallbackKey = "deerflow_error_fallback"

type fallbackContext struct{}

// WithFallback returns a context for a run of an agent with ModelErrors, and a function that returns the answer in place of an error of the model with which the run
// ended; "" when the model answered in the end. Such a run did not succeed, although it has an answer.
func WithFallback(ctx context.Context) (context.Context, func() string) {
	text := &atomic.Pointer[string]{}
	return context.WithValue(ctx, fallbackContext{}, text), func() string {
		if t := text.Load(); t != nil {
			return *t
		}
		return ""
	}
}

// note records for WithFallback how a call of the model ended.
func note(ctx context.Context, r agent.ModelResponse) agent.ModelResponse {
	if to, ok := ctx.Value(fallbackContext{}).(*atomic.Pointer[string]); ok {
		text := ""
		if len(r.Messages) > 0 && IsFallback(r.Messages[0]) {
			text = r.Messages[0].Text()
		}
		to.Store(&text)
	}
	return r
}

// instead is an answer in place of an error.
func instead(text string) agent.ModelResponse {
	m := message.AI(text)
	extra := &jsonobj.Object{}
	extra.Set(fallbackKey, []byte("true"))
	m.AdditionalKwargs = extra.JSON()
	return agent.ModelResponse{Messages: []message.Message{m}}
}

// ofModel reports whether an error came from a call of a model.
func ofModel(err error) bool {
	var call *llm.CallError
	var said *llm.Error
	return errors.As(err, &call) || errors.As(err, &said) || errors.Is(err, llm.ErrUnreached) || errors.Is(err, llm.ErrCut) || errors.Is(err, llm.ErrIdle) ||
		errors.Is(err, llm.ErrSlow) || errors.Is(err, llm.ErrNone)
}

// Words of providers, in lower case.
var (
	quotaWords = []string{"insufficient_quota", "quota", "billing", "credit", "payment", "余额不足", "超出限额", "额度不足", "欠费"}
	authWords  = []string{"authentication", "unauthorized", "invalid api key", "invalid_api_key", "permission", "forbidden", "access denied", "无权", "未授权"}
	busyWords  = []string{
		"server busy", "temporarily unavailable", "try again later", "please retry", "overloaded", "high demand", "rate limit", "too many requests", "服务繁忙", "负载较高", "稍后重试",
	}
)

// judge returns what kind of error it is: quota, auth, busy, transient or generic, and whether the call is worth repeating.
func judge(err error) (reason string, again bool) {
	text := strings.ToLower(err.Error())
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	status := 0
	var said *llm.Error
	if errors.As(err, &said) {
		status = said.Status
	}
	switch {
	case has(quotaWords) || status == http.StatusPaymentRequired:
		return "quota", false
	case has(authWords) || status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "auth", false
	case has(busyWords):
		return "busy", true
	case said == nil || said.Temporary():
		return "transient", true // a connection that broke, a timeout
	}
	return "generic", false
}

func explanation(reason string, err error) string {
	switch reason {
	case "quota":
		return quotaText
	case "auth":
		return authText
	case "busy", "transient":
		return busyText
	}
	detail := err.Error()
	var said *llm.Error
	if errors.As(err, &said) && said.Message != "" {
		detail = said.Message // without advice for the person who configured the model
	}
	return "LLM request failed: " + detail
}

// waitAfter returns how long to wait before the next try.
func waitAfter(try int, err error) time.Duration {
	var said *llm.Error
	if errors.As(err, &said) && said.RetryAfter > 0 {
		return min(said.RetryAfter, llm.MaxWait)
	}
	return min(firstWait<<(try-1), maxWait)
}

// breaker refuses calls of a provider that failed several times in a row, until one probe succeeds. It is safe for concurrent use.
type breaker struct {
	most int           // failures in a row; 0: never
	rest time.Duration // until a probe
	now  func() time.Time

	mu      sync.Mutex
	failed  int
	until   time.Time
	probing bool
}

func newBreaker(o ModelErrorOptions) *breaker {
	return &breaker{most: o.Failures, rest: o.Recovery, now: o.now}
}

// enter reports whether a call may be made. leave follows each call that may.
func (b *breaker) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most <= 0 || b.failed < b.most {
		return true
	}
	if b.probing || b.now().Before(b.until) {
		return false
	}
	b.probing = true
	return true
}

func (b *breaker) leave(passed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if passed {
		b.failed = 0
		return
	}
	b.failed++
	b.until = b.now().Add(b.rest)
}
