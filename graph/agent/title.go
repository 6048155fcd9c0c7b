package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// TitleOptions control how a thread gets its title.
type TitleOptions struct {
	Model  Model        // that writes it
	Prompt string       // contains {conversation}; "": a default
	Key    string       // of the state, with the title; "": "title"
	MaxLen int          // in characters; 0: 60
	Log    *slog.Logger // nil: slog.Default
}

const titlePrompt = `Give this conversation a title of at most six words. Answer with the title alone, without quotes.

{conversation}`

// Title sets the title of a thread once, after its first answer. The tokens of its model are not streamed. If the model fails, the
// title is the beginning of the person's message.
func Title(o TitleOptions) (Middleware, error) {
	if o.Model.LLM == nil {
		return Middleware{}, errors.New("title: Model is required")
	}
	if o.Prompt == "" {
		o.Prompt = titlePrompt
	}
	if !strings.Contains(o.Prompt, "{conversation}") {
		return Middleware{}, errors.New("title: the prompt has no {conversation} in it")
	}
	if o.Key == "" {
		o.Key = "title"
	}
	if o.MaxLen <= 0 {
		o.MaxLen = 60
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return Middleware{
		Name:       "TitleMiddleware",
		State:      map[string]pregel.Channel{o.Key: pregel.LastValue()},
		AfterAgent: Hook{Run: o.run},
	}, nil
}

func (o TitleOptions) run(ctx context.Context, state pregel.Values) (any, error) {
	if title, _, _ := pregel.Get[string](state, o.Key); title != "" {
		return nil, nil
	}
	var asked, said string
	for _, m := range Messages(state) {
		switch {
		case m.Type == message.TypeHuman && asked == "":
			asked = m.Text()
		case m.Type == message.TypeAI && said == "":
			said = m.Text()
		}
	}
	if asked == "" || said == "" {
		return nil, nil
	}
	title, err := WriteTitle(ctx, o, asked, said)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return nil, err
	case errors.Is(err, errNoTitle):
		o.Log.WarnContext(ctx, "no title written; the beginning of the question is the title", "error", err, "model", o.Model.Source.Name)
		title = tidyTitle(asked)
	case err != nil: // it names the model
		o.Log.WarnContext(ctx, "no title written; the beginning of the question is the title", "error", err)
		title = tidyTitle(asked)
	}
	return pregel.Values{o.Key: short(title, o.MaxLen)}, nil
}

var errNoTitle = errors.New("the model answered nothing")

// titleTime is how long a run waits for its title.
const titleTime = 15 * time.Second

// WriteTitle asks the model of o for the title of a conversation that begins with a question and an answer, and waits 15 seconds at most. It returns the
// whole answer on one line, without thoughts and quotes. Its tokens are not streamed.
func WriteTitle(ctx context.Context, o TitleOptions, asked, said string, tags ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, titleTime, fmt.Errorf("the model wrote no title within %s", titleTime))
	defer cancel()
	conversation := fmt.Sprintf("User: %s\nAssistant: %s", short(asked, 2000), short(said, 2000))
	prompt := message.Human(strings.ReplaceAll(cmp.Or(o.Prompt, titlePrompt), "{conversation}", conversation))
	answer, err := o.Model.Ask(ctx, []message.Message{prompt}, map[string]any{"lc_source": "title"}, append(tags, "nostream")...)
	if err != nil {
		return "", err
	}
	title := tidyTitle(withoutThoughts(answer.Text()))
	if title == "" {
		return "", errNoTitle
	}
	return title, nil
}

// tidyTitle puts a title on one line, and removes quotes around it.
func tidyTitle(text string) string {
	return strings.Trim(strings.Join(strings.Fields(text), " "), `"'“”`)
}

// short truncates text to n characters.
func short(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return strings.TrimSpace(string([]rune(text)[:n-1])) + "…"
}

// withoutThoughts removes what some models think aloud: <think>…</think> at the beginning, of which servers leave out the first tag.
func withoutThoughts(text string) string {
	if at := strings.LastIndex(text, "</think>"); at >= 0 {
		return strings.TrimSpace(text[at+len("</think>"):])
	}
	if strings.HasPrefix(strings.TrimSpace(text), "<think>") {
		return "" // cut off within
	}
	return text
}
