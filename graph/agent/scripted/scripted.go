// Package scripted is a chat model without a model: its answers depend on a script and on the messages, so demos and tests need no key
// and no network, and are reproducible.
//
// An answer with When is used when its pattern matches the last message; the first match wins. Otherwise answers without When are used
// in order, by the number of answers that the conversation has already; the last one repeats. A Model has no state between calls: any
// number of conversations may run at once.
package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/internal/typo"
)

// Script is what a model says.
type Script struct {
	Answers []Answer `json:"answers"`
	Model   string   `json:"model"` // the name that answers bear; "" is "scripted"
	Delay   Duration `json:"delay"` // before each chunk
	Chunk   Chunk    `json:"chunk"` // "" is by word
}

// Answer is one thing that a model says. Content, Words, Reasoning and Args may name what When found: $1, ${name}.
type Answer struct {
	When      string     `json:"when"` // regular expression for the text of the last message
	From      string     `json:"from"` // "human" or "tool": only when the last message is such a one
	Content   string     `json:"content"`
	Words     string     `json:"words"` // in place of Content: so many words, w0 w1 w2…
	Reasoning string     `json:"reasoning"`
	ToolCalls []ToolCall `json:"tool_calls"` // the answer stands aside when a tool is not on offer
	Error     string     `json:"error"`      // the model fails with this text, after what else the answer holds
	Delay     Duration   `json:"delay"`      // 0: that of the script
	Chunk     Chunk      `json:"chunk"`      // "": that of the script
	// Finish is why the answer ends: length, content_filter, …; "": tool_calls or stop, as it is.
	Finish string `json:"finish_reason"`

	pattern *regexp.Regexp
}

// ToolCall is a call in an answer.
type ToolCall struct {
	Name string `json:"name"`
	ID   string `json:"id"` // "" is call_<number of the answer in the conversation>_<place in the answer>
	// Args is an object, or a text that becomes one when it is expanded; "" is {}.
	Args json.RawMessage `json:"args"`
}

// Chunk says how text is cut: "word", "rune", "whole", or a number of characters.
type Chunk string

// Duration is a time.Duration that JSON writes as "30ms".
type Duration time.Duration

// UnmarshalText reads "30ms".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 || v > time.Hour {
		return fmt.Errorf(`%q is no delay; write such as "30ms"`, text)
	}
	*d = Duration(v)
	return nil
}

// maxWords of one answer.
const maxWords = 1_000_000

// Model speaks a script. It is safe for concurrent use.
type Model struct{ script Script }

var (
	_ llms.Model        = (*Model)(nil)
	_ llm.ChunkStreamer = (*Model)(nil)
)

// Parse reads a script from JSON: an object as Script has it, or a list of answers alone.
func Parse(raw []byte) (*Model, error) {
	var s Script
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var into any = &s
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		into = &s.Answers
	}
	if err := dec.Decode(into); err != nil {
		return nil, fmt.Errorf("script: %w%s", err, known(err))
	}
	if dec.More() {
		return nil, errors.New("script: there is more after the end")
	}
	return New(s)
}

