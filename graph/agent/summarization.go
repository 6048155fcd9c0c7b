package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Size is an amount of conversation. As a trigger, all fields that are set must be reached; for Keep, set one field.
type Size struct {
	Messages int
	Tokens   int
	Fraction float64 // of the model's input size; 0 < f ≤ 1
}

// SummarizationOptions control when and how a conversation is condensed.
type SummarizationOptions struct {
	Model   Model  // that writes the summary
	Trigger []Size // any of them
	Keep    Size   // the unchanged rest; zero: 20 messages
	Prompt  string // contains {messages}; "": a default
	// MaxTokens limits the messages that the summary is written from, counted from the end; 0: 4000, negative: all.
	MaxTokens int
	// Quiet suppresses the events.
	Quiet bool
	// Replaced is called in a run with the messages that a summary is about to take the place of. It does not block. nil: no calls.
	Replaced func(ctx context.Context, messages []message.Message)
	// Rescue returns those of the messages to condense that stay as they are, in order: calls with all of their results. nil: none stay.
	Rescue func(messages []message.Message) []message.Message
	// TextKey is a key of the state that holds the text of the newest summary; "": none. Its channel is the caller's.
	TextKey string
	Tags    []string     // of calls of the model
	Log     *slog.Logger // nil: slog.Default
}

const summaryPrompt = `You keep the memory of an assistant. The conversation below has become too long; what you write takes its place, and the
assistant continues with nothing else. Write down what it needs:

## Goal
What the person wants, in one or two sentences.

## So far
Decisions and why they were taken, facts that were found, what was tried and did not work. Names, numbers, paths and quotes exactly.

## Open
What remains to be done, and what comes next.

Write "none" under a heading that has nothing. Answer with the text alone.

<messages>
{messages}
</messages>`

// Summarization condenses the older part of a conversation before it becomes too long for the model. It never separates a tool call
// from its result. The state then begins with a human message, marked by additional_kwargs.lc_source "summarization", which holds
// the summary; a `custom` event {"type": "summarization", "summary", "replaced_count"} contains the number of messages that it
// replaces. When there is no summary, because the model failed or what it wrote is empty or cut off, the conversation stays as it is, and the
// event is {"type": "summarization_failed", "error"}.
func Summarization(o SummarizationOptions) (Middleware, error) {
	s, err := newSummarizer(o)
	if err != nil {
		return Middleware{}, err
	}
	if len(o.Trigger) == 0 {
		return Middleware{}, errors.New("summarization: no trigger says when")
	}
	return Middleware{Name: "SummarizationMiddleware", BeforeModel: Hook{Run: s.beforeModel}}, nil
}

// Condensed is a conversation whose older part was replaced by a summary.
type Condensed struct {
	Update  []message.Message // for the state: removes all, then the summary and what is kept
	Summary string
	Removed int // messages that the summary takes the place of
	Kept    int // messages after the summary
	Tokens  int // about how many the conversation had

	dropped []message.Message
}

// Condense condenses a conversation now, or, unless force is set, if a trigger is reached. nil: there is nothing to condense.
func Condense(ctx context.Context, o SummarizationOptions, messages []message.Message, force bool) (*Condensed, error) {
	s, err := newSummarizer(o)
	if err != nil {
		return nil, err
	}
	if !force && !s.due(messages) {
		return nil, nil
	}
	return s.condense(ctx, messages)
}

