// Package llm is what the agent adds to langchaingo's llms.Model: answers in exact chunks.
//
// A model that implements ChunkStreamer yields all parts of the provider's stream: text, deltas of tool calls by index, reasoning,
// usage, refusal, the reason it stopped. Stream returns the same view of any llms.Model, as far as langchaingo supports it: text as it
// comes, the rest when the answer is complete.
package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"
)

// Chunk is a piece of an answer. A field that is empty adds nothing.
type Chunk struct {
	Content string
	// Blocks are content as a list of blocks with an index, of providers that know such: an answer has either Content or Blocks. An
	// empty, non-nil list begins an answer that has Blocks.
	Blocks       []json.RawMessage
	Reasoning    string
	Refusal      string
	ToolCalls    []ToolCallDelta
	Usage        *Usage // of the whole answer; in one chunk at most, mostly the last
	FinishReason string // "stop", "tool_calls", "length", "content_filter"… in one chunk at most
	Model        string // as the provider names it
	Fingerprint  string // of the provider's system
	// Kwargs is an object that is added to the message's additional_kwargs.
	Kwargs json.RawMessage
	// Metadata is an object that is added to the message's response_metadata. Native reports that it has the finish reason in the
	// provider's own words, which replace FinishReason there.
	Metadata json.RawMessage
	Native   bool
}

// Empty reports whether a chunk has no part of the answer itself: it announces the model at most.
func (c *Chunk) Empty() bool {
	return c.Content == "" && len(c.Blocks) == 0 && c.Reasoning == "" && c.Refusal == "" && len(c.ToolCalls) == 0 && c.FinishReason == "" && c.Usage == nil &&
		c.Kwargs == nil && c.Metadata == nil
}

// ToolCallDelta is a piece of one tool call. ID and Name come once for each Index, mostly with its first piece.
type ToolCallDelta struct {
	Index     int // place of the call in the answer, from 0
	ID, Name  string
	Arguments string // piece of a JSON text
}

// Usage counts tokens.
type Usage struct {
	Input, Output, Total int
	CacheRead            int // part of Input
	Reasoning            int // part of Output
	// InputDetails and OutputDetails are objects of counts that replace the two above in messages; nil: none.
	InputDetails, OutputDetails json.RawMessage
}

// ChunkStreamer is an optional ability of an llms.Model. Its messages may hold a Part in place of a part of langchaingo; Plain
// removes them.
type ChunkStreamer interface {
	// StreamChunks yields an answer as it comes. An error ends it; without one the answer is complete. Nothing continues after the
	// iterator returned. When ctx ends, the error is its cause.
	StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[Chunk, error]
}

// Stream asks a model, in chunks if it knows them. For others text comes as it is streamed, and tool calls, usage and finish reason
// in a last chunk.
func Stream(ctx context.Context, m llms.Model, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[Chunk, error] {
	if s, ok := m.(ChunkStreamer); ok {
		return s.StreamChunks(ctx, messages, options...)
	}
	if err := unsendable(messages); err != nil {
		return func(yield func(Chunk, error) bool) { yield(Chunk{}, err) }
	}
	return func(yield func(Chunk, error) bool) { streamPlain(ctx, m, messages, options, yield) }
}

// leave is how long a model may take to notice that its answer is no longer awaited.
const leave = 5 * time.Second

// streamPlain is Stream of a model of langchaingo. Such a model calls back from the goroutine that called it or from others, which may
// live longer than the call and know nothing of ctx: pieces is never closed, and the wait for the model has a bound.
func streamPlain(ctx context.Context, m llms.Model, messages []llms.MessageContent, options []llms.CallOption, yield func(Chunk, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces := make(chan Chunk)
	send := func(c Chunk) error {
		select {
		case pieces <- c:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var streamed atomic.Bool
	options = append(options[:len(options):len(options)], llms.WithStreamingReasoningFunc(func(_ context.Context, reasoning, text []byte) error {
		if len(reasoning) == 0 {
			return nil // text comes by the other function
		}
		return send(Chunk{Reasoning: string(reasoning)})
	}), llms.WithStreamingFunc(func(_ context.Context, text []byte) error {
		streamed.Store(true)
		return send(Chunk{Content: string(text)})
	}))
	var response *llms.ContentResponse // it and err are set when done is closed
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("model panicked: %v", p)
			}
		}()
		response, err = m.GenerateContent(ctx, Plain(messages), options...)
	}()
	abandon := func() {
		cancel()
		select {
		case <-done:
		case <-time.After(leave):
		}
	}
	for running := true; running; {
		select {
		case c := <-pieces:
			if !yield(c, nil) {
				abandon()
				return
			}
		case <-done:
			running = false
		case <-ctx.Done():
			abandon()
			yield(Chunk{}, context.Cause(ctx))
			return
		}
	}
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		yield(Chunk{}, cause)
	case err != nil:
		yield(Chunk{}, err)
	default:
		yield(last(response, streamed.Load()), nil)
	}
}

// last returns the remaining parts when an answer is complete. Some models return each part as a choice of its own.
func last(r *llms.ContentResponse, streamed bool) Chunk {
	var c Chunk
	if r == nil {
		return c
	}
	for _, choice := range r.Choices {
		if choice == nil {
			continue
		}
		if !streamed {
			c.Content += choice.Content
			c.Reasoning += choice.ReasoningContent
		}
		for _, call := range choice.ToolCalls {
			if call.FunctionCall == nil {
				continue
			}
			i := len(c.ToolCalls)
			c.ToolCalls = append(c.ToolCalls, ToolCallDelta{Index: i, ID: call.ID, Name: call.FunctionCall.Name, Arguments: call.FunctionCall.Arguments})
		}
		if choice.StopReason != "" {
			c.FinishReason = choice.StopReason
		}
		if c.Usage == nil {
			c.Usage = usage(choice.GenerationInfo)
		}
	}
	return c
}

