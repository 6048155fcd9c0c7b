package config

import (
	"math"
	"time"

	"understudy/graph/agent/middleware"
)

// guardrails reads {"allowed_tools"?, "denied_tools"?} or {"url", "headers"?, "timeout"?}, with "passport"? and "fail_closed"?.
func (f *file) guardrails(v value, key string) *AgentGuardrails {
	g := &AgentGuardrails{}
	closed := true
	f.section(v, key, map[string]func(value, string){
		"allowed_tools": f.setTexts(&g.List.Allowed, "search"),
		"denied_tools":  f.setTexts(&g.List.Denied, "search"),
		"url":           f.setFilled(&g.Service.URL, "https://guard.example.com/evaluate"),
		"headers":       func(v value, key string) { f.headers(&g.Service.Headers, v, key) },
		"timeout":       f.setDuration(&g.Service.Timeout, time.Hour),
		"passport":      f.setFilled(&g.Passport, "my-agent"),
		"fail_closed":   f.setBool(&closed),
	})
	if _, isObject := v.data.([]member); !isObject {
		return g
	}
	lists := g.List.Allowed != nil || g.List.Denied != nil
	switch {
	case g.Service.URL == "" && !lists:
		f.wrong(v, key, `says nothing of what is allowed; write {"denied_tools": ["search"]}, "allowed_tools", or the "url" of a service`)
	case g.Service.URL != "" && lists:
		f.wrong(v, key, "has lists and a url; keep one")
	case g.Service.URL != "" && g.Service.Check() != nil:
		f.wrong(v, join(key, "url"), "is not the address of a service; write https://…")
	}
	g.FailOpen = !closed
	return g
}

func (f *file) toolOutput(v value, key string) *middleware.ToolOutputOptions {
	o := &middleware.ToolOutputOptions{}
	f.switched(v, key, map[string]func(value, string){
		"limit":  f.setInt(&o.Limit, 1, maxTokens),
		"head":   f.setInt(&o.Head, 1, maxTokens),
		"tail":   f.setInt(&o.Tail, 1, maxTokens),
		"exempt": f.setTexts(&o.Exempt, "search"),
	})
	if _, err := middleware.ToolOutput(*o); err != nil {
		f.wrong(v, key, "head and tail must fit into limit")
	}
	return o
}

// loops reads true, or {"warn"?, "stop"?, "calls"?, "tools"?}.
func (f *file) loops(v value, key string) *middleware.LoopOptions {
	o := &middleware.LoopOptions{Warn: 3, Hard: 5, Calls: middleware.Frequency{Warn: 30, Hard: 50}}
	often := func(to *middleware.Frequency) func(value, string) {
		return func(v value, key string) {
			f.section(v, key, map[string]func(value, string){"warn": f.setInt(&to.Warn, 0, maxTokens), "stop": f.setInt(&to.Hard, 0, maxTokens)})
			f.warnFirst(*to, v, key)
		}
	}
	f.switched(v, key, map[string]func(value, string){
		"warn":  f.setInt(&o.Warn, 0, maxTokens),
		"stop":  f.setInt(&o.Hard, 0, maxTokens),
		"calls": often(&o.Calls),
		"tools": func(v value, key string) {
			members, ok := v.data.([]member)
			if !ok {
				f.wrong(v, key, `is %s; write an object: {"search": {"warn": 10, "stop": 20}}`, v.kind())
			}
			o.Tools = map[string]middleware.Frequency{}
			for _, m := range members {
				limit := o.Calls
				often(&limit)(m.value, join(key, m.key))
				o.Tools[m.key] = limit
			}
		},
	})
	f.warnFirst(middleware.Frequency{Warn: o.Warn, Hard: o.Hard}, v, key)
	return o
}

// budget reads true, or {"total"?, "input"?, "output"?, "warn"?, "stop"?}.
func (f *file) budget(v value, key string) *middleware.BudgetOptions {
	o := &middleware.BudgetOptions{Warn: 0.8, Stop: 1}
	limit := func(to *int64) func(value, string) {
		return func(v value, key string) { *to = int64(f.integer(v, key, 1, maxTokens)) }
	}
	f.switched(v, key, map[string]func(value, string){
		"total": limit(&o.Total), "input": limit(&o.Input), "output": limit(&o.Output),
		"warn": func(v value, key string) { o.Warn = f.number(v, key, 0, 1) },
		"stop": func(v value, key string) { o.Stop = f.number(v, key, math.SmallestNonzeroFloat64, 1) },
	})
	if o.Total == 0 && o.Input == 0 && o.Output == 0 {
		o.Total = 200_000
	}
	if o.Warn > o.Stop {
		f.wrong(v, key, "warns at %v of a limit, but stops at %v; warn earlier", o.Warn, o.Stop)
	}
	return o
}

// progress reads true, or {"warn"?, "block"?, "quiet"?, "similar"?, "words"?, "exempt"?}.
func (f *file) progress(v value, key string) *middleware.ProgressOptions {
	o := &middleware.ProgressOptions{Warn: 3, Block: 2, Similar: 0.8, Words: 10}
	f.switched(v, key, map[string]func(value, string){
		"warn":    f.setInt(&o.Warn, 1, 1000),
		"block":   f.setInt(&o.Block, 1, 1000),
		"quiet":   f.setBool(&o.Quiet),
		"similar": func(v value, key string) { o.Similar = f.number(v, key, 0, 1) },
		"words":   f.setInt(&o.Words, 0, 1_000_000),
		"exempt":  f.setTexts(&o.Exempt, "search"),
	})
	return o
}

// warnFirst refuses a warning that would never come.
func (f *file) warnFirst(l middleware.Frequency, v value, key string) {
	if l.Hard > 0 && l.Warn > l.Hard {
		f.wrong(v, key, "warns after %d, but stops at %d; warn earlier", l.Warn, l.Hard)
	}
}