// newSummarizer checks options and completes them.
func newSummarizer(o SummarizationOptions) (*summarizer, error) {
	if o.Model.LLM == nil {
		return nil, errors.New("summarization: Model is required")
	}
	if o.Keep == (Size{}) {
		o.Keep = Size{Messages: 20}
	}
	if o.Prompt == "" {
		o.Prompt = summaryPrompt
	}
	if !strings.Contains(o.Prompt, "{messages}") {
		return nil, errors.New("summarization: the prompt has no {messages} in it")
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 4000
	}
	for _, t := range o.Trigger {
		if err := t.check(o.Model); err != nil {
			return nil, fmt.Errorf("summarization: trigger: %w", err)
		}
	}
	if err := o.Keep.check(o.Model); err != nil {
		return nil, fmt.Errorf("summarization: keep: %w", err)
	}
	if n := btoi(o.Keep.Messages > 0) + btoi(o.Keep.Tokens > 0) + btoi(o.Keep.Fraction > 0); n > 1 {
		return nil, errors.New("summarization: keep: write one of messages, tokens and fraction")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &summarizer{o, charsPerToken}
	if o.Model.Provider == "anthropic" {
		s.perToken = claudeChars
	}
	return s, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s Size) check(m Model) error {
	switch {
	case s == (Size{}):
		return errors.New("write messages, tokens or fraction")
	case s.Messages < 0 || s.Tokens < 0:
		return errors.New("messages and tokens are more than 0")
	case s.Fraction < 0 || s.Fraction > 1:
		return errors.New("fraction is more than 0 and at most 1")
	case s.Fraction > 0 && m.MaxInputTokens <= 0:
		return errors.New("fraction needs the model's max_input_tokens")
	}
	return nil
}

type summarizer struct {
	SummarizationOptions
	perToken float64
}

func (s *summarizer) count(messages []message.Message) int {
	return countTokens(messages, s.perToken, true)
}

func (s *summarizer) beforeModel(ctx context.Context, state pregel.Values) (any, error) {
	messages := Messages(state)
	if !s.due(messages) {
		return nil, nil
	}
	c, err := s.condense(ctx, messages)
	if err == nil && c == nil {
		return nil, nil
	}
	if err != nil && context.Cause(ctx) != nil {
		return nil, err
	}
	if err != nil {
		s.Log.WarnContext(ctx, "conversation not summarized; continuing with all of it", "messages", len(messages), "error", err)
		if s.Quiet {
			return nil, nil
		}
		return nil, pregel.Emit(ctx, map[string]any{"type": "summarization_failed", "error": err.Error()})
	}
	if s.Replaced != nil {
		s.Replaced(ctx, c.dropped)
	}
	if !s.Quiet {
		event := map[string]any{"type": "summarization", "summary": c.Summary, "replaced_count": c.Removed}
		if err := pregel.Emit(ctx, event); err != nil {
			return nil, err
		}
	}
	update := pregel.Values{messagesKey: c.Update}
	if s.TextKey != "" {
		update[s.TextKey] = c.Summary
	}
	return update, nil
}

// condense replaces the older part of a conversation; nil: there is none.
func (s *summarizer) condense(ctx context.Context, messages []message.Message) (*Condensed, error) {
	cut := s.cut(messages)
	if cut <= 0 {
		return nil, nil
	}
	messages = append([]message.Message(nil), messages...)
	for i := range messages {
		if messages[i].ID == "" {
			messages[i].ID = uuid.NewString()
		}
	}
	dropped, rescued := s.split(messages[:cut])
	if replaced(dropped) == 0 { // a summary alone is not written again
		return nil, nil
	}
	summary, err := s.summarize(ctx, dropped)
	if err != nil {
		return nil, err
	}
	m := message.Human("Here is a summary of the conversation to date:\n\n" + summary)
	m.AdditionalKwargs = json.RawMessage(`{"lc_source":"summarization"}`)
	kept := slices.Concat(rescued, messages[cut:])
	return &Condensed{
		Update: append([]message.Message{message.Remove(message.RemoveAll), m}, kept...), Summary: summary, Removed: replaced(dropped), Kept: len(kept), Tokens: s.count(messages), dropped: dropped,
	}, nil
}

// split returns the messages that a summary takes the place of, and those that are rescued.
func (s *summarizer) split(messages []message.Message) (dropped, rescued []message.Message) {
	if s.Rescue != nil {
		rescued = s.Rescue(messages)
	}
	ids := make(map[string]bool, len(rescued))
	for _, m := range rescued {
		ids[m.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(messages), func(m message.Message) bool { return ids[m.ID] }), rescued
}

// replaced counts the messages of the conversation, without a summary that is merged into the next one.
func replaced(messages []message.Message) (n int) {
	for _, m := range messages {
		if !IsSummary(m) {
			n++
		}
	}
	return n
}

// due reports whether a trigger has been reached.
func (s *summarizer) due(messages []message.Message) bool {
	if len(messages) == 0 {
		return false
	}
	tokens := s.count(messages)
	reached := func(threshold int) bool { return tokens >= threshold || s.reported(messages) >= int64(threshold) }
	for _, t := range s.Trigger {
		if t.Messages > 0 && len(messages) < t.Messages ||
			t.Tokens > 0 && !reached(t.Tokens) ||
			t.Fraction > 0 && !reached(max(int(float64(s.Model.MaxInputTokens)*t.Fraction), 1)) {
			continue
		}
		return true
	}
	return false
}

// reported returns the tokens that the provider counted for the last answer, if it was this model's provider.
func (s *summarizer) reported(messages []message.Message) int64 {
	at := lastAI(messages)
	if at < 0 || messages[at].Usage == nil || s.Model.Provider == "" ||
		gjson.GetBytes(messages[at].ResponseMetadata, "model_provider").String() != s.Model.Provider {
		return 0
	}
	return messages[at].Usage.TotalTokens
}

// cut returns how many messages to condense; 0: none.
func (s *summarizer) cut(messages []message.Message) int {
	if s.Keep.Messages > 0 {
		if len(messages) <= s.Keep.Messages {
			return 0
		}
		return safeCut(messages, len(messages)-s.Keep.Messages)
	}
	budget := s.Keep.Tokens
	if s.Keep.Fraction > 0 {
		budget = int(float64(s.Model.MaxInputTokens) * s.Keep.Fraction)
	}
	budget = max(budget, 1)
	if s.count(messages) <= budget {
		return 0
	}
	// The first message from which all later ones fit.
	at := len(messages)
	for low, high := 0, len(messages); low < high; {
		mid := (low + high) / 2
		if countTokens(messages[mid:], s.perToken, false) <= budget {
			at, high = mid, mid
		} else {
			low = mid + 1
		}
	}
	if at == len(messages) {
		if len(messages) == 1 {
			return 0
		}
		at = len(messages) - 1
	}
	return safeCut(messages, at)
}

// safeCut moves a cut so that it does not separate a tool call from its result: back to the call, or past results without a
// call.
func safeCut(messages []message.Message, at int) int {
	if at >= len(messages) || messages[at].Type != message.TypeTool {
		return at
	}
	results := map[string]bool{}
	end := at
	for ; end < len(messages) && messages[end].Type == message.TypeTool; end++ {
		results[messages[end].ToolCallID] = true
	}
	for i := at - 1; i >= 0; i-- {
		for _, c := range messages[i].ToolCalls {
			if c.ID != "" && results[c.ID] {
				return i
			}
		}
	}
	return end
}

// summarize writes the summary of messages.
func (s *summarizer) summarize(ctx context.Context, messages []message.Message) (string, error) {
	text := transcript(s.trim(messages))
	if text == "" {
		return "Previous conversation was too long to summarize.", nil
	}
	answer, err := s.ask(ctx, text)
	for try := 0; try < maxHalves && overflowed(err); try++ {
		text = s.halve(text)
		answer, err = s.ask(ctx, text)
	}
	if err != nil {
		return "", fmt.Errorf("summarize the conversation: %w", err)
	}
	summary := strings.TrimSpace(withoutThoughts(answer.Text()))
	for _, reason := range gjson.GetManyBytes(answer.ResponseMetadata, "finish_reason", "stop_reason") {
		if partial[reason.Str] {
			return "", fmt.Errorf("summarize the conversation: the summary is not complete: the model ended it with %q", reason.Str)
		}
	}
	if summary == "" {
		return "", errors.New("summarize the conversation: the model answered with nothing")
	}
	return summary, nil
}

// partial has the reasons with which providers end an answer that is not complete.
var partial = map[string]bool{
	"length": true, "model_length": true, "max_tokens": true, "model_context_window_exceeded": true, "content_filter": true, "refusal": true, "error": true,
}

// IsSummary reports whether a message is a summary that Summarization wrote.
func IsSummary(m message.Message) bool {
	return gjson.GetBytes(m.AdditionalKwargs, "lc_source").String() == "summarization"
}

// maxHalves is how often a text that is too long for the model is cut in half.
const maxHalves = 3

func overflowed(err error) bool {
	var e interface{ ContextOverflow() bool }
	return errors.As(err, &e) && e.ContextOverflow()
}

func (s *summarizer) ask(ctx context.Context, text string) (message.Message, error) {
	prompt := strings.TrimRight(strings.ReplaceAll(s.Prompt, "{messages}", text), " \n")
	model := s.Model
	model.Source.Summarizes = true
	return model.Ask(ctx, []message.Message{message.Human(prompt)}, map[string]any{"lc_source": "summarization"}, s.Tags...)
}

// trim returns the last messages that fit, beginning with a person's, and all instructions. An earlier summary is kept: nothing else
// has the messages that it took the place of.
func (s *summarizer) trim(messages []message.Message) []message.Message {
	if s.MaxTokens < 0 || countTokens(messages, charsPerToken, false) <= s.MaxTokens {
		return messages
	}
	budget := s.MaxTokens
	n := 0
	if messages[n].Type == message.TypeSystem {
		n++
	}
	if n < len(messages) && IsSummary(messages[n]) {
		n++
	}
	head, messages := messages[:n:n], messages[n:] // without room: append must not write over the messages
	if n > 0 {
		budget -= countTokens(head, charsPerToken, false)
	}
	from := len(messages)
	for from > 0 {
		if budget -= countTokens(messages[from-1:from], charsPerToken, false); budget < 0 {
			break
		}
		from--
	}
	kept := messages[from:]
	for len(kept) > 0 && kept[0].Type != message.TypeHuman {
		kept = kept[1:]
	}
	if len(kept) == 0 && len(messages) > 0 {
		// No message fits completely: use the end of the text.
		text := transcript(messages)
		kept = []message.Message{message.Human("…" + tail(text, s.MaxTokens*int(charsPerToken)))}
	}
	return append(head, kept...)
}

// halve omits the middle: the start of a conversation has its subject, and the end its current state.
func (s *summarizer) halve(text string) string {
	budget := utf8.RuneCountInString(text) / 2
	if limit := s.Model.MaxInputTokens * 2 / 5; limit > 0 {
		budget = min(budget, int(float64(limit)*s.perToken))
	}
	runes := []rune(text)
	head := budget / 4
	return string(runes[:head]) + "\n\n[… middle of the conversation left out …]\n\n" + string(runes[len(runes)-(budget-head):])
}

// tail returns the last n characters.
func tail(text string, n int) string {
	runes := []rune(text)
	return string(runes[max(len(runes)-max(n, 0), 0):])
}
