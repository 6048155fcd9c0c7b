package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Guard decides whether a tool may be called. It is safe for concurrent use: the calls of an answer are judged at the same time.
type Guard interface {
	Evaluate(ctx context.Context, r GuardRequest) (GuardDecision, error)
}

// GuardRequest is a call before it is made.
type GuardRequest struct {
	Tool  string          `json:"tool_name"`
	Input json.RawMessage `json:"tool_input"` // object
	Agent string          `json:"agent_id"`   // the passport of GuardrailOptions
	Time  time.Time       `json:"timestamp"`
}

// GuardDecision is what a guard says.
type GuardDecision struct {
	Allow   bool          `json:"allow"`
	Reasons []GuardReason `json:"reasons"`
	Policy  string        `json:"policy_id"` // for the log
}

// GuardReason says why: a code for programs, such as oap.tool_not_allowed, and a text for the model.
type GuardReason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// GuardrailOptions control Guardrails.
type GuardrailOptions struct {
	Guard    Guard
	Passport string // by which the guard knows the agent
	FailOpen bool   // calls are made when the guard fails; otherwise they are denied
}

// Guardrails asks a guard before each call of a tool. A call that is denied gets an error as its result, from which the model continues.
func Guardrails(o GuardrailOptions) (agent.Middleware, error) {
	if o.Guard == nil {
		return agent.Middleware{}, errors.New("guardrails: no guard decides; write allowed_tools, denied_tools, or the url of one")
	}
	return agent.Middleware{
		Name: "GuardrailMiddleware",
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			input := r.Call.Args
			if len(input) == 0 {
				input = json.RawMessage("{}")
			}
			log := pregel.LogOf(ctx).With("tool", r.Call.Name)
			d, err := o.Guard.Evaluate(ctx, GuardRequest{Tool: r.Call.Name, Input: input, Agent: o.Passport, Time: time.Now().UTC()})
			switch {
			case err != nil && ctx.Err() != nil:
				return agent.ToolResult{}, context.Cause(ctx)
			case err != nil && o.FailOpen:
				log.Warn("the guardrail failed; the tool is called because fail_closed is off", "error", err)
				return next(ctx, r)
			case err != nil:
				log.Error("the guardrail failed; the tool call is denied", "error", err)
				d = GuardDecision{Reasons: []GuardReason{{"oap.evaluator_error", "guardrail provider error (fail-closed)"}}}
			case d.Allow:
				return next(ctx, r)
			}
			why := GuardReason{"oap.denied", "blocked by guardrail policy"}
			if len(d.Reasons) > 0 {
				why = d.Reasons[0]
			}
			log.Warn("tool call denied by the guardrail", "code", why.Code, "reason", why.Message, "policy", d.Policy)
			m := message.Tool(fmt.Sprintf("Guardrail denied: tool '%s' was blocked (%s). Reason: %s. Choose an alternative approach.", r.Call.Name, why.Code, why.Message), r.Call.ID).WithName(r.Call.Name)
			m.Status = message.StatusError
			return agent.ToolResult{Message: &m}, nil
		},
	}, nil
}

// ToolList is a guard with lists: a tool that is denied, or missing in a list of allowed ones, is not called.
type ToolList struct {
	Allowed []string // nil: all
	Denied  []string
}

var _ Guard = ToolList{}

// Evaluate implements Guard.
func (l ToolList) Evaluate(_ context.Context, r GuardRequest) (GuardDecision, error) {
	switch {
	case slices.Contains(l.Denied, r.Tool):
		return GuardDecision{Reasons: []GuardReason{{"oap.tool_not_allowed", fmt.Sprintf("tool '%s' is in deny list", r.Tool)}}}, nil
	case l.Allowed != nil && !slices.Contains(l.Allowed, r.Tool):
		return GuardDecision{Reasons: []GuardReason{{"oap.tool_not_allowed", fmt.Sprintf("tool '%s' not in allowlist", r.Tool)}}}, nil
	}
	return GuardDecision{Allow: true, Reasons: []GuardReason{{Code: "oap.allowed"}}}, nil
}

// RemoteGuard asks a service: each GuardRequest is posted to URL as JSON, and the answer is a GuardDecision.
type RemoteGuard struct {
	URL     string
	Headers map[string]string
	Timeout time.Duration // 0: 10 s
	Client  *http.Client  // nil: http.DefaultClient
}

var _ Guard = RemoteGuard{}

// Check returns the mistake of the settings.
func (g RemoteGuard) Check() error {
	u, err := url.Parse(g.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("guardrails: %q is not the address of a service; write https://…", g.URL)
	}
	return nil
}

// maxDecision bounds the answer of a guard, in bytes.
const maxDecision = 1 << 20

// Evaluate implements Guard.
func (g RemoteGuard) Evaluate(ctx context.Context, r GuardRequest) (d GuardDecision, err error) {
	timeout := g.Timeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return d, fmt.Errorf("encode a tool call: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, bytes.NewReader(body))
	if err != nil {
		return d, fmt.Errorf("ask the guardrail: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range g.Headers {
		request.Header.Set(name, value)
	}
	client := g.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return d, fmt.Errorf("ask the guardrail: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDecision))
	if err != nil {
		return d, fmt.Errorf("read the answer of the guardrail: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return d, fmt.Errorf("the guardrail answers %s", response.Status)
	}
	var v struct {
		GuardDecision
		Allow *bool `json:"allow"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.Allow == nil {
		return d, errors.New(`the guardrail's answer has no decision, {"allow": true or false}: ` + strings.ToValidUTF8(string(text[:min(len(text), 200)]), ""))
	}
	v.GuardDecision.Allow = *v.Allow
	return v.GuardDecision, nil
}