// usage reads the numbers that langchaingo's models report, each under names of its own.
func usage(info map[string]any) *Usage {
	number := func(names ...string) int {
		for _, name := range names {
			switch n := info[name].(type) {
			case int:
				return n
			case int32:
				return int(n)
			case int64:
				return int(n)
			case float64:
				return int(n)
			case string:
				i, _ := strconv.Atoi(n)
				return i
			}
		}
		return 0
	}
	u := &Usage{
		Input: number("PromptTokens", "InputTokens", "input_tokens"), Output: number("CompletionTokens", "OutputTokens", "output_tokens"),
		CacheRead: number("CacheReadInputTokens", "PromptCachedTokens"), Reasoning: number("ReasoningTokens", "CompletionReasoningTokens"),
	}
	if u.Total = number("TotalTokens", "total_tokens"); u.Total == 0 {
		u.Total = u.Input + u.Output
	}
	if u.Total == 0 {
		return nil
	}
	return u
}

// Answer gathers the chunks of an answer. It must not be copied.
type Answer struct {
	Content, Reasoning, Refusal      strings.Builder
	ToolCalls                        []*ToolCall // in order of their index
	Usage                            *Usage
	FinishReason, Model, Fingerprint string
}

// ToolCall is a call that is put together from its pieces.
type ToolCall struct {
	Index     int
	ID, Name  string
	Arguments strings.Builder
}

// Add puts a chunk behind what is there.
func (a *Answer) Add(c Chunk) {
	a.Content.WriteString(c.Content)
	for _, block := range c.Blocks {
		a.addBlock(block)
	}
	a.Reasoning.WriteString(c.Reasoning)
	a.Refusal.WriteString(c.Refusal)
	for _, d := range c.ToolCalls {
		i, found := slices.BinarySearchFunc(a.ToolCalls, d.Index, func(t *ToolCall, index int) int { return t.Index - index })
		if !found {
			a.ToolCalls = slices.Insert(a.ToolCalls, i, &ToolCall{Index: d.Index})
		}
		call := a.ToolCalls[i]
		call.ID += d.ID
		call.Name += d.Name
		call.Arguments.WriteString(d.Arguments)
	}
	if c.Usage != nil {
		a.Usage = c.Usage
	}
	a.FinishReason = cmp.Or(c.FinishReason, a.FinishReason)
	a.Model = cmp.Or(c.Model, a.Model)
	a.Fingerprint = cmp.Or(c.Fingerprint, a.Fingerprint)
}

func (a *Answer) addBlock(block json.RawMessage) {
	var kind string
	var summary, content gjson.Result
	gjson.ParseBytes(block).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "type":
			kind = value.Str
		case "text":
			a.Content.WriteString(value.String())
		case "thinking":
			a.Reasoning.WriteString(value.String())
		case "refusal":
			a.Refusal.WriteString(value.String())
		case "summary":
			summary = value
		case "content":
			content = value
		}
		return true
	})
	if kind != "reasoning" { // of OpenAI's Responses API; results of tools have a content, too
		return
	}
	for _, list := range []gjson.Result{summary, content} {
		for _, part := range list.Array() {
			a.Reasoning.WriteString(part.Get("text").String())
		}
	}
}

// Collect is GenerateContent for a model that streams: it passes text to the streaming functions of the options, if there are any.
func Collect(ctx context.Context, s ChunkStreamer, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	var a Answer
	for c, err := range s.StreamChunks(ctx, messages, options...) {
		if err != nil {
			return nil, err
		}
		a.Add(c)
		if opts.StreamingReasoningFunc != nil && c.Reasoning+c.Content != "" {
			if err := opts.StreamingReasoningFunc(ctx, []byte(c.Reasoning), []byte(c.Content)); err != nil {
				return nil, err
			}
		}
		if opts.StreamingFunc != nil && c.Content != "" {
			if err := opts.StreamingFunc(ctx, []byte(c.Content)); err != nil {
				return nil, err
			}
		}
	}
	return a.response(), nil
}

func (a *Answer) response() *llms.ContentResponse {
	choice := &llms.ContentChoice{Content: a.Content.String(), ReasoningContent: a.Reasoning.String(), StopReason: a.FinishReason, GenerationInfo: map[string]any{}}
	if u := a.Usage; u != nil {
		choice.GenerationInfo["PromptTokens"] = u.Input
		choice.GenerationInfo["CompletionTokens"] = u.Output
		choice.GenerationInfo["TotalTokens"] = u.Total
		choice.GenerationInfo["PromptCachedTokens"] = u.CacheRead
		choice.GenerationInfo["ReasoningTokens"] = u.Reasoning
	}
	if a.Refusal.Len() > 0 {
		choice.GenerationInfo["Refusal"] = a.Refusal.String()
	}
	for _, c := range a.ToolCalls {
		call := llms.ToolCall{ID: c.ID, Type: "function", FunctionCall: &llms.FunctionCall{Name: c.Name, Arguments: c.Arguments.String()}}
		choice.ToolCalls = append(choice.ToolCalls, call)
	}
	if len(choice.ToolCalls) > 0 {
		choice.FuncCall = choice.ToolCalls[0].FunctionCall
	}
	return &llms.ContentResponse{Choices: []*llms.ContentChoice{choice}}
}