// known names the fields that a script may have where it has an unknown one, or the one that was meant; "" after another error.
func known(err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !unknown {
		return ""
	}
	name = strings.Trim(name, `"`)
	var all []string
	text := ""
	for _, of := range []struct {
		what string
		t    reflect.Type
	}{{"a script has", reflect.TypeFor[Script]()}, {"an answer", reflect.TypeFor[Answer]()}, {"a call", reflect.TypeFor[ToolCall]()}} {
		var names []string
		for f := range of.t.Fields() {
			if tag := f.Tag.Get("json"); tag != "" {
				names = append(names, tag)
			}
		}
		all = append(all, names...)
		text += "; " + of.what + " " + strings.Join(names, ", ")
	}
	if meant := typo.Meant(name, all); meant != "" {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	return text
}

// New checks a script.
func New(s Script) (*Model, error) {
	s.Answers = slices.Clone(s.Answers)
	if s.Model == "" {
		s.Model = "scripted"
	}
	if len(s.Answers) == 0 {
		return nil, errors.New("script: has no answers")
	}
	if err := s.Chunk.check(); err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	for i := range s.Answers {
		if err := s.Answers[i].prepare(); err != nil {
			return nil, fmt.Errorf("script: answer %d: %w", i, err)
		}
	}
	return &Model{script: s}, nil
}

func (a *Answer) prepare() (err error) {
	if a.When != "" {
		if a.pattern, err = regexp.Compile(a.When); err != nil {
			return fmt.Errorf("when: %w", err)
		}
	}
	if a.From != "" && a.From != "human" && a.From != "tool" {
		return fmt.Errorf(`from: %q; write "human" or "tool"`, a.From)
	}
	if a.Words != "" && a.Content != "" {
		return errors.New("has content and words; one of them")
	}
	if a.Words != "" && a.pattern == nil {
		if _, err := countWords(a.Words); err != nil {
			return err
		}
	}
	for _, c := range a.ToolCalls {
		if c.Name == "" {
			return errors.New("a tool call has no name")
		}
		if _, err := c.args(func(s string) string { return s }); err != nil && a.pattern == nil {
			return err
		}
	}
	return a.Chunk.check()
}

func countWords(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxWords {
		return 0, fmt.Errorf("words: %q is no number up to %d", text, maxWords)
	}
	return n, nil
}

// args returns the arguments as a JSON object.
func (c ToolCall) args(expand func(string) string) (string, error) {
	raw := bytes.TrimSpace(c.Args)
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "{}", nil
	case raw[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", err
		}
		text = expand(text)
		if text == "" {
			return "{}", nil
		}
	default:
		// Within strings of an object what was found needs its quotes escaped.
		text = expandStrings(string(raw), expand)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return "", fmt.Errorf("args of %s: %q is not a JSON object", c.Name, text)
	}
	return text, nil
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func expandStrings(raw string, expand func(string) string) string {
	return jsonString.ReplaceAllStringFunc(raw, func(quoted string) string {
		var s string
		if !strings.Contains(quoted, "$") || json.Unmarshal([]byte(quoted), &s) != nil {
			return quoted
		}
		out, _ := json.Marshal(expand(s))
		return string(out)
	})
}

func (c Chunk) check() error {
	switch c {
	case "", "word", "rune", "whole":
		return nil
	}
	if n, err := strconv.Atoi(string(c)); err != nil || n < 1 {
		return fmt.Errorf(`chunk: %q; write "word", "rune", "whole" or a number of characters`, string(c))
	}
	return nil
}

// cut yields the pieces of a text. Words keep the space before them.
func (c Chunk) cut(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		n := 1
		switch c {
		case "", "word":
			for text != "" {
				end := strings.IndexByte(text[1:], ' ') + 1
				if end == 0 {
					end = len(text)
				}
				if !yield(text[:end]) {
					return
				}
				text = text[end:]
			}
			return
		case "whole":
			n = len(text)
		case "rune":
		default:
			n, _ = strconv.Atoi(string(c))
		}
		for text != "" {
			end := 0
			for i := 0; i < n && end < len(text); i++ {
				_, size := utf8.DecodeRuneInString(text[end:])
				end += size
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// Call answers a single prompt.
func (m *Model) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, m, prompt, options...)
}

// GenerateContent returns a whole answer.
func (m *Model) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	return llm.Collect(ctx, m, messages, options...)
}

// Error is what an answer with Error fails with.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// StreamChunks returns an answer in chunks: reasoning, text, tool calls, and last a chunk with usage and finish reason. A message counts
// as one token of input, a chunk as one of output.
func (m *Model) StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	messages = llm.Plain(messages)
	return func(yield func(llm.Chunk, error) bool) {
		a, err := m.answer(messages, options)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		output := 0
		send := func(c llm.Chunk) bool {
			if err := wait(ctx, a.delay); err != nil {
				yield(llm.Chunk{}, err)
				return false
			}
			output++
			return yield(c, nil)
		}
		for piece := range a.chunk.cut(a.reasoning) {
			if !send(llm.Chunk{Reasoning: piece}) {
				return
			}
		}
		for piece := range a.chunk.cut(a.content) {
			if !send(llm.Chunk{Content: piece}) {
				return
			}
		}
		for _, call := range a.calls {
			if !send(llm.Chunk{ToolCalls: []llm.ToolCallDelta{call}}) {
				return
			}
		}
		if a.failure != "" {
			yield(llm.Chunk{}, &Error{a.failure})
			return
		}
		reason := "stop"
		if len(a.calls) > 0 {
			reason = "tool_calls"
		}
		if a.finish != "" {
			reason = a.finish
		}
		usage := &llm.Usage{Input: len(messages), Output: output, Total: len(messages) + output}
		send(llm.Chunk{Usage: usage, FinishReason: reason, Model: m.script.Model})
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer is what is said, expanded.
type answer struct {
	reasoning, content, failure string
	finish                      string
	calls                       []llm.ToolCallDelta
	delay                       time.Duration
	chunk                       Chunk
}

func (m *Model) answer(messages []llms.MessageContent, options []llms.CallOption) (*answer, error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	prompt, from, given := last(messages)
	var inOrder []*Answer
	for i := range m.script.Answers {
		a := &m.script.Answers[i]
		if a.From != "" && a.From != from || !offered(a.ToolCalls, opts.Tools) {
			continue
		}
		if a.pattern == nil {
			inOrder = append(inOrder, a)
			continue
		}
		if match := a.pattern.FindStringSubmatchIndex(prompt); match != nil {
			return m.expand(a, given, func(s string) string { return string(a.pattern.ExpandString(nil, s, prompt, match)) })
		}
	}
	if len(inOrder) == 0 {
		return nil, &Error{fmt.Sprintf("the script has no answer to %.200q", prompt)}
	}
	return m.expand(inOrder[min(given, len(inOrder)-1)], given, func(s string) string { return s })
}

// last returns the text of the last message, whose it is, and how many answers the conversation has.
func last(messages []llms.MessageContent) (prompt, from string, given int) {
	for _, msg := range messages {
		if msg.Role == llms.ChatMessageTypeAI {
			given++
		}
	}
	if len(messages) == 0 {
		return "", "", 0
	}
	msg := messages[len(messages)-1]
	switch msg.Role {
	case llms.ChatMessageTypeHuman:
		from = "human"
	case llms.ChatMessageTypeTool:
		from = "tool"
	}
	for _, p := range msg.Parts {
		switch p := p.(type) {
		case llms.TextContent:
			prompt += unmarked.Replace(p.Text)
		case llms.ToolCallResponse:
			prompt = p.Content // the last of several
		}
	}
	return prompt, from, given
}

// unmarked removes the marks around what people write: scripts match their words.
var unmarked = strings.NewReplacer(llm.InputBegin, "", llm.InputEnd, "")

func offered(calls []ToolCall, tools []llms.Tool) bool {
	for _, c := range calls {
		if !slices.ContainsFunc(tools, func(t llms.Tool) bool { return t.Function != nil && t.Function.Name == c.Name }) {
			return false
		}
	}
	return true
}

func (m *Model) expand(a *Answer, given int, expand func(string) string) (*answer, error) {
	out := &answer{
		reasoning: expand(a.Reasoning), content: expand(a.Content), failure: expand(a.Error), finish: a.Finish,
		delay: time.Duration(a.Delay), chunk: a.Chunk,
	}
	if out.delay == 0 {
		out.delay = time.Duration(m.script.Delay)
	}
	if out.chunk == "" {
		out.chunk = m.script.Chunk
	}
	if a.Words != "" {
		n, err := countWords(expand(a.Words))
		if err != nil {
			return nil, &Error{err.Error()}
		}
		out.content = words(n)
	}
	for i, c := range a.ToolCalls {
		args, err := c.args(expand)
		if err != nil {
			return nil, &Error{err.Error()}
		}
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", given, i)
		}
		out.calls = append(out.calls, llm.ToolCallDelta{Index: i, ID: id, Name: c.Name, Arguments: args})
	}
	return out, nil
}

func words(n int) string {
	b := make([]byte, 0, n*6)
	for i := range n {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(append(b, 'w'), int64(i), 10)
	}
	return string(b)
}
