package lead

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/internal/fault"
)

// guards are what protects a run, and those of its subagents, from models and tools that fail or go too far. They are made once: agents share the circuit breaker.
func (g *Graph) guards(s *settings.Settings) ([]agent.Middleware, error) {
	list := []agent.Middleware{middleware.ModelErrors(middleware.ModelErrorOptions{
		Failures: s.CircuitBreaker.Failures, Recovery: time.Duration(s.CircuitBreaker.Recovery * float64(time.Second)),
	})}
	if err := s.Guardrails.Check(); err != nil {
		return nil, mistake("%w", err)
	}
	if s.Guardrails.Enabled {
		guard, err := guardOf(s.Guardrails)
		if err != nil {
			return nil, err
		}
		m, err := middleware.Guardrails(middleware.GuardrailOptions{Guard: guard, Passport: s.Guardrails.Passport, FailOpen: !s.Guardrails.FailClosed})
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	if s.ToolOutput.Enabled {
		o := middleware.ToolOutputOptions{Limit: s.ToolOutput.Limit, Head: s.ToolOutput.Head, Tail: s.ToolOutput.Tail, Exempt: s.ToolOutput.Exempt}
		if g.o.Tools.Sandbox != nil {
			o.Exempt = append(slices.Clone(o.Exempt), "read_file") // it bounds its results itself; cut here, the model would count as knowing the rest
			o.Save = func(ctx context.Context, name, call, text string) (string, error) {
				return keep(ctx, g.newToolbox(s).open, name, call, text)
			}
		}
		m, err := middleware.ToolOutput(o)
		if err != nil {
			return nil, mistake("%w", err)
		}
		list = append(list, m)
	}
	if s.ToolResultSanitization.Enabled {
		list = append(list, middleware.ToolResultSanitization())
	}
	list = append(list, middleware.ToolErrors())
	if s.ReadBeforeWrite.Enabled && g.o.Tools.Sandbox != nil {
		list = append(list, readBeforeWrite(g.newToolbox(s).open))
	}
	if p := s.ToolProgress; p.Enabled {
		m, err := middleware.ToolProgress(middleware.ProgressOptions{Warn: p.Warn, Block: p.Block, Quiet: !p.Inject, Similar: p.Similar, Words: p.Words, Exempt: p.Exempt})
		if err != nil {
			return nil, mistake("%w", err)
		}
		list = append(list, m)
	}
	return list, nil
}

// guardOf returns the guard that the settings name. One that is not known here is a mistake: without it calls would be made that it denies.
func guardOf(s settings.Guardrails) (middleware.Guard, error) {
	c := s.Provider.Config
	list := middleware.ToolList{Allowed: c.Allowed, Denied: c.Denied}
	name := s.Provider.Use[strings.LastIndexByte(s.Provider.Use, ':')+1:]
	switch {
	case c.URL != "":
		remote := middleware.RemoteGuard{URL: c.URL, Headers: c.Headers, Timeout: time.Duration(c.Timeout * float64(time.Second))}
		if err := remote.Check(); err != nil { // its text has the address, which may have a password
			return nil, fault.Wrap(fault.Unavailable, "config.yaml: guardrails.provider.config.url is not the address of a service", err)
		}
		return listed{list, remote}, nil
	case name == "AllowlistProvider", name == "DenylistProvider":
		return list, nil
	}
	return nil, mistake("guardrails.provider.use: %q is not known here; use deerflow.guardrails.builtin:AllowlistProvider, or set config.url to a service that decides", s.Provider.Use)
}

// listed asks a guard about calls that a list allows.
type listed struct {
	list  middleware.ToolList
	guard middleware.Guard
}

// Evaluate implements middleware.Guard.
func (l listed) Evaluate(ctx context.Context, r middleware.GuardRequest) (middleware.GuardDecision, error) {
	if d, err := l.list.Evaluate(ctx, r); err != nil || !d.Allow {
		return d, err
	}
	return l.guard.Evaluate(ctx, r)
}

// keep writes a large result of a tool to a file that the agent can read.
func keep(ctx context.Context, open func(context.Context) (tool.Sandbox, error), name, call, text string) (string, error) {
	box, err := open(ctx)
	if err != nil {
		return "", err
	}
	defer box.Close()
	sum := sha256.Sum256([]byte(call + "\x00" + text))
	clean := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, sandbox.Head(name, 64))
	path := sandbox.Outputs + "/.tool-results/" + clean + "-" + hex.EncodeToString(sum[:12]) + ".txt"
	return path, box.Write(path, text, false)
}

// loops ends runs whose model repeats itself.
func loops(s settings.LoopDetection) agent.Middleware {
	o := middleware.LoopOptions{Warn: s.Warn, Hard: s.Hard, Calls: middleware.Frequency{Warn: s.FreqWarn, Hard: s.FreqHard}, Tools: map[string]middleware.Frequency{}}
	for name, f := range s.Tools {
		o.Tools[name] = middleware.Frequency(f)
	}
	return middleware.Loops(o)
}

// endings keeps calls of answers from being made that a provider stopped. They are last in a chain, where they see answers first.
func endings(s settings.SafetyFinishReason) ([]agent.Middleware, error) {
	list := []agent.Middleware{middleware.ModelLength()}
	if !s.Enabled {
		return list, nil
	}
	if s.Detectors != nil && len(s.Detectors) == 0 {
		return nil, mistake("safety_finish_reason.detectors is empty; leave it out for the built-in ones, or set enabled to false")
	}
	known := middleware.SafetyDetectors()
	byClass := map[string]middleware.Detector{"OpenAICompatibleContentFilterDetector": known[0], "AnthropicRefusalDetector": known[1], "GeminiSafetyDetector": known[2]}
	var detectors []middleware.Detector
	for i, c := range s.Detectors {
		d, ok := byClass[c.Use[strings.LastIndexByte(c.Use, ':')+1:]]
		if !ok {
			return nil, mistake("safety_finish_reason.detectors[%d].use: %q is not known here; use OpenAICompatibleContentFilterDetector, AnthropicRefusalDetector or GeminiSafetyDetector, with values of your provider in config", i, c.Use)
		}
		reasons, other, key := c.Config.FinishReasons, c.Config.StopReasons, "finish_reasons"
		if d.Field == "stop_reason" {
			reasons, other, key = other, reasons, "stop_reasons"
		}
		if len(other) > 0 {
			return nil, mistake("safety_finish_reason.detectors[%d].config: this detector has %s only", i, key)
		}
		if reasons != nil {
			d.Reasons = reasons
		}
		detectors = append(detectors, d)
	}
	return append(list, middleware.SafetyFinishReason(detectors...)), nil
}

// tokenBudget ends runs that use too many tokens.
func tokenBudget(s settings.TokenBudget) (agent.Middleware, error) {
	m, err := middleware.TokenBudget(middleware.BudgetOptions{Total: s.Total, Input: s.Input, Output: s.Output, Warn: s.Warn, Stop: s.Stop})
	if err != nil {
		return m, mistake("%w", err)
	}
	return m, nil
}
